"""Columns whose numbers are so large that float32 would round away how they differ, and the offset that saves them.

A clock of 1.7e9 seconds has steps of 128 in float32. The observation keeps such a column minus an offset, subtracted
in float64: the differences are then exact enough. All other columns are stored as they are. What no offset can save
gets a note.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

LARGE = 8.0  # times the range of the column: below it an offset would save less than four bits
STEP_PART = 2.0**-8  # float32 may round by this part of the usual change from row to row,
STD_PART = 2.0**-10  # and by this part of the standard deviation
LOST_PART = 0.25  # where it rounds by more than this part even minus an offset, a note says so
ROWS = 1 << 16  # compared at once
SAMPLE, COLUMNS = 512, 256  # rows that say which columns are compared, and columns at once
SMALL_WHOLE = 2.0**16  # whole numbers below it, such as flags and counters, are exact


def is_wide(array: Any) -> bool:
    """Whether the type has numbers that float32 has not: float64, and integers of 32 bits or more."""
    return array.dtype.kind in "iuf" and not np.can_cast(array.dtype, np.float32)


def large_columns(*parts: np.ndarray) -> np.ndarray:
    """Indices of columns that float32 may round: the numbers are large compared with their range, with the distance of
    most of them to each other, or with their usual change from row to row. Zero in every row may have been tiny.

    Numbers that are rounded already will do.
    """
    parts = tuple(part for part in parts if part.size)
    if not parts:
        return np.zeros(0, np.intp)
    ranges = [_range(part) for part in parts]
    low, high = np.minimum.reduce([r[0] for r in ranges]), np.maximum.reduce([r[1] for r in ranges])
    with np.errstate(invalid="ignore", over="ignore"):  # a column without finite numbers has an empty range
        large = (np.maximum(-low, high) >= LARGE * (high - low)) & (high >= low)
        for part in parts:
            large |= _close_numbers(part, np.maximum(-low, high))
    return np.flatnonzero(large)


def _close_numbers(part: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Columns in which a few numbers are far from the others, or which move far in small steps; by some of the rows.

    A sensor that reads 6378137.03 and sometimes 0 has a wide range, and float32 would still erase what it measures.
    """
    rows = np.unique(np.linspace(0, max(len(part) - 2, 0), SAMPLE).astype(np.intp))
    after = np.minimum(rows + 1, len(part) - 1)
    close = np.zeros(part.shape[1], bool)
    for start in range(0, part.shape[1], COLUMNS):
        columns = slice(start, start + COLUMNS)
        now, then = (part[at, columns].astype(np.float64) for at in (rows, after))
        now, then = (np.where(np.isfinite(some) & (some != 0), some, np.nan) for some in (now, then))
        middle, change = _medians(now), np.abs(then - now)
        distance, usual = _medians(np.abs(now - middle)), _medians(np.where(change > 0, change, np.nan))
        step = np.spacing(largest[columns].astype(np.float32)).astype(np.float64)
        exact = ((now == np.rint(now)) & (np.abs(now) < SMALL_WHOLE) | np.isnan(now)).all(axis=0)
        close[columns] = ((np.abs(middle) >= LARGE * distance) | (STEP_PART * usual <= step)) & ~exact
    return close


