"""Windows of a dataset: k consecutive transitions of one episode, identified by the index of the last."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pspo.data.dataset import Dataset


class Windows(NamedTuple):
    """Last transitions of windows, those with the longest past first: the first `counts[k - 1]` end one of length k."""

    ends: np.ndarray  # (n,) int32
    counts: np.ndarray  # (lags,) int32, none of them zero

    @property
    def lags(self) -> int:
        return len(self.counts)


def lengths_to(dataset: Dataset, cut: np.ndarray | None = None) -> np.ndarray:
    """(n,): transitions from the episode's start to each one, inclusive; the count restarts after those in `cut`."""
    index = np.arange(dataset.size)
    begins = np.zeros(dataset.size, bool)
    begins[dataset.episode_starts] = True
    if cut is not None:
        begins[1:] |= np.isin(index[:-1], cut)
    return index - np.maximum.accumulate(np.where(begins, index, 0)) + 1


def make_windows(ends: np.ndarray, length: np.ndarray, most: int) -> Windows:
    """Windows of length 1 to `most` that end at `ends`; `length` is the longest possible at every transition."""
    reach = np.minimum(length[ends], most)
    counts = (reach[:, None] >= np.arange(1, reach.max() + 1)).sum(0)
    return Windows(ends[np.argsort(-reach, kind="stable")].astype(np.int32), counts.astype(np.int32))


def split_windows(dataset: Dataset, held: float, most: int, seed: int) -> tuple[Windows, Windows]:
    """To train on and to hold out: no training window contains the last transition of a held-out one."""
    train, holdout = dataset.split(held, seed)
    return (
        make_windows(train, lengths_to(dataset, holdout), most),
        make_windows(holdout, lengths_to(dataset), most),
    )
