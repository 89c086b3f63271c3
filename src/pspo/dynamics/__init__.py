"""Learned dynamics models: ensembles and their fit, the model environment, termination, rollouts and uncertainty.

Called by algorithms and evaluation. Nothing here knows an algorithm's settings or losses, except for `adversary`, the
model gradient of RAMBO.
"""

from pspo.dynamics.buffer import Buffer
from pspo.dynamics.ensemble import Ensemble, Prediction
from pspo.dynamics.fit import ModelConfig
from pspo.dynamics.model_env import ModelEnv, Outcome, rollout, rollouts_in_batches
from pspo.dynamics.persistent_rollouts import PersistentRollouts
from pspo.dynamics.pool import Pool, load_or_fit_pool
from pspo.dynamics.prediction_range import PredictionRange
from pspo.dynamics.quality import model_quality
from pspo.dynamics.termination import Termination, make_termination

__all__ = [
    "Buffer",
    "Ensemble",
    "ModelConfig",
    "ModelEnv",
    "Outcome",
    "PersistentRollouts",
    "Pool",
    "Prediction",
    "PredictionRange",
    "Termination",
    "load_or_fit_pool",
    "make_termination",
    "model_quality",
    "rollout",
    "rollouts_in_batches",
]