def _medians(values: np.ndarray) -> np.ndarray:
    """The lower median of each column without its NaN; NaN if there is nothing else."""
    ordered, known = np.sort(values, axis=0), (~np.isnan(values)).sum(axis=0)
    return np.take_along_axis(ordered, np.maximum(known - 1, 0)[None] // 2, axis=0)[0]


def _range(part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low, high = part.min(axis=0), part.max(axis=0)
    if part.dtype.kind == "f" and not (np.isfinite(low).all() and np.isfinite(high).all()):
        finite = np.isfinite(part)
        low, high = part.min(axis=0, where=finite, initial=np.inf), part.max(axis=0, where=finite, initial=-np.inf)
    return low.astype(np.float64), high.astype(np.float64)


def keeps_less(column: np.ndarray, step_part: float = STEP_PART) -> bool:
    """Whether float32 rounds the numbers of a large column, in float64, by more than learning can ignore."""
    finite = column[np.isfinite(column)].astype(np.float64)
    if not finite.size or finite.min() == finite.max():
        return False
    with np.errstate(over="ignore"):
        rounded = finite.astype(np.float32)
    if np.array_equal(rounded, finite) or not np.isfinite(rounded).all():
        return False  # exact; or too large for float32, which `check` reports as an error
    step, usual = _steps(finite)
    if step <= step_part * usual and step <= STD_PART * float(finite.std()):
        return False
    # Text of float32 numbers has no more digits than they have: 1.0000001 is a float32, though not exactly.
    return any(
        not np.array_equal(rounded[i : i + ROWS].astype(str).astype(np.float64), finite[i : i + ROWS])
        for i in range(0, len(finite), ROWS)
    )


def _steps(finite: np.ndarray) -> tuple[float, float]:
    """Of a column: the usual distance of float32 numbers of its size, and its usual change from row to row.

    Zero is what sensors read that are off, so that changes to and from it count only where there are no others.
    """
    size, change = np.abs(finite), np.abs(np.diff(finite))
    between = change[(size[1:] > 0) & (size[:-1] > 0)]
    change = between if between.any() else change
    return float(np.spacing(np.float32(np.median(size[size > 0])))), float(np.median(change[change > 0]))


def offset_of(obs: np.ndarray, next_obs: np.ndarray | None = None) -> float:
    """The offset of one column, in float64, before and after the step; zero if it needs none."""
    if not keeps_less(obs) and (next_obs is None or not keeps_less(next_obs)):
        return 0.0
    finite = np.concatenate([part[np.isfinite(part)] for part in (obs, next_obs) if part is not None])
    low, high = float(finite.min()), float(finite.max())
    if max(-low, high) >= LARGE * (high - low):
        middle, distance = 0.5 * (low + high), high - low
    else:  # a few numbers are far from the others, or nothing helps
        middle = float(np.median(finite[finite != 0]))
        others = np.abs(finite[finite != 0] - middle)
        distance = float(np.median(others[others > 0])) if others.any() else np.inf
        if abs(middle) < LARGE * distance:
            return 0.0
    # Rounded to the first digit of the range: a number that people can read.
    return round(middle, -math.floor(math.log10(distance)))


def offsets_of(obs: Any, next_obs: Any = None) -> np.ndarray | None:
    """Offsets of the columns of tables of numbers, before and after the step; None if no column needs one.

    What is not a table of numbers needs none: `Dataset` refuses it.
    """
    parts = _wide_tables(obs, next_obs)
    offset = np.zeros(parts[0].shape[1] if parts else 0)
    for column in large_columns(*parts):
        offset[column] = offset_of(*(part[:, column].astype(np.float64) for part in parts))
    return offset if offset.any() else None


def lost_notes(offset: np.ndarray | None, obs: Any, next_obs: Any = None, names: Sequence[str] = ()) -> list[str]:
    """A note for every column of the same tables that float32 rounds away in spite of its offset."""
    parts, notes = _wide_tables(obs, next_obs), []
    for c in large_columns(*parts).tolist():
        columns = [part[:, c].astype(np.float64) for part in parts]
        shift = 0.0 if offset is None or len(offset) != parts[0].shape[1] else float(offset[c])
        notes += lost_note(repr(names[c]) if names else str(c), shift, *columns)
    return notes


def lost_note(name: str, offset: float, *parts: np.ndarray) -> list[str]:
    """What float32 still rounds away of a column of the state minus its offset, in one line; none if it may do so."""
    for part in parts:
        shifted = part - offset
        if _float64_keeps_less(part):
            return [
                f"obs column {name} has numbers so large that even float64 rounds their changes from row to row: log "
                "it as the difference to a constant, or leave it out."
            ]
        if keeps_less(shifted, LOST_PART):
            if not shifted.astype(np.float32).any():
                return [f"obs column {name} is too small for float32, which makes it 0: log it in a larger unit."]
            step, usual = _steps(shifted[np.isfinite(shifted)])
            return [
                f"obs column {name} is rounded to float32 in steps of {step:.6g}, where it usually changes by "
                f"{usual:.6g} from row to row: log it as the difference to the start of the episode, or leave it out."
            ]
    return []


def _float64_keeps_less(column: np.ndarray) -> bool:
    """Whether whole numbers beyond 2^53, such as identifiers, lost their last digits before anything was subtracted."""
    finite = column[np.isfinite(column)]
    if not finite.size or np.abs(finite).max() <= 2.0**53:
        return False
    change = np.abs(np.diff(finite))
    return bool(change.any()) and float(np.spacing(np.median(np.abs(finite)))) >= np.median(change[change > 0])


def _wide_tables(obs: Any, next_obs: Any) -> list[np.ndarray]:
    """Tables of numbers of one shape; none if there is nothing that float32 could round."""
    parts = [_table(part) for part in (obs, next_obs) if part is not None]
    shapes = {part.shape for part in parts}
    usable = len(shapes) == 1 and len(shapes.pop()) == 2 and any(map(is_wide, parts))
    return parts if usable else []


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
    rounded = column.astype(np.float32)
    if not rounded.any():
        return f"{what} is too small for float32, which makes it 0: log it in a larger unit."
    before, after = len(np.unique(column)), len(np.unique(rounded))
    return (
        f"{what} is rounded to float32, which leaves {after} of {before} different values: log it as the difference "
        "to a constant."
    )
