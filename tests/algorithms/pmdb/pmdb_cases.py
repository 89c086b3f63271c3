"""A tiny PMDB made by NumPy; nothing is fitted."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.special

from pspo.algorithms.pmdb import algorithm as pmdb
from pspo.algorithms.pmdb.game import Units
from pspo.dynamics.termination import KnownTermination
from tests.algorithms.baseline_cases import ACT, OBS, made_config, made_norm, made_state, made_transitions
from tests.arrays import f32
from tests.dynamics.dynamics_cases import made_ensemble, plain_norm, unlimited

REAL, GAME, POOL = 8, 6, 3
CONFIG = made_config(
    pmdb, active=4, order=2, explore=0.5, kl_target=2.0, reference_tau=0.2, next_pairs=1, action_samples=5,
    imitation_std=0.3, real_batch=REAL, synthetic_batch=GAME, rollout_horizon=4,
)  # fmt: skip
UNITS = Units(shift=-0.3, reward_low=-0.5, reward_high=0.6, value_low=-0.4, value_high=0.9)
MODEL_NORM = plain_norm(OBS, ACT, reach=0.15)  # so narrow that predictions come near the end of the soft range


def ends(obs: Any, action: Any, next_obs: Any) -> Any:
    return next_obs[..., 0] > 0.8


def made_setup() -> pmdb.Setup:
    pool = made_ensemble(members=POOL, inputs=OBS + ACT, targets=OBS + 1)
    return pmdb.Setup(
        pmdb.Arrays(pool, KnownTermination(ends)), made_norm(), MODEL_NORM, UNITS, unlimited(MODEL_NORM.obs_mean.size)
    )


def made_batch() -> pmdb.Batch:
    return pmdb.Batch(made_transitions(REAL), f32(np.random.default_rng(8).normal(size=(GAME, OBS))))


@cache
def state() -> Any:
    made = made_state(pmdb, CONFIG)
    return made._replace(rollouts=made.rollouts._replace(age=jnp.asarray([0, 1, 2, 3, 1, 0], jnp.int32)))


def stay_by_hand(next_obs: np.ndarray) -> np.ndarray:
    """As the authors write it: inner bounds 11 half-ranges from the middle, outer ones 21, slopes of 12 between."""
    low, high = (np.asarray(edge, np.float64) for edge in (MODEL_NORM.obs_low, MODEL_NORM.obs_high))
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    low_in, low_out, high_in, high_out = (middle + k * half for k in (-11.0, -21.0, 11.0, 21.0))
    from_low = scipy.special.expit((next_obs - (low_in + low_out) / 2.0) * 12.0 / (low_in - low_out))
    from_high = scipy.special.expit((next_obs - (high_in + high_out) / 2.0) * 12.0 / (high_in - high_out))
    return np.minimum(np.minimum(from_low, from_high) / scipy.special.expit(6.0), 1.0).prod(-1)
