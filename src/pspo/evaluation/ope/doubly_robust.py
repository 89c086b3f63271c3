"""Doubly robust (Jiang and Li, 2016; weighted by Thomas and Brunskill, 2016): importance sampling of the TD errors.

    V(s_0) + sum_t gamma^t rho_t (r_t + gamma V(s_{t+1}) - Q(s_t, a_t)),

with fitted critics of the stochastic policy, and the weights rho_t of importance.py.
"""

from __future__ import annotations

import numpy as np

from pspo.evaluation.fitted_critics import FittedQ, transition_values
from pspo.evaluation.ope.estimator import EstimatorInputs
from pspo.evaluation.ope.importance import (
    bootstrap_interval,
    by_step,
    cumulative_weights,
    discounts,
    warnings,
    weight_numbers,
    with_behaviour,
)
from pspo.evaluation.ope.return_estimate import SAMPLED, ReturnEstimate
from pspo.evaluation.problem import EvaluationProblem

__all__ = ["estimate", "estimate_by_weights_and_critics", "warnings"]


def estimate(inputs: EstimatorInputs) -> ReturnEstimate:
    ratios = inputs.log_ratios
    result = estimate_by_weights_and_critics(inputs.problem, ratios, inputs.sampled_critics, inputs.confidence)
    return with_behaviour(inputs, result)


def estimate_by_weights_and_critics(
    problem: EvaluationProblem, log_ratio: np.ndarray, fitted: FittedQ, confidence: float, seed: int = 0
) -> ReturnEstimate:
    """`fitted` are critics of the stochastic policy."""
    lengths = problem.dataset.episode_lengths()
    weights = cumulative_weights(log_ratio, lengths, problem.truncated)
    values = transition_values(problem, fitted, sampled=True, seed=seed)
    gain = by_step(values.td_error(problem), lengths) * discounts(problem, lengths)
    base = values.value[problem.dataset.episode_starts]
    interval = bootstrap_interval(weights, gain, base, confidence, seed)
    numbers = weight_numbers(problem, weights) | {"critics_alone": float(base.mean())}
    return ReturnEstimate("doubly robust", *interval, SAMPLED, numbers)
