"""Single values far away from all others, such as one order of 6000 among 0 to 60."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pspo.data.dataset import Dataset

# Distances from the median, largest first: the first k are outliers if the k-th is this many times the next one. Of
# tails as heavy as Student's t with three degrees of freedom, one column in a thousand has such a jump; of lighter
# ones practically none.
JUMP = 10.0
MOST_ROWS, MOST_FRACTION = 3, 1e-4  # more values than this are no exception
FEWEST_VALUES = 10  # different ones: columns of few values are codes, whose rare ones may be anything
ENOUGH_ROWS = 50


class Outliers(NamedTuple):
    rows: np.ndarray  # the farthest first
    median: float
    low: float  # of all other rows
    high: float


def outliers(values: np.ndarray) -> Outliers | None:
    """Of a column of finite numbers; None if there are none."""
    if len(values) < ENOUGH_ROWS:
        return None
    values = values.astype(np.float64)
    median = float(np.median(values))
    distance = np.abs(values - median)
    most = max(MOST_ROWS, int(MOST_FRACTION * len(values)))
    farthest = np.argpartition(distance, -(most + 1))[-(most + 1) :]
    farthest = farthest[np.argsort(-distance[farthest], kind="stable")]
    near = distance[farthest]
    jumps = np.flatnonzero(near[:-1] > JUMP * near[1:])
    if not jumps.size:
        return None
    rows = farthest[: int(jumps[-1]) + 1]
    rest = np.delete(values, rows)
    if len(np.unique(rest[:10_000])) < FEWEST_VALUES:
        return None
    return Outliers(rows, median, float(rest.min()), float(rest.max()))


class WildValue(NamedTuple):
    """The farthest outlier of an action column or of the rewards."""

    field: str
    column: int
    value: float
    row: int
    after: bool  # not that row itself but the one after it, which is no transition: the last of a cut episode
    low: float  # of all others
    high: float
    total: int  # how many outliers there are


def wild_values(dataset: Dataset) -> Iterator[WildValue]:
    """Rewards of terminal rows are compared among themselves. Those of last rows without a next state count too, as
    they are part of the returns of their episodes."""
    for column in range(dataset.action.shape[1]):
        yield from _farthest("action", column, dataset.action[:, column], np.arange(dataset.size))
    ends, rest = np.flatnonzero(dataset.terminal), np.flatnonzero(~dataset.terminal)
    yield from _farthest("reward", 0, dataset.reward[ends], ends)
    values, rows, transitions = dataset.reward[rest], rest, len(rest)
    if dataset.last_reward is not None:
        last = np.flatnonzero(~np.isnan(dataset.last_reward))
        values, rows = np.append(values, dataset.last_reward[last]), np.append(rows, last)
    yield from _farthest("reward", 0, values, rows, transitions)


def _farthest(
    field: str, column: int, values: np.ndarray, rows: np.ndarray, transitions: int | None = None
) -> Iterator[WildValue]:
    """`values` from number `transitions` on belong to the row after theirs."""
    finite = np.flatnonzero(np.isfinite(values))
    wild = outliers(values[finite])
    if wild is not None:
        index = int(finite[wild.rows[0]])
        after = transitions is not None and index >= transitions
        yield WildValue(
            field, column, float(values[index]), int(rows[index]), after, wild.low, wild.high, len(wild.rows)
        )


def row_after(dataset: Dataset, row: int) -> str:
    """A last row without a next state: it is no transition, but its reward counts in the return of its episode."""
    return f"the row after {dataset.row_name(row)}, the last of its episode"
