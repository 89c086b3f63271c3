"""A function of many rows, computed some rows at a time: memory is that of one block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array

BLOCK = 50_000


def in_blocks(function: Callable[..., Any], *rows: Array) -> Any:
    """`function(number of the first row, *rows of a block)`, its results (rows, ...) put together on the host.

    All blocks have one size, so that it is compiled once: the last one begins earlier, and what it repeats is dropped.
    """
    count = rows[0].shape[0]
    size = min(BLOCK, count)
    pieces = []
    for first in range(0, count, size):
        begin = min(first, count - size)
        found = function(begin, *(part[begin : begin + size] for part in rows))
        pieces.append(jax.tree.map(lambda part: np.asarray(part)[first - begin :], found))  # noqa: B023 - called now
    return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)
