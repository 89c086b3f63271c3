"""Mean, standard deviation and range of the columns of tables, in blocks: little memory, whatever the size.

The numbers are those of `mean` and `std` on the whole tables, bit for bit, as those add up one row after the other too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from pspo.data.mapped import row_blocks

FIRST_ROWS = 1000  # of most columns they are enough to say that there are many values


class ColumnStatistics(NamedTuple):
    """(columns,) each."""

    mean: np.ndarray  # float64
    std: np.ndarray  # float64
    low: np.ndarray
    high: np.ndarray


Table = tuple[np.ndarray, np.ndarray | None]
"""Rows, and which of them count; None means all."""


def column_statistics(*tables: Table) -> ColumnStatistics:
    """Of tables with the same columns, as if they stood below each other."""
    count = sum(len(table) if counts is None else int(counts.sum()) for table, counts in tables)
    total: Any = None
    lows, highs = [], []
    for block in _blocks(tables):
        total = _add(total, block.astype(np.float64))
        lows.append(block.min(axis=0))
        highs.append(block.max(axis=0))
    mean = total / count
    squares: Any = None
    for block in _blocks(tables):
        squares = _add(squares, np.square(block - mean))
    return ColumnStatistics(mean, np.sqrt(squares / count), np.minimum.reduce(lows), np.maximum.reduce(highs))


def distinct_values(tables: tuple[Table, ...], column: int, most: int) -> np.ndarray | None:
    """The values of a column, ascending; None if there are more than `most`."""
    values = np.unique(tables[0][0][:FIRST_ROWS, column])
    if len(values) > most:
        return None
    for block in _blocks(tables):
        values = np.union1d(values, block[:, column])
        if len(values) > most:
            return None
    return values


def _add(total: Any, rows: np.ndarray) -> Any:
    """Not the sum of the blocks' sums, which would be rounded otherwise."""
    return rows.sum(axis=0) if total is None else np.concatenate([total[None], rows]).sum(axis=0)


def _blocks(tables: tuple[Table, ...]) -> Iterator[np.ndarray]:
    """A single column is one block: NumPy adds it up in pairs."""
    if tables[0][0].shape[1] == 1:
        yield np.concatenate([table if counts is None else table[counts] for table, counts in tables])
        return
    for table, counts in tables:
        for rows in row_blocks(table):
            block = table[rows] if counts is None else table[rows][counts[rows]]
            if len(block):
                yield block
