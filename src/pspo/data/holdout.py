"""A part of a dataset that training never sees, for evaluation: the latest episodes, or random ones."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.data.dataset import Dataset

WAYS = ("time", "episode")
FIXED = ("action_low", "action_high")  # arrays that have no row per transition


@dataclass(frozen=True)
class Holdout:
    """Which part is held out: a `fraction` of the transitions, by "time" (the latest) or by "episode" (at random)."""

    fraction: float
    by: str = "episode"

    def __post_init__(self) -> None:
        if not isinstance(self.fraction, int | float) or not 0 < self.fraction < 1:
            raise UserError(f"the hold-out fraction is {self.fraction}: give a number between 0 and 1.")
        if self.by not in WAYS:
            raise UserError(f"a hold-out by '{self.by}' is not known: give time or episode.")

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return dataclasses.asdict(self)

    def split(self, dataset: Dataset) -> tuple[Dataset, Dataset]:
        """(the rest, the part that is held out), always the same for the same data."""
        return self._by_time(dataset) if self.by == "time" else self._by_episode(dataset)

    def _by_time(self, dataset: Dataset) -> tuple[Dataset, Dataset]:
        """The last episodes, as those are in the order of time; a single long one is cut."""
        wanted = self.fraction * dataset.size
        sizes = dataset.size - dataset.episode_starts[1:]  # of the parts that begin with an episode
        if sizes.size:
            start = int(dataset.episode_starts[1:][np.argmin(np.abs(sizes - wanted))])
            if abs(dataset.size - start - wanted) <= wanted / 2:
                return rows_of(dataset, np.arange(start)), rows_of(dataset, np.arange(start, dataset.size))
        start = dataset.size - round(wanted)
        if not 0 < start < dataset.size:
            raise UserError(f"dataset '{dataset.name}' is too small to hold {self.fraction:g} out: give more rows.")
        return rows_of(dataset, np.arange(start)), rows_of(dataset, np.arange(start, dataset.size))

    def _by_episode(self, dataset: Dataset) -> tuple[Dataset, Dataset]:
        lengths = dataset.episode_lengths()
        if len(lengths) < 2:
            raise UserError(
                f"dataset '{dataset.name}' has one episode, so none can be held out: use --holdout-by time."
            )
        order = np.random.default_rng(0).permutation(len(lengths))
        count = int(np.searchsorted(np.cumsum(lengths[order]), self.fraction * dataset.size)) + 1
        held = np.zeros(len(lengths), bool)
        held[order[: min(count, len(lengths) - 1)]] = True
        rows = np.repeat(held, lengths)
        return rows_of(dataset, np.flatnonzero(~rows)), rows_of(dataset, np.flatnonzero(rows))


def hold_out(
    dataset: Dataset, fraction: float | None, by: str = "episode"
) -> tuple[Dataset, Dataset | None, Holdout | None]:
    """(what to train on, what is held out, how): without a fraction, the whole dataset and nothing."""
    if fraction is None:
        return dataset, None, None
    way = Holdout(fraction, by)
    return *way.split(dataset), way


def rows_of(dataset: Dataset, rows: np.ndarray) -> Dataset:
    """Some transitions, ascending; where the following one is left out, the episode is cut."""
    arrays = {
        field.name: value[rows]
        for field in dataclasses.fields(dataset)
        if isinstance(value := getattr(dataset, field.name), np.ndarray) and field.name not in FIXED
    }
    arrays["timeout"] = arrays["timeout"] | (np.diff(rows, append=-1) != 1) & ~arrays["terminal"]
    arrays["source_rows"] = rows if dataset.source_rows is None else dataset.source_rows[rows]
    return dataclasses.replace(dataset, **arrays)
