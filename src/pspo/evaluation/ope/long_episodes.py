"""Long episodes in the models: without their noise, with a wider interval, and beside the dataset's own.

The noise that models predict is drawn again at every step, while the error behind it is the same function of the state
each time: over hundreds of steps it topples gaits that hold. So episodes of more than LONG_HORIZON steps follow the
means of the models where the dynamics are nearly deterministic. How far such estimates are off, and how those of
policies that collapse look, was studied on MuJoCo: `python -m benchmarks.ope_locomotion`, docs/ope.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
import scipy.stats

from pspo.dynamics.ensemble import Ensemble, model_inputs
from pspo.evaluation.dataset_return import dataset_return
from pspo.evaluation.ope.estimate_warnings import LONG_HORIZON
from pspo.evaluation.ope.return_estimate import ReturnEstimate
from pspo.evaluation.problem import EvaluatedReturn, EvaluationProblem

if TYPE_CHECKING:
    from pspo.data.normalise import Normaliser

NEARLY_DETERMINISTIC = 0.05  # of the variance of a step's change may be noise, by the models
STUDY_ERROR = 0.64  # as a share of the estimate, for 90 % of the study's policies that are not taken for collapsed
COMPARED = 2000  # transitions of the dataset


def noise_scale(problem: EvaluationProblem, pool: Ensemble, norm: Normaliser, configured: float) -> float:
    """Of the models' noise in episodes: zero in long ones of nearly deterministic dynamics, else as configured."""
    if problem.horizon <= LONG_HORIZON:
        return configured
    data = problem.dataset
    picked = np.random.default_rng(0).permutation(data.size)[:COMPARED]
    unit = jnp.asarray(norm.unit_action(data.action[picked]))
    _, log_std = pool.normalised(model_inputs(norm, jnp.asarray(data.obs[picked]), unit))
    share = float(jnp.exp(2.0 * log_std[..., :-1]).mean())
    return 0.0 if share < NEARLY_DETERMINISTIC else configured


def with_study_error(estimate: ReturnEstimate, confidence: float) -> ReturnEstimate:
    """The interval with the error that estimates of long episodes had in the study."""
    quantile = scipy.stats.norm.ppf(0.5 + 0.5 * confidence) / scipy.stats.norm.ppf(0.95)
    half = float(np.hypot(estimate.high - estimate.value, STUDY_ERROR * quantile * abs(estimate.value)))
    numbers = estimate.numbers | {"study_error": STUDY_ERROR * quantile * abs(estimate.value)}
    return replace(estimate, low=estimate.value - half, high=estimate.value + half, numbers=numbers)


def return_of_dataset(problem: EvaluationProblem, sums: float) -> float:
    """A plain sum of rewards over an episode, in that of the dataset's own: 1 is the same, 0.5 half of it.

    Where returns are negative, 0.5 is a return that is lower by half. NaN if the dataset shows too few steps.
    """
    own = dataset_return(problem.dataset, EvaluatedReturn(1.0, problem.horizon, True)).value
    return 1.0 + (sums - own) / max(abs(own), 1e-12)
