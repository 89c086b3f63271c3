"""Columns of a table that float32 has rounded, read again in float64: states get an offset, other columns a note."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pspo.data.offsets import keeps_less, large_columns, lost_note, offset_of, rounding_note

Cell = tuple[str, int]
"""A column of the table, and the position in its cells."""
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
    suspects, notes = np.union1d(large_columns(*(numbers[role] for role in states)), np.flatnonzero(offset)), []
    wide = read(sorted({cells[role][c][0] for role in states for c in suspects.tolist()})) if suspects.size else {}
    for c in suspects.tolist():
        columns = [_column(wide, cells[role][c]) for role in states]
        if given is None:
            offset[c] = offset_of(*columns)
        if offset[c]:
            for role, column in zip(states, columns, strict=True):
                with np.errstate(over="ignore"):  # too large becomes infinite, which `check` reports
                    numbers[role][:, c] = column - offset[c]
        (name, index), several = cells["obs"][c], wide[cells["obs"][c][0]].shape[1] > 1
        notes += lost_note(repr(f"{name}[{index}]" if several else name), float(offset[c]), *columns)
    return offset, notes


def rounded_others(
    numbers: Mapping[str, np.ndarray], cells: Mapping[str, Sequence[Cell]], read: WideReader
) -> list[str]:
    """Notes on actions and rewards that float32 has rounded."""
    notes = []
    for role in ("action", "reward") if "action" in numbers else ("reward",):  # labels are no numbers
        suspects = large_columns(numbers[role].reshape(len(numbers[role]), -1))
        wide = read(sorted({cells[role][c][0] for c in suspects.tolist()})) if suspects.size else {}
        for c in suspects.tolist():
            column = _column(wide, cells[role][c])
            if keeps_less(column):
                notes.append(rounding_note(role if role == "reward" else f"{role} column {c}", column))
    return notes


def _column(wide: Mapping[str, np.ndarray], cell: Cell) -> np.ndarray:
    name, index = cell
    return wide[name][:, index]
