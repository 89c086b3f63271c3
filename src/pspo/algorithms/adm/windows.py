"""Windows of a log: k rows that follow each other in one episode, named by the last of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pspo.data.dataset import Dataset


class Windows(NamedTuple):
    """Rows that end windows, those with the longest past first: the first `counts[k - 1]` of them end one of k rows."""

    ends: np.ndarray  # (n,) int32
    counts: np.ndarray  # (lags,) int32, none of them zero: longer windows do not exist

    @property
    def lags(self) -> int:
        return len(self.counts)


def lengths_to(dataset: Dataset, cut: np.ndarray | None = None) -> np.ndarray:
    """(n,): rows from an episode's start to each row, itself included; after a row of `cut` they count anew."""
    row = np.arange(dataset.size)
    begins = np.zeros(dataset.size, bool)
    begins[dataset.episode_starts] = True
    if cut is not None:
        begins[1:] |= np.isin(row[:-1], cut)
    return row - np.maximum.accumulate(np.where(begins, row, 0)) + 1


def make_windows(ends: np.ndarray, length: np.ndarray, most: int) -> Windows:
    """Windows of 1 to `most` rows that end at `ends`; `length` says for every row of the log how long they can be."""
    reach = np.minimum(length[ends], most)
    counts = (reach[:, None] >= np.arange(1, reach.max() + 1)).sum(0)
    return Windows(ends[np.argsort(-reach, kind="stable")].astype(np.int32), counts.astype(np.int32))


def split_windows(dataset: Dataset, held: float, most: int, seed: int) -> tuple[Windows, Windows]:
    """To train on and to hold out: no window of the first kind contains a row that ends one of the second."""
    train, holdout = dataset.split(held, seed)
    return (
        make_windows(train, lengths_to(dataset, holdout), most),
        make_windows(holdout, lengths_to(dataset), most),
    )
