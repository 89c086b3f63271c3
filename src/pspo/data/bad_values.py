"""Find wrong values in a table, block by block: where the first one is, and how many there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pspo.data.mapped import row_blocks


class BadValues(NamedTuple):
    """Values of a table that are wrong: the first one, and how many there are."""

    row: int
    column: int
    values: int
    rows: int
    columns: np.ndarray  # those with such values


def bad_values(values: np.ndarray, is_bad: Callable[[slice], np.ndarray]) -> BadValues | None:
    """`is_bad` says for some rows which of their values are wrong."""
    first, count, affected, columns = None, 0, 0, np.zeros(values.shape[1], bool)
    for rows in row_blocks(values):
        bad = is_bad(rows)
        if not bad.any():
            continue
        if first is None:
            row = int(bad.any(axis=1).argmax())
            first = rows.start + row, int(bad[row].argmax())
        count, affected = count + int(bad.sum()), affected + int(bad.any(axis=1).sum())
        columns |= bad.any(axis=0)
    return BadValues(*first, count, affected, np.flatnonzero(columns)) if first else None
