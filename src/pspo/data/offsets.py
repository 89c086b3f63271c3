"""Columns whose numbers are so large that float32 would round away how they differ, and the offset that saves them.

A clock of 1.7e9 seconds has steps of 128 in float32. The observation keeps such a column minus an offset, subtracted
in float64: the differences are then exact enough. All other columns are stored as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

LARGE = 8.0  # times the range of the column: below it an offset would save less than four bits
STEP_PART = 2.0**-8  # float32 may round by this part of the usual change from row to row,
STD_PART = 2.0**-10  # and by this part of the standard deviation
ROWS = 1 << 16  # compared at once


def is_wide(array: Any) -> bool:
    """Whether the type has numbers that float32 has not: float64, and integers of 32 bits or more."""
    return array.dtype.kind in "iuf" and not np.can_cast(array.dtype, np.float32)


def large_columns(*parts: np.ndarray) -> np.ndarray:
    """Indices of columns that may need an offset: the numbers are large compared with their range.

    Rounding to float32 changes neither, so that rounded numbers will do.
    """
    ranges = [_range(part) for part in parts if part.size]
    if not ranges:
        return np.zeros(0, np.intp)
    low, high = np.minimum.reduce([r[0] for r in ranges]), np.maximum.reduce([r[1] for r in ranges])
    with np.errstate(invalid="ignore", over="ignore"):  # a column without finite numbers has an empty range
        return np.flatnonzero((np.maximum(-low, high) >= LARGE * (high - low)) & (high >= low) & (high != -low))


def _range(part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low, high = part.min(axis=0), part.max(axis=0)
    if part.dtype.kind == "f" and not (np.isfinite(low).all() and np.isfinite(high).all()):
        finite = np.isfinite(part)
        low, high = part.min(axis=0, where=finite, initial=np.inf), part.max(axis=0, where=finite, initial=-np.inf)
    return low.astype(np.float64), high.astype(np.float64)


def keeps_less(column: np.ndarray) -> bool:
    """Whether float32 rounds the numbers of a large column, in float64, by more than learning can ignore."""
    finite = column[np.isfinite(column)].astype(np.float64)
    if not finite.size or finite.min() == finite.max():
        return False
    with np.errstate(over="ignore"):
        rounded = finite.astype(np.float32)
    if np.array_equal(rounded, finite) or not np.isfinite(rounded).all():
        return False  # exact; or too large for float32, which `check` reports as an error
    step, change = float(np.spacing(np.abs(rounded).max())), np.abs(np.diff(finite))
    usual = float(np.median(change[change > 0]))
    if step <= STEP_PART * usual and step <= STD_PART * float(finite.std()):
        return False
    # Text of float32 numbers has no more digits than they have: 1.0000001 is a float32, though not exactly.
    return any(
        not np.array_equal(rounded[i : i + ROWS].astype(str).astype(np.float64), finite[i : i + ROWS])
        for i in range(0, len(finite), ROWS)
    )


def offset_of(obs: np.ndarray, next_obs: np.ndarray | None = None) -> float:
    """The offset of one column, in float64, before and after the step; zero if it needs none."""
    if not keeps_less(obs) and (next_obs is None or not keeps_less(next_obs)):
        return 0.0
    finite = np.concatenate([part[np.isfinite(part)] for part in (obs, next_obs) if part is not None])
    low, high = float(finite.min()), float(finite.max())
    # The middle, rounded to the first digit of the range: a number that people can read.
    return round(0.5 * (low + high), -math.floor(math.log10(high - low)))


def offsets_of(obs: Any, next_obs: Any = None) -> np.ndarray | None:
    """Offsets of the columns of tables of numbers, before and after the step; None if no column needs one.

    What is not a table of numbers needs none: `Dataset` refuses it.
    """
    parts = [_table(part) for part in (obs, next_obs) if part is not None]
    shapes = {part.shape for part in parts}
    if len(shapes) > 1 or len(shapes.pop()) != 2 or not any(map(is_wide, parts)):
        return None
    offset = np.zeros(parts[0].shape[1])
    for column in large_columns(*parts):
        offset[column] = offset_of(*(part[:, column].astype(np.float64) for part in parts))
    return offset if offset.any() else None


def _table(values: Any) -> np.ndarray:
    """An array of numbers; an empty vector if it is none."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        return np.empty(0)
    return array if array.dtype.kind in "biuf" and array.size else np.empty(0)


def subtract(values: Any, offset: np.ndarray) -> np.ndarray:
    """Raw values (..., columns) minus the offsets, in float64, then as float32."""
    values = np.asarray(values)
    shifted = np.empty(values.shape, np.float32)
    raw, into = values.reshape(-1, len(offset)), shifted.reshape(-1, len(offset))
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which `check` reports as an error
        for start in range(0, len(raw), ROWS):
            rows = slice(start, start + ROWS)
            into[rows] = raw[rows].astype(np.float64) - offset
    shifted.setflags(write=False)  # no other references: the dataset need not copy it
    return shifted


def float32_keeps_less(rounded: np.ndarray, wide_column: Callable[[int], np.ndarray]) -> bool:
    """Whether an array that was read as float32 lost something; `wide_column` gives one column of the source."""
    columns = rounded.reshape(len(rounded), -1)
    return any(keeps_less(np.asarray(wide_column(int(c)), np.float64)) for c in large_columns(columns))


def rounding_notes(arrays: dict[str, Any]) -> list[str]:
    """A note for every array, by its name, with columns that float32 rounds: actions and rewards keep no offset."""
    notes = []
    for name, values in arrays.items():
        array = _table(values)
        if array.size and array.ndim in (1, 2) and is_wide(array):
            columns = array.reshape(len(array), -1)
            for c in large_columns(columns):
                if keeps_less(columns[:, c].astype(np.float64)):
                    notes.append(rounding_note(name if array.ndim == 1 else f"{name} column {c}", columns[:, c]))
    return notes


def rounding_note(what: str, column: np.ndarray) -> str:
    """What float32 leaves of a column of actions or rewards."""
    before, after = len(np.unique(column)), len(np.unique(column.astype(np.float32)))
    return (
        f"{what} is rounded to float32, which leaves {after} of {before} different values: log it as the difference "
        "to a constant."
    )
