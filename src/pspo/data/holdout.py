"""A part of a dataset that training never sees, for evaluation: the latest rows, or random episodes.

By time, whole episodes are held out where they follow each other. Where they overlap, as those of several stores do, a
row of the rest could be later than one that is held out: then all episodes are cut at one time.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.data.dataset import Dataset

WAYS = ("time", "episode")
SAME_START = 0.5  # of the episodes: with more that begin at one number, it may count the steps of an episode
ENOUGH_EPISODES = 10  # in each part, before their returns are compared
APART = 2.6  # standard errors, beyond which chance puts one hold-out in a hundred
FIXED = ("action_low", "action_high", "held_out_rows")  # arrays that have no row per transition


@dataclass(frozen=True)
class Holdout:
    """Which part is held out: a `fraction` of the transitions, by "time" (the latest) or by "episode" (at random).

    `from_time` is the time, a number or an ISO text, at which all episodes are cut; without it, whole episodes are held
    out by time, as in runs of earlier versions. `hold_out` finds it.
    """

    fraction: float
    by: str = "episode"
    from_time: float | str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.fraction, int | float) or not 0 < self.fraction < 1:
            raise UserError(f"the hold-out fraction is {self.fraction}: give a number between 0 and 1.")
        if self.by not in WAYS:
            raise UserError(f"a hold-out by '{self.by}' is not known: give time or episode.")

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}

    def split(self, dataset: Dataset) -> tuple[Dataset, Dataset]:
        """(the rest, the part that is held out), always the same for the same data."""
        held = self._held(dataset)
        if held.all() or not held.any():
            raise UserError(f"dataset '{dataset.name}' is too small to hold {self.fraction:g} out: give more rows.")
        if dataset.mapped_file is not None and np.count_nonzero(held[1:] != held[:-1]) > 1:
            raise UserError(
                f"the transitions of '{dataset.name}' stay in their file, as they do not fit into memory, so only its "
                "last rows can be held out: give --holdout-by time."
            )
        training, held_out = rows_of(dataset, np.flatnonzero(~held)), rows_of(dataset, np.flatnonzero(held))
        return dataclasses.replace(training, held_out_rows=held_out.source_rows), held_out

    def describe(self, dataset: Dataset) -> str:
        """What is held out of a dataset, in one line."""
        held = self._held(dataset)
        size = f"{held.sum():,} of {dataset.size:,} transitions"
        if self.by == "episode":
            episodes = dataset.episode_starts
            return f"held out: {size}, which are {held[episodes].sum():,} of {len(episodes):,} episodes at random."
        since, cut = "", int((held[1:] & ~held[:-1] & ~dataset.episode_end[:-1]).sum())
        if dataset.row_times is not None:
            since = f" (from '{dataset.time_name}' {_shown(dataset.row_times[held].min())} on)"
        cuts = f"; {cut:,} episode{'s are' if cut > 1 else ' is'} cut there" if cut else ""
        return f"held out: the latest {size}{since}{cuts}."

    def difference(self, dataset: Dataset) -> str | None:
        """That held-out episodes return more or less than the others by more than chance, in one sentence.

        Only whole episodes are compared: parts of them return less in any case.
        """
        held, lengths = self._held(dataset), dataset.logged_rewards()[1]
        if (held[1:] != held[:-1])[~dataset.episode_end[:-1]].any():
            return None
        whole, apart = dataset.terminal[dataset.episode_end] | (lengths == lengths.max()), held[dataset.episode_starts]
        returns = dataset.logged_returns()
        those, others = returns[whole & apart], returns[whole & ~apart]
        if min(len(those), len(others)) < ENOUGH_EPISODES:
            return None
        error = float(those.var(ddof=1) / len(those) + others.var(ddof=1) / len(others)) ** 0.5
        distance = abs(those.mean() - others.mean())
        if not distance > APART * error:
            return None
        return (
            f"the episodes that are held out return {those.mean():.4g} on average and the others {others.mean():.4g}, "
            f"which chance hardly explains ({distance / error:.1f} standard errors): they are of another time, or an "
            "unlucky draw, and every estimate on them is shifted alike. Compare it with what they return themselves."
        )

    def _held(self, dataset: Dataset) -> np.ndarray:
        """(n,) bool."""
        if self.by == "episode":
            return _random_episodes(dataset, self.fraction)
        if self.from_time is None:
            return np.arange(dataset.size) >= _latest_episodes(dataset, self.fraction)
        if dataset.row_times is None:
            raise UserError(
                f"'{dataset.name}' is read without the column of the time, at which it was split: restore the columns."
            )
        return dataset.row_times >= _as_time(self.from_time, dataset.row_times)


def hold_out(
    dataset: Dataset, fraction: float | None, by: str | None = None
) -> tuple[Dataset, Dataset | None, Holdout | None]:
    """(what to train on, what is held out, how): without a fraction, the whole dataset and nothing.

    Without `by`, it is by time where the time of the rows is known, else by episode.
    """
    if fraction is None:
        return dataset, None, None
    times = dataset.row_times
    if by is None and times is not None:
        _require_clock(dataset, times)
    way = Holdout(fraction, by or ("episode" if times is None else "time"))
    if way.by == "time" and times is not None and _overlap(times, _latest_episodes(dataset, fraction)):
        way = Holdout(fraction, "time", _threshold(times, fraction))
    return *way.split(dataset), way


def _shown(time: Any) -> str:
    if time.dtype.kind != "M":
        return f"{time:.12g}"
    return str(time.astype("datetime64[us]").item()).removesuffix(" 00:00:00")


def _random_episodes(dataset: Dataset, fraction: float) -> np.ndarray:
    lengths = dataset.episode_lengths()
    if len(lengths) < 2:
        raise UserError(f"dataset '{dataset.name}' has one episode, so none can be held out: use --holdout-by time.")
    order = np.random.default_rng(0).permutation(len(lengths))
    count = int(np.searchsorted(np.cumsum(lengths[order]), fraction * dataset.size)) + 1
    held = np.zeros(len(lengths), bool)
    held[order[: min(count, len(lengths) - 1)]] = True
    return np.repeat(held, lengths)


def _latest_episodes(dataset: Dataset, fraction: float) -> int:
    """The first row of the last episodes, as those are in the order of time; a single long one is cut."""
    wanted = fraction * dataset.size
    sizes = dataset.size - dataset.episode_starts[1:]  # of the parts that begin with an episode
    if sizes.size:
        start = int(dataset.episode_starts[1:][np.argmin(np.abs(sizes - wanted))])
        if abs(dataset.size - start - wanted) <= wanted / 2:
            return start
    return dataset.size - round(wanted)


def _overlap(times: np.ndarray, start: int) -> bool:
    """Whether a row before `start` is later than one after it."""
    return 0 < start < len(times) and bool(times[:start].max() > times[start:].min())


def _threshold(times: np.ndarray, fraction: float) -> float | str:
    """The time from which on about this fraction of the rows are."""
    values = np.unique(times)[1:]  # from the first on, nothing would be left
    later = len(times) - np.searchsorted(np.sort(times), values)
    value = values[np.argmin(np.abs(later - fraction * len(times)))]
    return str(value) if value.dtype.kind == "M" else value.item()


def _as_time(value: float | str, times: np.ndarray) -> Any:
    """A time as JSON holds it, in the type of others."""
    try:
        return (
            np.datetime64(str(value)) if times.dtype.kind == "M" else float(value) if isinstance(value, str) else value
        )
    except ValueError:
        raise UserError(f"the data were split at {value!r}, which is not a time: restore config.json.") from None


def _require_clock(dataset: Dataset, times: np.ndarray) -> None:
    """Numbers that begin again in every episode may be days that all episodes share, or steps since its start."""
    first = times[dataset.episode_starts]
    values, counts = np.unique(first, return_counts=True)
    if times.dtype.kind == "M" or len(first) < 2 or counts.max() < SAME_START * len(first):
        return
    raise UserError(
        f"'{dataset.time_name}' begins at {values[counts.argmax()]:g} in {counts.max()} of {len(first)} episodes, so "
        "it may be a clock or count the steps of an episode: give --holdout-by time to hold out the latest rows of all "
        "episodes, or --holdout-by episode to hold out some episodes."
    )


def rows_of(dataset: Dataset, rows: np.ndarray) -> Dataset:
    """Some transitions, ascending; where the following one is left out, the episode is cut."""
    # Rows in one piece are views: in memory they take none, and in a file they stay there.
    selected = slice(rows[0], rows[-1] + 1) if len(rows) == rows[-1] - rows[0] + 1 else rows
    arrays = {
        field.name: value[selected]
        for field in dataclasses.fields(dataset)
        if isinstance(value := getattr(dataset, field.name), np.ndarray) and field.name not in FIXED
    }
    arrays["timeout"] = arrays["timeout"] | (np.diff(rows, append=-1) != 1) & ~arrays["terminal"]
    arrays["source_rows"] = rows if dataset.source_rows is None else dataset.source_rows[rows]
    return dataclasses.replace(dataset, **arrays)
