"""Find problems of a dataset before training does; every finding says where the problem is and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pspo.core.errors import UserError
from pspo.data.dataset import Dataset
from pspo.data.load import load_dataset

# Bounds and actions may have been rounded differently on their way to float32; relative to the width of the bounds.
BOUND_SLACK = 1e-6
# Simulators that store states in float64 and next states in float32 differ by this much without being wrong.
CONTINUITY_RELATIVE, CONTINUITY_ABSOLUTE = 1e-4, 1e-6


@dataclass(frozen=True)
class Finding:
    """An error forbids training; a warning should be checked by a person. `row` is the first row with the problem."""

    level: Literal["error", "warning"]
    code: str
    message: str
    row: int | None = None


def check(dataset: Dataset) -> list[Finding]:
    """All problems, errors first; an empty list for clean data."""
    return [*_errors(dataset), *_warnings(dataset)]


def check_source(source: Any, **options: Any) -> tuple[Dataset | None, list[Finding]]:
    """Like `check` for whatever `load_dataset` takes; data that cannot be loaded are a finding, not an exception."""
    try:
        dataset = load_dataset(source, **options)
    except UserError as error:
        return None, [Finding("error", "unreadable", str(error))]
    return dataset, check(dataset)


def require_trainable(dataset: Dataset) -> None:
    """Refuse data that cannot be trained on. Fast, as it skips the warnings."""
    for finding in _errors(dataset):
        raise UserError(f"dataset '{dataset.name}' cannot be trained on: {finding.message}")


def _errors(dataset: Dataset) -> Iterator[Finding]:
    yield from _not_finite(dataset)
    yield from _actions_out_of_bounds(dataset)


def _warnings(dataset: Dataset) -> Iterator[Finding]:
    for note in dataset.notes:
        yield Finding("warning", "note", note)
    yield from _broken_episodes(dataset)
    yield from _missing_ends(dataset)
    if dataset.size > 1:  # a single row is always constant
        yield from _constant_columns(dataset)
        yield from _nothing_moves(dataset)
        yield from _duplicates(dataset)


def _not_finite(dataset: Dataset) -> Iterator[Finding]:
    for field in ("obs", "action", "reward", "next_obs"):
        values = getattr(dataset, field).reshape(dataset.size, -1)
        bad = ~np.isfinite(values)
        if field == "next_obs" and not dataset.next_known.all():
            bad[~dataset.next_known] = False  # a copy of obs, which has its own finding
        if not bad.any():
            continue
        row = int(bad.any(axis=1).argmax())
        column = int(bad[row].argmax())
        where = f"row {row}" if field == "reward" else f"row {row}, column {column}"
        affected = np.flatnonzero(bad.any(axis=0))
        columns = f" in columns {_listed(affected)}" if len(affected) > 1 else ""
        yield Finding(
            "error",
            "not-finite",
            f"{field} is {values[row, column]} at {where}, which is NaN, infinite or too large for float32 "
            f"(values affected: {bad.sum()}{columns}): repair or remove these rows.",
            row,
        )


def _actions_out_of_bounds(dataset: Dataset) -> Iterator[Finding]:
    action, low, high = dataset.action, dataset.action_low, dataset.action_high
    slack = BOUND_SLACK * (high.astype(np.float64) - low)
    outside = ((action < low - slack) | (action > high + slack)) & np.isfinite(action)
    if not outside.any():
        return
    rows = outside.any(axis=1)
    row = int(rows.argmax())
    column = int(outside[row].argmax())
    yield Finding(
        "error",
        "action-out-of-bounds",
        f"action is {action[row, column]!s} at row {row}, column {column}, outside its bounds "
        f"[{low[column]!s}, {high[column]!s}] (rows affected: {rows.sum()}): correct the bounds or clip the actions.",
        row,
    )


def _broken_episodes(dataset: Dataset) -> Iterator[Finding]:
    inside = np.flatnonzero(~dataset.episode_end)
    arrives, departs = dataset.next_obs[inside], dataset.obs[inside + 1]
    suspect = np.flatnonzero((arrives != departs).any(axis=1))  # most rows agree exactly: compare only the others
    close = np.isclose(
        arrives[suspect], departs[suspect], rtol=CONTINUITY_RELATIVE, atol=CONTINUITY_ABSOLUTE, equal_nan=True
    )
    broken = inside[suspect[~close.all(axis=1)]]
    if broken.size:
        row = int(broken[0])
        yield Finding(
            "warning",
            "broken-episode",
            f"next_obs of row {row} is not obs of row {row + 1} though no episode ends there "
            f"(rows affected: {broken.size}): mark the ends of episodes as time-outs, and keep rows in their order.",
            row,
        )


def _missing_ends(dataset: Dataset) -> Iterator[Finding]:
    terminals, timeouts = dataset.terminal.any(), dataset.timeout.any()
    if not terminals and not timeouts:
        message = f"no row is a terminal or a time-out, so all {dataset.size} rows count as one episode: mark the ends."
        yield Finding("warning", "one-episode", message)
    elif not terminals:
        message = "no row is a terminal, so the task counts as one that never ends: mark the terminals if it can end."
        yield Finding("warning", "no-terminals", message)
    elif not timeouts:
        message = "no row is a time-out, so no episode counts as cut: mark the time-outs if some were."
        yield Finding("warning", "no-timeouts", message)


def _constant_columns(dataset: Dataset) -> Iterator[Finding]:
    for field, remedy in (
        ("obs", "remove it unless it is meant to be so"),
        ("action", "remove it, as nothing can be learned about its other values"),
        ("reward", "no action is better than another, so check how rewards were logged"),
    ):
        values = getattr(dataset, field).reshape(dataset.size, -1)
        constant = np.flatnonzero(values.min(axis=0) == values.max(axis=0))  # false for columns that hold a NaN
        if constant.size:
            which = "reward" if field == "reward" else f"{field} column {_listed(constant)}"
            message = f"{which} is {values[0, constant[0]]!s} in row 0 and never changes: {remedy}."
            if constant.size > 1:
                message = f"{field} columns {_listed(constant)} have in every row the value of row 0: {remedy}."
            yield Finding("warning", f"constant-{field}", message, row=0)


def _nothing_moves(dataset: Dataset) -> Iterator[Finding]:
    known = slice(None) if dataset.next_known.all() else dataset.next_known
    if dataset.next_known.any() and np.array_equal(dataset.obs[known], dataset.next_obs[known]):
        message = "next_obs equals obs in every row from row 0 on: check that the state after the action was logged."
        yield Finding("warning", "nothing-moves", message, row=0)


def _duplicates(dataset: Dataset) -> Iterator[Finding]:
    key = _row_keys(dataset)
    order = np.argsort(key, kind="stable")  # stable: rows with the same key stay in their order
    repeats = order[1:][key[order[1:]] == key[order[:-1]]]
    if not repeats.size:
        return
    second = int(repeats.min())
    first = int(np.flatnonzero(key == key[second])[0])
    yield Finding(
        "warning",
        "duplicate-rows",
        f"row {second} repeats row {first} in every value (copies in all: {repeats.size}): "
        "remove the copies unless they really occurred more than once.",
        second,
    )


def _row_keys(dataset: Dataset) -> np.ndarray:
    """A 64-bit hash of each transition: sorting these is much faster than sorting rows.

    Two of a million different rows share a hash with a probability of about 3e-8, which is good enough for a warning.
    """
    key = np.zeros(dataset.size, dtype=np.uint64)
    for field in ("obs", "action", "reward", "next_obs", "terminal", "timeout", "next_known"):
        values = getattr(dataset, field).reshape(dataset.size, -1)
        bits = values.view(np.uint32 if values.dtype == np.float32 else np.uint8)
        for column in bits.T:
            key ^= column
            key *= np.uint64(0x9E3779B97F4A7C15)  # odd, so that no bit is lost; overflows at 2**64
            key ^= key >> np.uint64(29)  # bring the well mixed high bits down to where the next column enters
    return key


def _listed(columns: np.ndarray) -> str:
    shown = ", ".join(map(str, columns[:8]))
    return f"{shown} and {len(columns) - 8} more" if len(columns) > 8 else shown
