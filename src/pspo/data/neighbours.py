"""The nearest logged states of every logged state, exactly, in the log's own units.

A k-d tree of SciPy over all rows: nothing is dropped as a duplicate, so a row's number means the same before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree

CHUNK = 20_000  # rows searched at once: 50 neighbours of a million rows are half a gigabyte, and nobody needs them all
APART = 1e-5  # states closer than this count as one
SLACK = 1.0 + 1e-9  # the tree leaves out what lies on its bound, so the bound is a little further out


class Neighbours(NamedTuple):
    """Of some rows, each its own first neighbour; where there are fewer, the row itself at an infinite distance."""

    row: np.ndarray  # (rows, count): their numbers
    distance: np.ndarray  # (rows, count), ascending


class Neighbourhoods(NamedTuple):
    """The neighbours of all rows, one row's after the other's; a row is the first of its own."""

    size: np.ndarray  # (rows,): how many each has, at least one
    row: np.ndarray  # (all of them,): their numbers

    @property
    def others(self) -> float:
        """How many a row has on average, itself not counted."""
        return len(self.row) / len(self.size) - 1.0


def state_tree(obs: np.ndarray) -> KDTree:
    # Cut in the middle, not at the median: the same speed on locomotion logs, and faster where states repeat.
    return KDTree(obs, balanced_tree=False)


def nearest_states(tree: KDTree, rows: np.ndarray, count: int, within: float = np.inf) -> Neighbours:
    """The `count` nearest states, the rows' own included, of these rows; only those at most `within` away."""
    count = min(count, tree.n)
    bound = max(within * SLACK, APART * APART)  # a bound of zero would leave out copies of the state
    distance, index = tree.query(tree.data[rows], count, distance_upper_bound=bound, workers=-1)
    distance, index = distance.reshape(len(rows), count), index.reshape(len(rows), count)
    missing = ~(distance <= within)
    distance = np.where(missing, np.inf, distance)
    return Neighbours(_self_first(np.where(missing, rows[:, None], index), rows), distance)


def _self_first(index: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Copies of a state come in any order, and many of them push the row itself out: it takes the first's place."""
    own = index == rows[:, None]
    place = np.where(own.any(1), own.argmax(1), 0)
    index[np.arange(len(rows)), place] = index[:, 0]
    index[:, 0] = rows
    return index


def mean_spacing(tree: KDTree, count: int, progress: Callable[[int], None] = lambda done: None) -> float:
    """The mean distance from a state to the nearest other one among its `count` nearest; zero if none has any."""
    nearest = []
    for rows in chunks(tree.n):
        # Few rows have copies: the two nearest are most often enough, and take a quarter of the time.
        apart = _nearest_apart(tree, rows, 2)
        copied = np.isinf(apart)
        apart[copied] = _nearest_apart(tree, rows[copied], count)
        nearest.append(apart[np.isfinite(apart)])
        progress(int(rows[-1]) + 1)
    found = np.concatenate(nearest)
    return float(found.mean()) if len(found) else 0.0


def _nearest_apart(tree: KDTree, rows: np.ndarray, count: int) -> np.ndarray:
    distance = nearest_states(tree, rows, count).distance
    return np.where(distance > APART, distance, np.inf).min(1)


def neighbourhoods(
    obs: np.ndarray, count: int, epsilon: float, progress: Callable[[int], None] = lambda done: None
) -> tuple[Neighbourhoods, float]:
    """Of every state at most `count` nearest ones that are at most `epsilon` mean spacings away; and that spacing.

    Two passes over all rows, which `progress` counts.
    """
    tree, size = state_tree(obs), len(obs)
    spacing = mean_spacing(tree, count, progress)
    sizes, found = [], []
    for rows in chunks(size):
        index, distance = nearest_states(tree, rows, count, epsilon * spacing)
        near = np.isfinite(distance)
        sizes.append(near.sum(1))
        found.append(index[near])
        progress(size + int(rows[-1]) + 1)
    return Neighbourhoods(*(np.concatenate(part).astype(np.int32) for part in (sizes, found))), spacing


def chunks(size: int) -> Iterator[np.ndarray]:
    """Row numbers in pieces."""
    for start in range(0, size, CHUNK):
        yield np.arange(start, min(start + CHUNK, size))
