"""Importance sampling: the dataset's episodes, weighted by how likely the policy would have acted in the same way.

    rho_t = prod_{k<=t} pi(a_k | s_k) / b(a_k | s_k),     weights are divided by their mean over episodes at each t
    J = sum_{t<H} gamma^t sum_e rho_et r_et / sum_e rho_et

Per-decision and weighted (Precup et al., 2000): consistent, with bounded weights. An episode that ended at a terminal
state continues with reward zero and its last weight. A truncated episode contributes nothing to later steps, which are
averages over the others. The last row of a cut episode that has no next state counts with the weight of the step
before: its action is not kept. A deterministic policy has no density: it is the stochastic policy that is evaluated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pspo.data.batches import CUT_OFF
from pspo.evaluation.dataset_return import weight_not_shown
from pspo.evaluation.density import fraction_at_bounds
from pspo.evaluation.ope.estimate_warnings import LONG_HORIZON
from pspo.evaluation.ope.estimator import EstimatorInputs
from pspo.evaluation.ope.return_estimate import SAMPLED, ReturnEstimate, effective_size
from pspo.evaluation.problem import EvaluationProblem

BOOTSTRAP_SAMPLES = 2000  # resamples of the episodes
AT_ONCE = 2_000_000  # episode counts in memory at a time


def estimate(inputs: EstimatorInputs) -> ReturnEstimate:
    return with_behaviour(inputs, estimate_by_weights(inputs.problem, inputs.log_ratios, inputs.confidence))


def warnings(problem: EvaluationProblem) -> list[str]:
    if problem.horizon <= LONG_HORIZON:
        return []
    return [f"the variance of products of ratios over {problem.horizon} steps is unbounded."]


def with_behaviour(inputs: EstimatorInputs, result: ReturnEstimate) -> ReturnEstimate:
    """Adds what is known of the densities behind the weights."""
    fitted = ["the behaviour density is itself an estimate, and the interval does not include its error."]
    numbers = result.numbers | {"fraction_at_bounds": fraction_at_bounds(inputs.problem)}
    return replace(result, numbers=numbers, warnings=[] if inputs.behaviour_is_known else fitted)


class Weights(NamedTuple):
    """(episodes, longest) rho_t. Only ratios between episodes matter, so each step's largest weight may be one."""

    rho: np.ndarray
    known: np.ndarray  # 1 where the dataset shows what happened; else 0, and the weight is zero
    log_mean: np.ndarray  # (longest,): of the weights before they were divided; about 0 if all is well


def by_step(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """(episodes, longest): values per transition as a table, zero after an episode's last step."""
    table = np.zeros((len(lengths), lengths.max()))
    episode = np.repeat(np.arange(len(lengths)), lengths)
    table[episode, np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)] = values
    return table


def cumulative_weights(log_ratio: np.ndarray, lengths: np.ndarray, truncated: np.ndarray) -> Weights:
    """`truncated` (episodes,): the data stop before the episode does."""
    total = np.cumsum(by_step(log_ratio, lengths), axis=1)
    known = ~truncated[:, None] | (np.arange(total.shape[1]) < lengths[:, None])
    total = np.where(known, total, -np.inf)
    largest = total.max(axis=0)
    rho = np.exp(total - np.where(np.isneginf(largest), 0.0, largest))  # where all weights are zero they stay zero
    with np.errstate(divide="ignore"):
        return Weights(rho, known.astype(float), largest + np.log(rho.sum(axis=0) / known.sum(axis=0)))


def estimate_by_weights(
    problem: EvaluationProblem, log_ratio: np.ndarray, confidence: float, seed: int = 0
) -> ReturnEstimate:
    """Weighted per-decision importance sampling."""
    weights, gain = _weights_and_gain(problem, log_ratio)
    interval = bootstrap_interval(weights, gain, np.zeros(len(gain)), confidence, seed)
    numbers = weight_numbers(problem, weights) | {
        "truncated_weight": weight_not_shown(problem.dataset, problem.evaluated)
    }
    return ReturnEstimate("importance sampling", *interval, SAMPLED, numbers)


def _weights_and_gain(problem: EvaluationProblem, log_ratio: np.ndarray) -> tuple[Weights, np.ndarray]:
    """Of all logged steps: weights, and discounted rewards (episodes, longest)."""
    reward, lengths = problem.dataset.logged_rewards()
    transitions = problem.dataset.episode_lengths()
    ratio = by_step(log_ratio, transitions)  # zero, which keeps the weight, in a last row without a next state
    steps = np.pad(ratio, ((0, 0), (0, lengths.max() - transitions.max())))
    inside = np.arange(lengths.max()) < lengths[:, None]
    return cumulative_weights(steps[inside], lengths, problem.truncated), by_step(reward, lengths) * discounts(
        problem, lengths
    )


def discounts(problem: EvaluationProblem, lengths: np.ndarray) -> np.ndarray:
    """gamma^t, and zero after the last step that counts."""
    step = np.arange(lengths.max())
    return problem.gamma**step * (step < problem.horizon if problem.bounded else 1.0)


def weight_numbers(problem: EvaluationProblem, weights: Weights) -> dict[str, float]:
    """The worst step, of those that the discount leaves relevant."""
    steps = min(weights.rho.shape[1], problem.horizon) if problem.bounded else weights.rho.shape[1]
    relevant = int((problem.gamma ** np.arange(steps) >= CUT_OFF).sum())
    sizes = [effective_size(weights.rho[:, t]) for t in range(relevant)]
    return {
        "effective_episodes": float(np.min(sizes)),
        "episodes": float(len(weights.rho)),
        "mean_weight": float(np.exp(np.minimum(weights.log_mean[relevant - 1], 700.0))),
    }


def weighted_sums(weights: Weights, gain: np.ndarray, base: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(draws,): mean(base) + sum_t sum_e c_e rho_et gain_et / sum_e c_e rho_et, for counts (draws, episodes).

    A step that none of the counted episodes shows adds nothing; one whose weights are all zero gives NaN, which the
    caller has to handle.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        steps = (counts @ (weights.rho * gain)) / (counts @ weights.rho)
    shown = counts @ weights.known > 0.0
    return counts @ base / counts.sum(1) + np.where(shown, steps, 0.0).sum(1)


def bootstrap_interval(
    weights: Weights, gain: np.ndarray, base: np.ndarray, confidence: float, seed: int
) -> tuple[float, float, float]:
    """Value, low, high: percentiles over resampled episodes. Infinite where a resample has no weight left."""
    rng, n = np.random.default_rng(seed), len(base)
    value = float(weighted_sums(weights, gain, base, np.ones((1, n)))[0])
    drawn = []
    while len(drawn) < BOOTSTRAP_SAMPLES:
        size = min(max(1, AT_ONCE // n), BOOTSTRAP_SAMPLES - len(drawn))
        counts = np.stack([np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(size)]).astype(float)
        drawn += weighted_sums(weights, gain, base, counts).tolist()
    if not np.isfinite(drawn).all():
        return value, float("-inf"), float("inf")
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(drawn, [tail, 100.0 - tail])
    return value, float(low), float(high)
