"""How little models and critics know of a state, compared with logged states: so that "large" means something."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from pspo.dynamics.ensemble import model_inputs
from pspo.evaluation.inspect.judges import Judges
from pspo.evaluation.inspect.place import percentile
from pspo.evaluation.inspect.values import between
from pspo.evaluation.ope.subject import Subject


class Doubt(NamedTuple):
    """At the policy's action; percentiles, 0 to 100, are among logged states with the policy's actions there."""

    models: float  # spread of the models' mean next states, in spreads of the log: root mean square over columns
    models_usual: float  # the median of logged states
    models_percentile: float
    critics: float  # standard deviation of Q between critics, in the log's units; NaN where there is one
    critics_usual: float
    critics_percentile: float
    compared: int  # logged states


def doubt_at(subject: Subject, judges: Judges, obs: np.ndarray, unit: np.ndarray, compared: np.ndarray) -> Doubt:
    """`compared` are raw logged states."""
    own = np.asarray(subject.act(jnp.asarray(compared)))
    models, usual_models = float(disagreement(judges, obs[None], unit[None])[0]), disagreement(judges, compared, own)
    critics = float(between(judges.q(obs[None], unit[None]))[0])
    usual_critics = between(judges.q(compared, own))
    return Doubt(
        models=models,
        models_usual=float(np.median(usual_models)),
        models_percentile=percentile(models, usual_models),
        critics=critics,
        critics_usual=float(np.median(usual_critics)),
        critics_percentile=percentile(critics, usual_critics),
        compared=len(compared),
    )


def disagreement(judges: Judges, obs: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """(rows,): of all models alike. Weighed by a posterior that has picked one of them, it would vanish."""
    inputs = model_inputs(judges.norm, jnp.asarray(obs), jnp.asarray(unit))
    mean = np.asarray(judges.pool.predict(inputs).mean[..., :-1], np.float64) / judges.norm.obs_std
    return np.sqrt(mean.var(0).mean(-1))
