"""Columns of a table that float32 has rounded, read again in float64: states get an offset, other columns a note."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from pspo.data.offsets import keeps_less, large_columns, lost_note, offset_of, rounding_note

Cell = tuple[str, int]
"""A column of the table, and the position in its cells."""
AT_ONCE = 1 << 28
"""Bytes in float64 of the columns that are read together: a table of thousands may be larger than the memory."""
WideReader = Callable[[list[str]], Mapping[str, np.ndarray]]
"""Columns of the table by name, (rows, numbers per cell) in float64."""


def subtract_offsets(
    numbers: Mapping[str, np.ndarray],
    cells: Mapping[str, Sequence[Cell]],
    read: WideReader,
    given: np.ndarray | None = None,
) -> tuple[np.ndarray, list[str]]:
    """Replace states that float32 has rounded by their difference to an offset.

    Returns the offset of each column, and notes on columns that are rounded in spite of it. `numbers` (rows, columns)
    and `cells` are by role. Without offsets that are `given`, those that are needed are found; nothing is read again
    where all numbers are of the size of their differences.
    """
    states = [role for role in ("obs", "next_obs") if role in numbers]
    offset = np.zeros(numbers["obs"].shape[1]) if given is None else given
    widths = Counter(name for name, _ in cells["obs"])
    suspects, notes = np.union1d(large_columns(*(numbers[role] for role in states)), np.flatnonzero(offset)), []
    for c, columns in _wide_columns(suspects, {role: cells[role] for role in states}, read, len(numbers["obs"])):
        if given is None:
            offset[c] = offset_of(*columns)
        if offset[c]:
            for role, column in zip(states, columns, strict=True):
                with np.errstate(over="ignore"):  # too large becomes infinite, which `check` reports
                    numbers[role][:, c] = column - offset[c]
        (name, index), several = cells["obs"][c], widths[cells["obs"][c][0]] > 1
        notes += lost_note(repr(f"{name}[{index}]" if several else name), float(offset[c]), *columns)
    return offset, notes


def rounded_others(
    numbers: Mapping[str, np.ndarray], cells: Mapping[str, Sequence[Cell]], read: WideReader
) -> list[str]:
    """Notes on actions and rewards that float32 has rounded."""
    notes = []
    for role in ("action", "reward") if "action" in numbers else ("reward",):  # labels are no numbers
        suspects = large_columns(numbers[role].reshape(len(numbers[role]), -1))
        for c, (column,) in _wide_columns(suspects, {role: cells[role]}, read, len(numbers[role])):
            if keeps_less(column):
                notes.append(rounding_note(role if role == "reward" else f"{role} column {c}", column))
    return notes


def _wide_columns(
    suspects: np.ndarray, cells: Mapping[str, Sequence[Cell]], read: WideReader, rows: int
) -> Iterator[tuple[int, list[np.ndarray]]]:
    """Each of these columns, and its numbers in the table for every role."""
    for group in _groups(suspects, cells, AT_ONCE // (8 * rows)):
        wide = read(sorted({members[c][0] for members in cells.values() for c in group}))
        yield from ((c, [_column(wide, members[c]) for members in cells.values()]) for c in group)


def _groups(suspects: np.ndarray, cells: Mapping[str, Sequence[Cell]], most: int) -> list[list[int]]:
    """Suspects whose columns of the table are read together, with at most so many numbers in a row.

    Each column of the table is read once: all suspects in the lists of one column are in one group.
    """
    widths = Counter(name for members in cells.values() for name, _ in members)
    groups: list[list[int]] = []
    names: set[str] = set()
    for c in suspects.tolist():
        own = {members[c][0] for members in cells.values()}
        if not groups or (not own <= names and sum(widths[name] for name in names | own) > most):
            groups.append([])
            names = set()
        groups[-1].append(c)
        names |= own
    return groups


def _column(wide: Mapping[str, np.ndarray], cell: Cell) -> np.ndarray:
    name, index = cell
    return wide[name][:, index]
