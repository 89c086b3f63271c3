"""Where a state lies in the log: column by column, and by how far its nearest logged states are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree

from pspo.data.dataset import Dataset
from pspo.data.neighbours import state_tree
from pspo.data.normalise import Normaliser

COMPARED = 2000  # logged states that a number is compared with, so that "large" means something
SEARCHED = 100_000  # logged states among which neighbours are searched
NEIGHBOURS = 10
SHOWN_NEIGHBOURS = 50
SAME = 1e-9  # a logged state that close, in spreads, is the very state


class Column(NamedTuple):
    name: str
    value: float
    percentile: float  # of logged values below it, 0 to 100; equal ones count half
    low: float  # the log's
    high: float

    @property
    def outside(self) -> bool:
        return not self.low <= self.value <= self.high


class Place(NamedTuple):
    """Distances are between standardised states: one is a standard deviation of one column."""

    columns: list[Column]
    distance: float  # to the NEIGHBOURS-th nearest logged state
    usual_distance: float  # the median of logged states
    distance_percentile: float  # among logged states, 0 to 100
    near: int
    """Logged states within the usual distance; a typical logged state has NEIGHBOURS."""
    searched: int  # logged states among which these were counted
    nearest_rows: list[int]


def percentile(value: float, of: np.ndarray) -> float:
    """0 to 100: the share of `of` below the value, equal ones counted half. NaN stays NaN."""
    if not np.isfinite(value) or not len(of):
        return float("nan")
    return float(100.0 * ((of < value).mean() + 0.5 * (of == value).mean()))


def compared_rows(data: Dataset) -> np.ndarray:
    """The logged rows that numbers are compared with, the same for every question."""
    return np.sort(np.random.default_rng(0).permutation(data.size)[:COMPARED])


def place_in(data: Dataset, norm: Normaliser, names: Sequence[str], obs: np.ndarray) -> Place:
    columns = [
        Column(name, float(x), percentile(float(x), c), float(c.min()), float(c.max()))
        for name, x, c in zip(names, obs, data.obs.T, strict=True)
    ]
    searched = np.sort(np.random.default_rng(1).permutation(data.size)[:SEARCHED])
    known = _standardised(norm, data.obs[searched])
    tree, count = state_tree(known), min(NEIGHBOURS, len(known) - 1)
    some = known[np.random.default_rng(2).permutation(len(known))[:COMPARED]]
    own = _standardised(norm, obs[None])
    usual = _distances(tree, some, count)
    distance, radius = float(_distances(tree, own, count)[0]), float(np.median(usual))
    near = int(tree.query_ball_point(own[0], radius, return_length=True))
    nearest = np.atleast_1d(tree.query(own[0], min(SHOWN_NEIGHBOURS, len(known)))[1])
    return Place(
        columns=columns,
        distance=distance,
        usual_distance=radius,
        distance_percentile=percentile(distance, usual),
        near=near - _copies(tree, own),
        searched=len(known),
        nearest_rows=searched[nearest].tolist(),
    )


def _standardised(norm: Normaliser, obs: np.ndarray) -> np.ndarray:
    return (obs.astype(np.float64) - norm.obs_mean) / norm.obs_std


def _copies(tree: KDTree, point: np.ndarray) -> int:
    """1 where the state itself is logged: one copy is no neighbour, as a logged row is none of its own."""
    return int(tree.query(point)[0][0] <= SAME)


def _distances(tree: KDTree, points: np.ndarray, count: int) -> np.ndarray:
    """To the `count`-th nearest logged state, the state itself left out once where it is logged."""
    found = np.asarray(tree.query(points, count + 1)[0]).reshape(len(points), count + 1)
    return np.where(found[:, 0] <= SAME, found[:, count], found[:, max(count - 1, 0)])
