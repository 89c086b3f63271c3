"""Find problems of a dataset before training does; every finding says where the problem is and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pspo.core.errors import UserError
from pspo.data.bad_values import bad_values
from pspo.data.check_labels import broken_masks, rare_labels
from pspo.data.dataset import Dataset
from pspo.data.holdout import hold_out
from pspo.data.load import load_dataset
from pspo.data.outliers import row_after, wild_values
from pspo.data.row_keys import row_keys
from pspo.data.row_order import clocks, looks_shuffled, rows_are_independent
from pspo.data.scales import too_small

# Bounds and actions may have been rounded differently on their way to float32; relative to the width of the bounds.
BOUND_SLACK = 1e-6
# Simulators that store states in float64 and next states in float32 differ by this much without being wrong.
# The absolute difference is a fraction of the largest number of the column, where that is below one.
CONTINUITY_RELATIVE, CONTINUITY_ABSOLUTE = 1e-4, 1e-6
SMALL_RANGE = 1e-6  # numbers as small as this are often noise around a constant, or in a wrong unit
FEW_STEPS = 256  # of float32 between the smallest and the largest value of a column
NARROW = 1e-3  # of the width between the bounds of an action
WRITTEN_TWICE = 0.95  # fraction of the rows that occur exactly twice
FEW_ROWS = 20
FEW_EPISODES = 10  # in a hold-out
NEW_STATES = 0.1  # fraction of held-out rows outside the range of the others
TRANSITION = ("obs", "action", "reward", "next_obs", "terminal", "timeout", "next_known")


@dataclass(frozen=True)
class Finding:
    """An error forbids training; a warning should be checked by a person.

    `row` is the first transition with the problem, by its index in the dataset; the message names its row in the file.
    """

    level: Literal["error", "warning"]
    code: str
    message: str
    row: int | None = None


def check(dataset: Dataset) -> list[Finding]:
    """All problems, errors first; an empty list for clean data."""
    return [*_errors(dataset), *_warnings(dataset)]


def check_source(
    source: Any, *, holdout: float | None = None, holdout_by: str | None = None, **options: Any
) -> tuple[Dataset | None, list[Finding]]:
    """Like `check` for whatever `load_dataset` takes; data that cannot be loaded are a finding, not an exception.

    With a `holdout`, the part that is held out is also compared with the rest.
    """
    try:
        dataset = load_dataset(source, **options)
        if dataset.task is not None:  # as training would say
            from pspo.envs.task import get_task  # policies import this module, and need no gymnasium

            get_task(dataset.task).require_fit(f"the dataset '{dataset.name}'", dataset)
        training, held_out, way = hold_out(dataset, holdout, holdout_by)
    except UserError as error:
        return None, [Finding("error", "unreadable", str(error))]
    findings = check(dataset)
    if held_out is not None and way is not None:
        findings.append(Finding("warning", "holdout", way.describe(dataset)))
        findings += _holdout(training, held_out)
        if difference := way.difference(dataset):
            findings.append(Finding("warning", "holdout-returns", difference))
    return dataset, findings


def _holdout(training: Dataset, held_out: Dataset) -> Iterator[Finding]:
    """Whether the part that is held out can say something about policies learned from the rest."""
    episodes = len(held_out.episode_starts)
    if episodes < FEW_EPISODES:
        message = (
            f"only {episodes} episodes are held out, too few for an interval: hold out more, or collect more data."
        )
        yield Finding("warning", "small-holdout", message)
    low, high = training.obs.min(axis=0), training.obs.max(axis=0)
    outside = ((held_out.obs < low) | (held_out.obs > high)).mean(axis=0)
    for column in np.flatnonzero(outside > NEW_STATES)[:1]:
        seen = " to ".join(_raw(training, column, bound[column], 6) for bound in (low, high))
        message = (
            f"{_which(training, 'obs', column)} is outside the training part's range ({seen}) in "
            f"{outside[column]:.0%} of the held-out rows: leave columns out that only rise with time, or hold out by "
            "episode."
        )
        yield Finding("warning", "holdout-differs", message)


def require_trainable(dataset: Dataset) -> None:
    """Refuse data that cannot be trained on. Fast, as it skips the warnings."""
    for finding in _errors(dataset):
        raise UserError(f"dataset '{dataset.name}' cannot be trained on: {finding.message}")


def _errors(dataset: Dataset) -> Iterator[Finding]:
    if dataset.size < 2:
        message = "there is one transition, and one has to be held out: give at least two, or better thousands."
        yield Finding("error", "too-few", message)
    yield from _not_finite(dataset)
    yield from _actions_out_of_bounds(dataset)
    for code, message, row in broken_masks(dataset):
        yield Finding("error", code, message, row)


def _warnings(dataset: Dataset) -> Iterator[Finding]:
    for note in dataset.notes:
        yield Finding("warning", "note", note)
    if dataset.mapped_file is not None:
        message = (
            "the transitions do not fit into memory, so only what forbids training was checked: check a part of them."
        )
        yield Finding("warning", "not-in-memory", message)
        return
    for line in dataset.encoder.describe() if dataset.encoder else ():
        yield Finding("warning", "encoded-obs", f"{line}.")
    yield from _broken_episodes(dataset)
    yield from _missing_ends(dataset)
    if dataset.size > 1:  # a single row is always constant
        yield from _constant_columns(dataset)
        yield from _small_ranges(dataset)
        if dataset.discrete:
            for code, message in rare_labels(dataset):
                yield Finding("warning", code, message)
        else:
            yield from _narrow_actions(dataset)
        yield from _nothing_moves(dataset)
        yield from _duplicates(dataset)
        yield from _outliers(dataset)
        yield from _order(dataset)


def _not_finite(dataset: Dataset) -> Iterator[Finding]:
    for field in ("obs", "action", "reward", "next_obs"):
        values = getattr(dataset, field).reshape(dataset.size, -1)

        def is_bad(rows: slice, values: np.ndarray = values, field: str = field) -> np.ndarray:
            bad = ~np.isfinite(values[rows])
            if field == "next_obs":
                bad[~dataset.next_known[rows]] = False  # a copy of obs, which has its own finding
            return bad

        if (bad := bad_values(values, is_bad)) is None:
            continue
        what = _reward(dataset) if field == "reward" else field
        column = "" if field == "reward" else f", column {dataset.column_name(field, bad.column)}"
        columns = f" in columns {_listed(dataset, field, bad.columns)}" if len(bad.columns) > 1 else ""
        yield Finding(
            "error",
            "not-finite",
            f"{what} is {values[bad.row, bad.column]} at {dataset.row_name(bad.row)}{column}, which is NaN, infinite "
            f"or too large for float32 (values affected: {bad.values}{columns}): repair or remove these rows.",
            bad.row,
        )
    if dataset.last_reward is not None and (infinite := np.isinf(dataset.last_reward)).any():
        row = int(infinite.argmax())
        yield Finding(
            "error",
            "not-finite",
            f"{_reward(dataset)} is {dataset.last_reward[row]} at {row_after(dataset, row)}, which is infinite or too "
            f"large for float32 (values affected: {infinite.sum()}): repair or remove these rows.",
            row,
        )


def _actions_out_of_bounds(dataset: Dataset) -> Iterator[Finding]:
    action, low, high = dataset.action, dataset.action_low, dataset.action_high
    slack = BOUND_SLACK * (high.astype(np.float64) - low)

    def is_bad(rows: slice) -> np.ndarray:
        part = action[rows]
        return ((part < low - slack) | (part > high + slack)) & np.isfinite(part)

    if (bad := bad_values(action, is_bad)) is None:
        return
    name = dataset.column_name("action", bad.column)
    yield Finding(
        "error",
        "action-out-of-bounds",
        f"action is {action[bad.row, bad.column]!s} at {dataset.row_name(bad.row)}, column {name}, outside its bounds "
        f"[{low[bad.column]!s}, {high[bad.column]!s}] (rows affected: {bad.rows}): correct the bounds or clip the "
        "actions.",
        bad.row,
    )


def _broken_episodes(dataset: Dataset) -> Iterator[Finding]:
    inside = np.flatnonzero(~dataset.episode_end)
    arrives, departs = dataset.next_obs[inside], dataset.obs[inside + 1]
    suspect = np.flatnonzero((arrives != departs).any(axis=1))  # most rows agree exactly: compare only the others
    slack = CONTINUITY_ABSOLUTE * np.minimum(np.nan_to_num(np.abs(dataset.obs), nan=1.0).max(axis=0), 1.0)
    close = np.isclose(arrives[suspect], departs[suspect], rtol=CONTINUITY_RELATIVE, atol=slack, equal_nan=True)
    broken = inside[suspect[~close.all(axis=1)]]
    if broken.size:
        row = int(broken[0])
        yield Finding(
            "warning",
            "broken-episode",
            f"next_obs of {dataset.row_name(row)} is not obs of {dataset.row_name(row + 1)} though no episode ends "
            "there "
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
        if field == "action" and dataset.discrete:
            continue  # a label that is never taken has its own finding
        values = getattr(dataset, field).reshape(dataset.size, -1)
        constant = np.flatnonzero(values.min(axis=0) == values.max(axis=0))  # false for columns that hold a NaN
        if constant.size:
            columns = _listed(dataset, field, constant)
            which = _reward(dataset) if field == "reward" else f"{field} column {columns}"
            value = values[0, constant[0]]
            how = " as far as float64 tells" if abs(float(value)) > 2.0**53 else ""  # whole numbers lose digits there
            message = f"{which} is {value!s} in row 0 and never changes{how}: {remedy}."
            if constant.size > 1:
                message = f"{field} columns {columns} have in every row the value of row 0: {remedy}."
            yield Finding("warning", f"constant-{field}", message, row=0)


def _small_ranges(dataset: Dataset) -> Iterator[Finding]:
    """Columns that are nearly constant: in steps of float32, or in absolute numbers."""
    for field in ("obs", "action", "reward"):
        values = getattr(dataset, field).reshape(dataset.size, -1)
        low, high = values.min(axis=0).astype(np.float64), values.max(axis=0).astype(np.float64)
        with np.errstate(invalid="ignore"):  # values that are not finite have their own finding
            width, step = high - low, np.spacing(np.maximum(-low, high).astype(np.float32)).astype(np.float64)
        whole = (values == np.rint(values)).all(axis=0)  # exact in float32
        lost = (width > 0) & too_small(values, width)
        for column in np.flatnonzero(lost)[:1]:
            remedy = "float32 has no such numbers, so this counts as constant: log it in a larger unit"
            yield Finding("warning", f"tiny-{field}", f"{_varies(dataset, field, column, low, high, lost)}: {remedy}.")
        rounded = (width > 0) & (width < FEW_STEPS * step) & ~whole & ~lost
        for column in np.flatnonzero(rounded)[:1]:
            what, steps = _varies(dataset, field, column, low, high, rounded), round(width[column] / step[column])
            message = f"{what}, which is {steps} steps of float32: save it as float64, with all its digits."
            yield Finding("warning", f"rounded-{field}", message)
        small = (width > 0) & (width < SMALL_RANGE) & ~rounded & ~lost
        for column in np.flatnonzero(small)[:1]:
            remedy = "it counts as much as any other column, so remove it if this is noise, or check its unit"
            message = f"{_varies(dataset, field, column, low, high, small)}: {remedy}."
            yield Finding("warning", f"small-{field}", message)


def _varies(dataset: Dataset, field: str, column: int, low: np.ndarray, high: np.ndarray, affected: np.ndarray) -> str:
    which = _which(dataset, field, column)
    more = f" (columns affected: {affected.sum()})" if affected.sum() > 1 else ""
    return f"{which} varies only between {low[column]:.9g} and {high[column]:.9g}{more}"


def _narrow_actions(dataset: Dataset) -> Iterator[Finding]:
    low, high = dataset.action.min(axis=0).astype(np.float64), dataset.action.max(axis=0).astype(np.float64)
    with np.errstate(invalid="ignore"):
        share = (high - low) / (dataset.action_high.astype(np.float64) - dataset.action_low)
    for column in np.flatnonzero((share > 0) & (share < NARROW))[:1]:
        which = _which(dataset, "action", column)
        bounds = f"{dataset.action_low[column]!s} and {dataset.action_high[column]!s}"
        yield Finding(
            "warning",
            "narrow-actions",
            f"{which} varies only between {low[column]:.6g} and {high[column]:.6g}, where its bounds "
            f"are {bounds}: give bounds that are as wide as the actions, or the policy cannot distinguish them.",
        )


def _nothing_moves(dataset: Dataset) -> Iterator[Finding]:
    known = slice(None) if dataset.next_known.all() else dataset.next_known
    if dataset.next_known.any() and np.array_equal(dataset.obs[known], dataset.next_obs[known]):
        message = "next_obs equals obs in every row from row 0 on: check that the state after the action was logged."
        yield Finding("warning", "nothing-moves", message, row=0)


def _duplicates(dataset: Dataset) -> Iterator[Finding]:
    key = row_keys(getattr(dataset, field) for field in TRANSITION)
    order = np.argsort(key, kind="stable")  # stable: rows with the same key stay in their order
    repeats = order[1:][key[order[1:]] == key[order[:-1]]]
    if repeats.size:
        second = int(repeats.min())
        first = int(np.flatnonzero(key == key[second])[0])
        _, counts = np.unique(key, return_counts=True)
        twice = "the data seem to be written twice: " if (counts == 2).mean() > WRITTEN_TWICE else ""
        yield Finding(
            "warning",
            "duplicate-rows",
            f"{twice}{dataset.row_name(second)} repeats {dataset.row_name(first)} in every value (copies in all: "
            f"{repeats.size}): remove the copies unless they really occurred more than once.",
            second,
        )
    yield from _doubled(dataset)


def _doubled(dataset: Dataset) -> Iterator[Finding]:
    """Each row written twice in succession: half of the transitions then lead nowhere."""
    key = row_keys((dataset.obs, dataset.action, dataset.reward))
    repeats = (key[1:] == key[:-1]) & ~dataset.episode_end[:-1]
    if repeats.size < FEW_ROWS or repeats.mean() < 0.4 or (repeats[1:] & repeats[:-1]).mean() > 0.02:
        return
    row = int(repeats.argmax()) + 1
    yield Finding(
        "warning",
        "doubled-rows",
        f"the data seem to be written twice: {dataset.row_name(row)} repeats {dataset.row_name(row - 1)} in obs, "
        f"action and reward, and so does nearly every second row ({repeats.sum()} in all): remove the copies.",
        row,
    )


def _order(dataset: Dataset) -> Iterator[Finding]:
    """Rows that are missing or not in the order of time."""
    for clock in clocks(dataset):
        row, which = int(clock.rows[0]), _which(dataset, "obs", clock.column)
        now, then = (_raw(dataset, clock.column, dataset.obs[r, clock.column], 9) for r in (row, row + 1))
        jump = f"goes from {now} to {then} after {dataset.row_name(row)} (such rows in all: {clock.rows.size})"
        if clock.shuffled:
            what = (
                f"rows are not in the order of time: {which} has the values of a clock with steps of {clock.step:.6g}"
            )
            message = f"{what}, but {jump}: sort the rows by it within episodes, such as with --time."
            yield Finding("warning", "wrong-order", message, row)
        else:
            message = f"rows are missing: {which} rises by {clock.step:.6g} with every row, but {jump}: add the rows."
            yield Finding("warning", "missing-rows", message, row)
    if looks_shuffled(dataset):
        message = (
            "the order of rows within episodes looks random: no column of the next state follows from the row before "
            "it better than in a random order, although rows of one episode are alike: name the time with --time."
        )
        yield Finding("warning", "wrong-order", message)
    if len(dataset.episode_starts) == 1 and rows_are_independent(dataset):
        message = (
            "all rows are one episode, and none depends on the row before it: name the time with --time, or mark every "
            "row as terminal if rows are independent (a contextual bandit)."
        )
        yield Finding("warning", "independent-rows", message)


def _outliers(dataset: Dataset) -> Iterator[Finding]:
    for wild in wild_values(dataset):
        where = row_after(dataset, wild.row) if wild.after else dataset.row_name(wild.row)
        more = f" (such rows in all: {wild.total})" if wild.total > 1 else ""
        yield Finding(
            "warning",
            f"outlier-{wild.field}",
            f"{_which(dataset, wild.field, wild.column)} is {wild.value:.9g} at {where}, where all others are between "
            f"{wild.low:.6g} and {wild.high:.6g}{more}: correct or remove it.",
            wild.row,
        )


def _raw(dataset: Dataset, column: int, value: float, digits: int) -> str:
    """A value of the observation as its file has it: with its offset added again."""
    offset = 0.0 if dataset.encoder is None else float(dataset.encoder.offsets[column])
    return f"{offset + float(value):.12g}" if offset else f"{value:.{digits}g}"


def _which(dataset: Dataset, field: str, column: int) -> str:
    return _reward(dataset) if field == "reward" else f"{field} column {dataset.column_name(field, column)}"


def _reward(dataset: Dataset) -> str:
    """With the name of its column, unless that says nothing more."""
    name = dataset.reward_name
    return "reward" if name.lower() in ("", "reward", "rewards") else f"reward column '{name}'"


def _listed(dataset: Dataset, field: str, columns: np.ndarray) -> str:
    shown = ", ".join(dataset.column_name(field, int(column)) for column in columns[:8])
    return f"{shown} and {len(columns) - 8} more" if len(columns) > 8 else shown
