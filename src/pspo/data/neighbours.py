"""The nearest states of every state of a dataset, exactly, in raw units.

A k-d tree of SciPy over all states. Duplicates are kept, so that indices are those of the dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree

CHUNK = 20_000  # states searched at once: 50 neighbours of a million states would take half a gigabyte
APART = 1e-5  # states closer than this count as one,
ROUNDED = 2.0**-17  # or than this fraction of the largest number, where all numbers are small
SLACK = 1.0 + 1e-9  # the tree excludes its distance bound, so the bound is slightly larger


class Neighbours(NamedTuple):
    """Each state is its own first neighbour; missing ones are the state itself at an infinite distance."""

    row: np.ndarray  # (rows, count): their indices
    distance: np.ndarray  # (rows, count), ascending


class Neighbourhoods(NamedTuple):
    """The neighbours of all states, concatenated; each state is its own first neighbour."""

    size: np.ndarray  # (rows,): number of neighbours, at least one
    row: np.ndarray  # (sum of sizes,): their indices

    @property
    def others(self) -> float:
        """Mean number of neighbours, not counting the state itself."""
        return len(self.row) / len(self.size) - 1.0


def state_tree(obs: np.ndarray) -> KDTree:
    # Cut in the middle, not at the median: the same speed on locomotion data, and faster where states repeat.
    return KDTree(obs, balanced_tree=False)


def nearest_states(tree: KDTree, rows: np.ndarray, count: int, within: float = np.inf) -> Neighbours:
    """The `count` nearest states of these states, themselves included; only those at most `within` away."""
    count = min(count, tree.n)
    bound = max(within * SLACK, APART * APART)  # a bound of zero would leave out copies of the state
    distance, index = tree.query(tree.data[rows], count, distance_upper_bound=bound, workers=-1)
    distance, index = distance.reshape(len(rows), count), index.reshape(len(rows), count)
    missing = ~(distance <= within)
    distance = np.where(missing, np.inf, distance)
    return Neighbours(_self_first(np.where(missing, rows[:, None], index), rows), distance)


def _self_first(index: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Put each state first: its copies come in any order, and many of them can push the state itself out."""
    own = index == rows[:, None]
    column = np.where(own.any(1), own.argmax(1), 0)
    index[np.arange(len(rows)), column] = index[:, 0]
    index[:, 0] = rows
    return index


def mean_spacing(tree: KDTree, count: int, progress: Callable[[int], None] = lambda done: None) -> float:
    """The mean distance from a state to the nearest other one among its `count` nearest; zero if none has any."""
    nearest = []
    for rows in chunks(tree.n):
        # Few states have copies: the two nearest are usually enough, and take a quarter of the time.
        apart = _nearest_apart(tree, rows, 2)
        copied = np.isinf(apart)
        apart[copied] = _nearest_apart(tree, rows[copied], count)
        nearest.append(apart[np.isfinite(apart)])
        progress(int(rows[-1]) + 1)
    distances = np.concatenate(nearest)
    return float(distances.mean()) if len(distances) else 0.0


def _nearest_apart(tree: KDTree, rows: np.ndarray, count: int) -> np.ndarray:
    distance = nearest_states(tree, rows, count).distance
    apart = min(APART, ROUNDED * float(np.maximum(-tree.mins, tree.maxes).max()))
    return np.where(distance > apart, distance, np.inf).min(1)


def neighbourhoods(
    obs: np.ndarray, count: int, epsilon: float, progress: Callable[[int], None] = lambda done: None
) -> tuple[Neighbourhoods, float]:
    """For every state at most `count` nearest ones within `epsilon` mean spacings; and the mean spacing.

    Makes two passes over all states, which `progress` counts.
    """
    tree, size = state_tree(obs), len(obs)
    spacing = mean_spacing(tree, count, progress)
    sizes, indices = [], []
    for rows in chunks(size):
        index, distance = nearest_states(tree, rows, count, epsilon * spacing)
        near = np.isfinite(distance)
        sizes.append(near.sum(1))
        indices.append(index[near])
        progress(size + int(rows[-1]) + 1)
    return Neighbourhoods(*(np.concatenate(part).astype(np.int32) for part in (sizes, indices))), spacing


def chunks(size: int) -> Iterator[np.ndarray]:
    """Indices in pieces."""
    for start in range(0, size, CHUNK):
        yield np.arange(start, min(start + CHUNK, size))
