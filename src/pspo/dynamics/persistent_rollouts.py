"""Persistent rollouts: many in parallel, one step per training iteration, restarted when they end."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class PersistentRollouts(NamedTuple):
    """The current states of the rollouts."""

    obs: Array  # (rollouts, obs_dim)
    age: Array  # steps since the start of the rollout
    member: Array  # the model of the last step, for rollouts that keep one per episode


def start_rollouts(obs: Array, horizon: int) -> PersistentRollouts:
    """Rollouts from these states, with different ages: otherwise all would restart at the same time."""
    count = obs.shape[0]
    return PersistentRollouts(obs, jnp.arange(count) % horizon, jnp.zeros(count, jnp.int32))


def advance(
    rollouts: PersistentRollouts, next_obs: Array, ended: Array, member: Array, restart: Array, horizon: int
) -> PersistentRollouts:
    """One step: rollouts that ended or reached the horizon restart from `restart`."""
    age = rollouts.age + 1
    over = ended | (age >= horizon)
    return PersistentRollouts(jnp.where(over[:, None], restart, next_obs), jnp.where(over, 0, age), member)


def antithetic_noise(key: Array, pairs: int, obs: Array) -> Array:
    """Standard normal draws and their negatives, the same for every model: (2 pairs, 1, *obs.shape)."""
    noise = jax.random.normal(key, (pairs, 1, *obs.shape))
    return jnp.concatenate([noise, -noise])
