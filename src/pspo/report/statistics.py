"""The statistics of a comparison of algorithms: aggregates over tasks and seeds, intervals, tests.

What to report follows Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical Precipice":
interquartile mean, probability of improvement and performance profiles, with intervals from a bootstrap stratified
by task. "Average" and the paired t-test are what the PSPO paper prints. Tests compare all of it with rliable, the
library of those authors, which needs equally many runs on every task; here tasks may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.stats

from pspo.core.errors import UserError

Scores = Sequence[np.ndarray]
"""One array per task with the scores of its runs, one per seed. Of a matrix (runs, tasks): `list(matrix.T)`."""

Statistic = Callable[[Scores], float]


class MeanAndStd(NamedTuple):
    """Of the runs on one task."""

    mean: float
    std: float | None  # of the sample; None for a single value


class Interval(NamedTuple):
    """The ends of a bootstrap interval."""

    low: float
    high: float


class Improvement(NamedTuple):
    """How probably one method's run beats another's."""

    probability: float
    interval: Interval | None


class Profile(NamedTuple):
    """A performance profile, for a figure."""

    thresholds: np.ndarray
    share: np.ndarray  # of runs above each threshold
    band: np.ndarray | None  # (2, thresholds): lower and upper ends, pointwise


class TTest(NamedTuple):
    """Of a paired t-test."""

    t: float
    p: float  # one-sided: of a t this large or larger if x were no better than y
    degrees_of_freedom: int


def mean_and_std(values: Sequence[float] | np.ndarray) -> MeanAndStd:
    """Mean, and the square root of sum (v - mean)^2 / (n - 1)."""
    known = _finite(values, "the values")
    return MeanAndStd(float(known.mean()), float(known.std(ddof=1)) if len(known) > 1 else None)


def average(scores: Scores) -> float:
    """Mean over tasks of the mean over seeds, as in the row "Average" of the paper's table: each task counts once."""
    return float(_average(_checked(scores)))


def interquartile_mean(scores: Scores) -> float:
    """Mean of what is left of all n runs of all tasks without the floor(n / 4) lowest and highest (Agarwal et al.).

    Each run counts once, so a task with more seeds counts for more.
    """
    return float(_interquartile_mean(_checked(scores)))


def probability_of_improvement(
    x: Scores, y: Scores, confidence: float = 0.95, repetitions: int = 2000, seed: int = 0
) -> Improvement:
    """Mean over tasks of P(X > Y) + P(X = Y) / 2, for a run X of x and a run Y of y (Agarwal et al.).

    On one task that is Mann and Whitney's U / (n m). Both sides are resampled for the interval, which is None where
    either has a single run on any task.
    """
    _check_bootstrap(confidence, repetitions)
    x_tasks, y_tasks = _paired(x, y)
    probability = float(_improvement(x_tasks, y_tasks))
    if not (_has_several_runs(x_tasks) and _has_several_runs(y_tasks)):
        return Improvement(probability, None)
    rng = np.random.default_rng(seed)  # one for both: x and y must not be resampled alike
    values = _improvement(_resample(x_tasks, repetitions, rng), _resample(y_tasks, repetitions, rng))
    return Improvement(probability, Interval(*_percentiles(values, confidence).tolist()))


def performance_profile(
    scores: Scores,
    thresholds: Sequence[float] | np.ndarray,
    confidence: float = 0.95,
    repetitions: int = 2000,
    seed: int = 0,
) -> Profile:
    """Share of runs with a score above each threshold: the score distribution of Agarwal et al.

    The share is taken within each task and then averaged over tasks. The band is pointwise, and None where a task has
    a single run.
    """
    _check_bootstrap(confidence, repetitions)
    tasks, levels = _checked(scores), _finite(thresholds, "the thresholds")
    share = _shares(tasks, levels)
    if not _has_several_runs(tasks):
        return Profile(levels, share, None)
    values = _shares(_resample(tasks, repetitions, np.random.default_rng(seed)), levels)
    return Profile(levels, share, _percentiles(values, confidence))


def paired_t_test(x: Scores, y: Scores) -> TTest:
    """Student's t-test of the differences d of the tasks' means against "x is better": t = mean(d) sqrt(n) / std(d).

    One-sided, with n - 1 degrees of freedom for n tasks.
    """
    x_tasks, y_tasks = _paired(x, y)
    x_means, y_means = (np.array([task.mean() for task in tasks]) for tasks in (x_tasks, y_tasks))
    if len(x_means) < 2:
        raise UserError("a paired t-test over tasks needs two tasks or more, and there is one.")
    rounding = 1e-12 * max(np.abs(x_means).max(), np.abs(y_means).max())
    if np.ptp(x_means - y_means) <= rounding:
        raise UserError(
            "a paired t-test is not defined here: the difference between the two is the same on every task."
        )
    test = scipy.stats.ttest_rel(x_means, y_means, alternative="greater")
    return TTest(float(test.statistic), float(test.pvalue), len(x_means) - 1)


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float | None:
    """Spearman's coefficient; None where it is not defined: too few points, or one side constant."""
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(scipy.stats.spearmanr(x, y)[0])  # pyright: ignore[reportArgumentType]


