"""Importance sampling: the log's own episodes, weighed by how likely the policy would have acted as they did.

    rho_t = prod_{k<=t} pi(a_k | s_k) / b(a_k | s_k),     weights are divided by their mean over episodes at each t

Per-decision and weighted (Precup et al., 2000): consistent, and of bounded weights. Doubly robust (Jiang and Li, 2016;
weighted by Thomas and Brunskill, 2016): the same on what the fitted critics leave unexplained,

    V(s_0) + sum_t gamma^t rho_t (r_t + gamma V(s_{t+1}) - Q(s_t, a_t)).

An episode that ended goes on without rewards, with its last weight. One that was cut says nothing of later steps: those
are averages over the others. A policy without noise has no density: these judge the policy with its noise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pspo.data.batches import CUT_OFF
from pspo.evaluation.ope.estimates import Estimate, effective
from pspo.evaluation.ope.fitted_q import FittedQ, log_values
from pspo.evaluation.ope.subject import Subject

REPETITIONS = 2000  # of the bootstrap over episodes
AT_ONCE = 2_000_000  # counts of episodes held at a time


class Weights(NamedTuple):
    """(episodes, longest) rho_t. Only ratios between episodes count, so that each step's largest may be one."""

    rho: np.ndarray
    known: np.ndarray  # 1 where the log says what happened, else 0, and then there is no weight
    log_mean: np.ndarray  # (longest,): of the weights before they were divided; about 0 where all goes well


def by_step(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """(episodes, longest): rows laid out by episode and step, zero after an episode's last row."""
    table = np.zeros((len(lengths), lengths.max()))
    episode = np.repeat(np.arange(len(lengths)), lengths)
    table[episode, np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)] = values
    return table


def cumulative_weights(log_ratio: np.ndarray, lengths: np.ndarray, cut: np.ndarray) -> Weights:
    """`cut` (episodes,): the log stops before the episode does."""
    total = np.cumsum(by_step(log_ratio, lengths), axis=1)
    known = ~cut[:, None] | (np.arange(total.shape[1]) < lengths[:, None])
    total = np.where(known, total, -np.inf)
    largest = total.max(axis=0)
    rho = np.exp(total - np.where(np.isneginf(largest), 0.0, largest))  # no weight at all stays none
    with np.errstate(divide="ignore"):
        return Weights(rho, known.astype(float), largest + np.log(rho.sum(axis=0) / known.sum(axis=0)))


def by_importance(subject: Subject, log_ratio: np.ndarray, confidence: float, seed: int = 0) -> Estimate:
    """Weighted per-decision importance sampling."""
    lengths = subject.data.episode_lengths()
    weights = cumulative_weights(log_ratio, lengths, subject.cut)
    gain = by_step(subject.data.reward.astype(np.float64), lengths) * _discount(subject, lengths)
    interval = _interval(weights, gain, np.zeros(len(lengths)), confidence, seed)
    rest = float(subject.cut.mean() * subject.gamma ** lengths.max())  # what no episode of the log tells
    return Estimate(
        "importance sampling", *interval, "sampled", _numbers(subject, weights) | {"weight_of_the_rest": rest}
    )


def by_doubly_robust(
    subject: Subject, log_ratio: np.ndarray, fitted: FittedQ, confidence: float, seed: int = 0
) -> Estimate:
    """Weighted doubly robust; `fitted` are critics of the policy with its noise."""
    lengths = subject.data.episode_lengths()
    weights = cumulative_weights(log_ratio, lengths, subject.cut)
    values = log_values(subject, fitted, sampled=True, seed=seed)
    surprise = subject.data.reward + subject.gamma * values.ahead - values.q
    base = values.here[subject.data.episode_starts]
    interval = _interval(weights, by_step(surprise, lengths) * _discount(subject, lengths), base, confidence, seed)
    numbers = _numbers(subject, weights) | {"critics_alone": float(base.mean())}
    return Estimate("doubly robust", *interval, "sampled", numbers)


def mean_logged_return(subject: Subject) -> float:
    """What the log's own behaviour earned: the same average with equal weights."""
    lengths = subject.data.episode_lengths()
    weights = cumulative_weights(np.zeros(subject.data.size), lengths, subject.cut)
    gain = by_step(subject.data.reward.astype(np.float64), lengths) * _discount(subject, lengths)
    return float(weighted_sums(weights, gain, np.zeros(len(lengths)), np.ones((1, len(lengths))))[0])


def _discount(subject: Subject, lengths: np.ndarray) -> np.ndarray:
    return subject.gamma ** np.arange(lengths.max())


def _numbers(subject: Subject, weights: Weights) -> dict[str, float]:
    """The worst of the steps that count: later ones are discounted away."""
    counts = int((subject.gamma ** np.arange(weights.rho.shape[1]) >= CUT_OFF).sum())
    numbers = [effective(weights.rho[:, t]) for t in range(counts)]
    return {
        "effective_episodes": float(np.min(numbers)),
        "episodes": float(len(weights.rho)),
        "mean_weight": float(np.exp(np.minimum(weights.log_mean[counts - 1], 700.0))),
    }


def weighted_sums(weights: Weights, gain: np.ndarray, base: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(draws,): mean(base) + sum_t sum_e c_e rho_et gain_et / sum_e c_e rho_et, for counts (draws, episodes).

    A step that none of the counted episodes tells of adds nothing; one whose weights are all zero is NaN, which the
    caller has to say.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        steps = (counts @ (weights.rho * gain)) / (counts @ weights.rho)
    told = counts @ weights.known > 0.0
    return counts @ base / counts.sum(1) + np.where(told, steps, 0.0).sum(1)


def _interval(
    weights: Weights, gain: np.ndarray, base: np.ndarray, confidence: float, seed: int
) -> tuple[float, float, float]:
    """Value, low, high: percentiles over resampled episodes. No interval where a resample leaves no weight."""
    rng, n = np.random.default_rng(seed), len(base)
    value = float(weighted_sums(weights, gain, base, np.ones((1, n)))[0])
    drawn = []
    while len(drawn) < REPETITIONS:
        size = min(max(1, AT_ONCE // n), REPETITIONS - len(drawn))
        counts = np.stack([np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(size)]).astype(float)
        drawn += weighted_sums(weights, gain, base, counts).tolist()
    if not np.isfinite(drawn).all():
        return value, float("-inf"), float("inf")
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(drawn, [tail, 100.0 - tail])
    return value, float(low), float(high)
