"""Fitted Q evaluation: the critics' value of the first states (fitted_critics.py says how they are fitted).

J = mean of Q(s_0, pi(s_0)) over the dataset's first states, with all H steps left where the return is bounded
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from pspo.evaluation.fitted_critics import FittedQ, transition_values
from pspo.evaluation.ope.estimate_warnings import LONG_HORIZON
from pspo.evaluation.ope.estimator import EstimatorInputs
from pspo.evaluation.ope.return_estimate import MODE, ReturnEstimate, t_quantile
from pspo.evaluation.problem import EvaluationProblem

HELD_ON_TRAINING_DATA, HELD_ON_NEW_DATA = 0.57, 0.90
"""Fraction of 90 % intervals that held, on the data of training and on others: benchmarks/results/ope.json."""


def estimate(inputs: EstimatorInputs) -> ReturnEstimate:
    return estimate_by_critics(inputs.problem, inputs.critics, inputs.confidence)


def warnings(problem: EvaluationProblem) -> list[str]:
    reasons, reach = [], min(problem.horizon, 1.0 / max(1.0 - problem.gamma, 1e-12))
    if reach > LONG_HORIZON:
        reasons.append(f"critic errors accumulate over {reach:.0f} steps, which the interval includes only in part.")
    if problem.on_training_data:
        reasons.append(
            "the policy was trained on these data, and fitted Q flatters it there: in the study of docs/ope.md "
            f"{100 * HELD_ON_TRAINING_DATA:.0f} % of such 90 % intervals held, and {100 * HELD_ON_NEW_DATA:.0f} % on "
            "other data. Give data that it has not seen (--data)."
        )
    return reasons


def estimate_by_critics(problem: EvaluationProblem, fitted: FittedQ, confidence: float) -> ReturnEstimate:
    """Every critic averages over its own resample of the first states; their standard deviation is the error."""
    starts = jnp.asarray(problem.starts)
    values = np.asarray(fitted.q(problem.norm.encode(starts), problem.act(starts)), np.float64)
    result = summarise(values * float(problem.norm.reward_scale), fitted.weight, confidence)
    return replace(result, numbers=result.numbers | {"bellman_residual": bellman_residual(problem, fitted)})


def bellman_residual(problem: EvaluationProblem, fitted: FittedQ) -> float:
    """Discounted sum of TD errors, mean over the dataset's episodes; zero once the critics have converged.

    sum_t gamma^t (r_t + gamma V(s_{t+1}) - Q(s_t, a_t)), up to the horizon where the return is bounded
    """
    td_error = transition_values(problem, fitted).td_error(problem)
    return float((problem.gamma ** problem.dataset.ages() * td_error).sum() / len(problem.starts))


def summarise(values: np.ndarray, weight: np.ndarray, confidence: float) -> ReturnEstimate:
    """From the critics' values of the first states (critics, episodes) and the weights of the episodes."""
    each = (values * weight).sum(1) / weight.sum(1)
    value, error = float(each.mean()), float(each.std(ddof=1)) if len(each) > 1 else float("inf")
    half = t_quantile(confidence, len(each) - 1) * error
    numbers = {"standard_error": error, "lowest_critic": float(each.min()), "highest_critic": float(each.max())}
    return ReturnEstimate("fitted Q", value, value - half, value + half, MODE, numbers)
