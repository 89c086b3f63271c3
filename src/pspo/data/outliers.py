"""Single values far away from all others, such as one order of 6000 among 0 to 60."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

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
