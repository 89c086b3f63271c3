"""A function of many transitions, computed in blocks: only one block is in memory at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array

BLOCK = 50_000


def map_blocks(function: Callable[..., Any], *arrays: Array) -> Any:
    """`function(index of the first transition, *slices of a block)`; results (transitions, ...) are joined on the host.

    All blocks have the same size, so that it compiles once: the last one starts earlier, and its overlap is dropped.
    """
    count = arrays[0].shape[0]
    size = min(BLOCK, count)
    pieces = []
    for first in range(0, count, size):
        begin = min(first, count - size)
        result = function(begin, *(part[begin : begin + size] for part in arrays))
        pieces.append(jax.tree.map(lambda part: np.asarray(part)[first - begin :], result))  # noqa: B023 - called now
    return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)
