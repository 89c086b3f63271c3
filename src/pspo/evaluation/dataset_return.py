"""What the dataset's own episodes return, in the quantity that is evaluated: one number for `pspo ope`, the verdict on
a run and its result.

Each step is averaged over the episodes that show it: those that reach it, and those that ended in a terminal state
before, with reward zero. An episode that was cut contributes nothing to later steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from pspo.data.batches import CUT_OFF
from pspo.data.dataset import Dataset
from pspo.evaluation.ope.return_estimate import t_quantile
from pspo.evaluation.problem import EvaluatedReturn

CONFIDENCE = 0.9
RESAMPLES = 400  # of the episodes: their standard deviation is then known to 4 %
AT_ONCE = 2_000_000  # numbers in memory at a time


class MeanReturn(NamedTuple):
    """A mean return with the ends of its interval."""

    value: float
    low: float
    high: float


def dataset_return(dataset: Dataset, evaluated: EvaluatedReturn, confidence: float = CONFIDENCE) -> MeanReturn:
    """NaN where the dataset shows too few steps.

    The interval is Student's t with the standard error of a bootstrap over episodes: percentiles of resamples are too
    narrow where there are few. One episode gives no interval.
    """
    if evaluated.bounded and weight_not_shown(dataset, evaluated) > CUT_OFF:
        return MeanReturn(*[float("nan")] * 3)
    steps, half = _steps(dataset, evaluated), float("inf")
    episodes = len(dataset.episode_starts)
    value = float(steps.mean_returns(np.ones((1, episodes)))[0])
    if episodes > 1:
        at_once = max(1, AT_ONCE // max(episodes, int(dataset.logged_rewards()[1].max())))
        error = _resampled(steps, episodes, at_once).std() * (episodes / (episodes - 1)) ** 0.5
        half = t_quantile(confidence, episodes - 1) * float(error)
    return MeanReturn(value, value - half, value + half)


def whole_episodes(dataset: Dataset) -> EvaluatedReturn:
    """The plain sum of rewards over an episode, as a simulator returns it."""
    return EvaluatedReturn(1.0, int(dataset.logged_rewards()[1].max()), True)


def weight_not_shown(dataset: Dataset, evaluated: EvaluatedReturn) -> float:
    """The weight of the steps after the dataset's longest episode; if the return is bounded, as a share of all."""
    longest = dataset.logged_rewards()[1].max()
    truncated = ~dataset.terminal[dataset.episode_end]
    if not evaluated.bounded:
        return float(truncated.mean() * evaluated.gamma**longest)
    weight = evaluated.gamma ** np.arange(evaluated.horizon)
    return float(truncated.mean() * weight[longest:].sum() / weight.sum())


class _Steps(NamedTuple):
    """Sparse, because one long episode among many short ones would make a large table."""

    gain: csr_array  # (episodes, steps): discounted rewards
    until: csr_array  # (episodes, steps + 1): 1 at the first step that the episode does not show

    def mean_returns(self, counts: np.ndarray) -> np.ndarray:
        """(draws,): sum_t sum_e c_e gain_et / sum_e c_e, over the episodes that show step t, for counts (draws,
        episodes). A step that none of them shows adds nothing."""
        shown = np.cumsum((counts @ self.until)[:, ::-1], axis=1)[:, -2::-1]
        return ((counts @ self.gain) / np.maximum(shown, 1.0)).sum(axis=1)


def _steps(dataset: Dataset, evaluated: EvaluatedReturn) -> _Steps:
    reward, lengths = dataset.logged_rewards()
    most = int(min(lengths.max(), evaluated.horizon) if evaluated.bounded else lengths.max())
    age = np.arange(len(reward)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    counted, lengths = age < most, np.minimum(lengths, most)
    reward, age = reward[counted], age[counted]
    ends, episodes = np.concatenate(([0], np.cumsum(lengths))), len(lengths)
    last = np.where(dataset.terminal[dataset.episode_end], most, lengths)
    return _Steps(
        csr_array((evaluated.gamma**age * reward, age, ends), shape=(episodes, most)),
        csr_array((np.ones(episodes), last, np.arange(episodes + 1)), shape=(episodes, most + 1)),
    )


def _resampled(steps: _Steps, episodes: int, at_once: int) -> np.ndarray:
    """(RESAMPLES,) mean returns."""
    rng, drawn = np.random.default_rng(0), []
    while len(drawn) < RESAMPLES:
        size = min(at_once, RESAMPLES - len(drawn))
        counts = np.stack([np.bincount(rng.integers(episodes, size=episodes), minlength=episodes) for _ in range(size)])
        drawn += steps.mean_returns(counts.astype(float)).tolist()
    return np.array(drawn)