def bootstrap_interval(
    statistic: Statistic, scores: Scores, confidence: float = 0.95, repetitions: int = 2000, seed: int = 0
) -> Interval | None:
    """Percentile interval of the stratified bootstrap (Efron's, within each task; Agarwal et al.).

    None where a task has a single run, because resampling one value gives no interval.
    """
    _check_bootstrap(confidence, repetitions)
    tasks = _checked(scores)
    if not _has_several_runs(tasks):
        return None
    drawn = _resample(tasks, repetitions, np.random.default_rng(seed))
    if statistic in _ALL_AT_ONCE:
        values = _ALL_AT_ONCE[statistic](drawn)
    else:
        values = np.array([statistic([task[i] for task in drawn]) for i in range(repetitions)])
    return Interval(*_percentiles(values, confidence).tolist())


# From here on runs are the last axis, so that the same code serves the scores and all their resamples at once.


def _average(tasks: Scores) -> np.ndarray:
    return np.stack([task.mean(axis=-1) for task in tasks]).mean(axis=0)


def _interquartile_mean(tasks: Scores) -> np.ndarray:
    return np.asarray(scipy.stats.trim_mean(np.concatenate(tasks, axis=-1), 0.25, axis=-1))


_ALL_AT_ONCE: dict[Statistic, Callable[[Scores], np.ndarray]] = {
    average: _average,
    interquartile_mean: _interquartile_mean,
}


def _improvement(x: Scores, y: Scores) -> np.ndarray:
    """U from the ranks of x among both, where ties share the mean of their ranks: U = sum of ranks - n (n + 1) / 2."""
    shares = []
    for mine, other in zip(x, y, strict=True):
        n, m = mine.shape[-1], other.shape[-1]
        ranks = np.asarray(scipy.stats.rankdata(np.concatenate([mine, other], axis=-1), axis=-1))
        shares.append((ranks[..., :n].sum(axis=-1) - n * (n + 1) / 2) / (n * m))
    return np.stack(shares).mean(axis=0)


def _shares(tasks: Scores, thresholds: np.ndarray) -> np.ndarray:
    return np.stack([_average([task > threshold for task in tasks]) for threshold in thresholds], axis=-1)


def _resample(tasks: Scores, repetitions: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Runs drawn with replacement within each task, independently: (repetitions, runs) for each."""
    return [task[rng.integers(len(task), size=(repetitions, len(task)))] for task in tasks]


def _percentiles(values: np.ndarray, confidence: float) -> np.ndarray:
    """The two ends that leave equal shares of the repetitions (first axis) outside."""
    return np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)


def _check_bootstrap(confidence: float, repetitions: int) -> None:
    if not 0 < confidence < 1:
        raise UserError(f"the confidence of an interval lies between 0 and 1, and is not {confidence}.")
    if repetitions < 1:
        raise UserError(f"a bootstrap needs one repetition or more, not {repetitions}.")


def _has_several_runs(tasks: Scores) -> bool:
    return all(len(task) > 1 for task in tasks)


def _paired(x: Scores, y: Scores) -> tuple[list[np.ndarray], list[np.ndarray]]:
    x_tasks, y_tasks = _checked(x, "the first scores"), _checked(y, "the second scores")
    if len(x_tasks) != len(y_tasks):
        raise UserError(
            f"the first scores have {len(x_tasks)} tasks and the second {len(y_tasks)}: give both the same tasks, in "
            "the same order."
        )
    return x_tasks, y_tasks


def _checked(scores: Scores, whose: str = "the scores") -> list[np.ndarray]:
    """The tasks as arrays of finite numbers; the error names the task that is not."""
    if isinstance(scores, Mapping) or (isinstance(scores, np.ndarray) and scores.ndim > 1):
        raise UserError(
            f"{whose} have to be a list of arrays, one per task: of a matrix (runs, tasks) give list(matrix.T), of a "
            "mapping its values."
        )
    tasks = [_finite(task, f"{whose} of task {i} of {len(scores)}") for i, task in enumerate(scores, start=1)]
    if not tasks:
        raise UserError(f"{whose} hold no task: give at least one.")
    return tasks


def _finite(values: Sequence[float] | np.ndarray, what: str) -> np.ndarray:
    try:
        known = np.asarray(values, float)
    except (TypeError, ValueError):
        raise UserError(f"{what} are not numbers: give one number per run.") from None
    if known.ndim != 1 or not known.size:
        raise UserError(f"{what} have to be a list of at least one number, and have the shape {known.shape}.")
    wrong = np.flatnonzero(~np.isfinite(known))
    if wrong.size:
        raise UserError(
            f"{what} hold {known[wrong[0]]} (value {wrong[0] + 1} of {len(known)}): it cannot be aggregated; "
            "find out why that run has no finite score."
        )
    return known
