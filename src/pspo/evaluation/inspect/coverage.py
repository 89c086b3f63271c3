"""How well the dataset covers a state: column by column, and by the distance to its nearest neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree

from pspo.data.dataset import Dataset
from pspo.data.neighbours import state_tree
from pspo.data.normalise import Normaliser

COMPARED = 2000  # states of the dataset that a number is compared with
SEARCHED = 100_000  # states of the dataset among which neighbours are searched
NEIGHBOURS = 10
SHOWN_NEIGHBOURS = 50
SAME = 1e-9  # in standard deviations: closer states count as the same


class CoverageColumn(NamedTuple):
    name: str
    value: float
    percentile: float  # 0 to 100: share of values below it; equal ones count half
    low: float  # of the dataset
    high: float

    @property
    def outside(self) -> bool:
        return not self.low <= self.value <= self.high

    @property
    def digits(self) -> int:
        """Significant digits that show a thousandth of the range: more than four where the numbers are large."""
        largest, width = max(abs(self.low), abs(self.high)), self.high - self.low
        return max(4, 3 + math.ceil(math.log10(largest / width))) if 0.0 < width < math.inf else 4


class StateCoverage(NamedTuple):
    """Distances are between standardised states: one is a standard deviation of one column."""

    columns: list[CoverageColumn]
    distance: float  # to the NEIGHBOURS-th nearest state of the dataset
    median_distance: float  # over states of the dataset
    distance_percentile: float  # among states of the dataset, 0 to 100
    neighbours: int
    """States of the dataset within the median distance; a typical one has NEIGHBOURS."""
    searched: int  # states among which these were counted
    nearest_rows: list[int]


def percentile(value: float, of: np.ndarray) -> float:
    """0 to 100: the share of `of` below the value, equal ones counted half. NaN stays NaN."""
    if not np.isfinite(value) or not len(of):
        return float("nan")
    return float(100.0 * ((of < value).mean() + 0.5 * (of == value).mean()))


def compared_transitions(data: Dataset) -> np.ndarray:
    """The transitions that numbers are compared with, the same for every inspection."""
    return np.sort(np.random.default_rng(0).permutation(data.size)[:COMPARED])


def coverage_of(data: Dataset, norm: Normaliser, names: Sequence[str], obs: np.ndarray) -> StateCoverage:
    columns = [
        CoverageColumn(name, float(x), percentile(float(x), c), float(c.min()), float(c.max()))
        for name, x, c in zip(names, obs, data.obs.T, strict=True)
    ]
    searched = np.sort(np.random.default_rng(1).permutation(data.size)[:SEARCHED])
    known = _standardised(norm, data.obs[searched])
    tree, count = state_tree(known), min(NEIGHBOURS, len(known) - 1)
    some = known[np.random.default_rng(2).permutation(len(known))[:COMPARED]]
    own = _standardised(norm, obs[None])
    usual = _distances(tree, some, count)
    distance, radius = float(_distances(tree, own, count)[0]), float(np.median(usual))
    neighbours = int(tree.query_ball_point(own[0], radius, return_length=True))
    nearest = np.atleast_1d(tree.query(own[0], min(SHOWN_NEIGHBOURS, len(known)))[1])
    return StateCoverage(
        columns=columns,
        distance=distance,
        median_distance=radius,
        distance_percentile=percentile(distance, usual),
        neighbours=neighbours - _copies(tree, own),
        searched=len(known),
        nearest_rows=searched[nearest].tolist(),
    )


def _standardised(norm: Normaliser, obs: np.ndarray) -> np.ndarray:
    return (obs.astype(np.float64) - norm.obs_mean) / norm.obs_std


def _copies(tree: KDTree, point: np.ndarray) -> int:
    """1 if the state itself is in the dataset: a state is not its own neighbour."""
    return int(tree.query(point)[0][0] <= SAME)


def _distances(tree: KDTree, points: np.ndarray, count: int) -> np.ndarray:
    """To the `count`-th nearest state of the dataset, the state itself excluded once."""
    distances = np.asarray(tree.query(points, count + 1)[0]).reshape(len(points), count + 1)
    return np.where(distances[:, 0] <= SAME, distances[:, count], distances[:, max(count - 1, 0)])
