"""How far models and critics disagree in a state, compared with states of the dataset."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from pspo.dynamics.ensemble import model_inputs
from pspo.evaluation.inspect.action_values import critic_std
from pspo.evaluation.inspect.coverage import percentile
from pspo.evaluation.inspect.networks import Networks
from pspo.evaluation.problem import EvaluationProblem


class Disagreement(NamedTuple):
    """At the policy's action. Medians and percentiles (0 to 100) are over states of the dataset, at its actions."""

    models: float  # std of mean next states over std of the data, root mean square over columns
    models_median: float
    models_percentile: float
    critics: float  # std of Q between critics, in the dataset's units; NaN if there is only one
    critics_median: float
    critics_percentile: float
    compared: int  # number of states


def disagreement_at(
    problem: EvaluationProblem, networks: Networks, obs: np.ndarray, unit: np.ndarray, compared: np.ndarray
) -> Disagreement:
    """`compared` are raw states of the dataset."""
    own = np.asarray(problem.act(jnp.asarray(compared)))
    models, usual_models = (
        float(model_disagreement(networks, obs[None], unit[None])[0]),
        model_disagreement(networks, compared, own),
    )
    critics = float(critic_std(networks.q(obs[None], unit[None]))[0])
    usual_critics = critic_std(networks.q(compared, own))
    return Disagreement(
        models=models,
        models_median=float(np.median(usual_models)),
        models_percentile=percentile(models, usual_models),
        critics=critics,
        critics_median=float(np.median(usual_critics)),
        critics_percentile=percentile(critics, usual_critics),
        compared=len(compared),
    )


def model_disagreement(networks: Networks, obs: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """(batch,): unweighted, since it would vanish under a posterior that has picked one model."""
    inputs = model_inputs(networks.norm, jnp.asarray(obs), jnp.asarray(unit))
    mean = np.asarray(networks.pool.predict(inputs).mean[..., :-1], np.float64) / networks.norm.obs_std
    return np.sqrt(mean.var(0).mean(-1))
