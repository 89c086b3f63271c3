"""Persistent rollouts in models drawn from a posterior: one step at a time, one row per chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.data.normalise import Normaliser
from pspo.dynamics.ensemble import Ensemble, draw_next, model_inputs
from pspo.dynamics.posterior import consistency, log_posterior
from pspo.dynamics.prediction_range import PredictionRange, repeated_edges
from pspo.dynamics.termination import Termination


class Chains(NamedTuple):
    """Rollouts under way."""

    obs: Array  # (chains, obs_dim)
    age: Array
    member: Array  # the model of the last step, for chains that hold one per episode


class Weighed(NamedTuple):
    """What each active model says follows (s, a), and how much it is believed."""

    next_obs: Array  # (draws, models, batch, obs_dim)
    done: Array  # (draws, models, batch): the rollout ends here, by the task or by leaving the data's box
    reward: Array  # (models, batch)
    backup: Array  # (models, batch): r + gamma E_{s'~T_i} V(s')
    f: Array  # (models, batch)
    log_weight: Array  # (models, batch)

    @property
    def target(self) -> Array:
        """Eq. opt:eq2: the backup in expectation over T ~ P(T|E)."""
        return (jnp.exp(self.log_weight) * self.backup).sum(0)


def antithetic_noise(key: Array, pairs: int, obs: Array) -> Array:
    """Standard normal draws and their negatives, the same for every model: (2 pairs, 1, *obs.shape)."""
    noise = jax.random.normal(key, (pairs, 1, *obs.shape))
    return jnp.concatenate([noise, -noise])


class Box(NamedTuple):
    """(obs_dim,) each: where the log has been, and a margin."""

    low: np.ndarray
    high: np.ndarray


def log_box(obs: np.ndarray, norm: Normaliser, margin: float) -> Box:
    """The range of every column, widened by `margin` of its width, and open where the column itself is bounded.

    An edge that the log repeats is where a sensor saturates or a counter ends, as hopper's and walker2d's velocities
    do at 10. A prediction beyond it means the edge: a smooth model cannot know where to stop.
    """
    slack = margin * (norm.obs_high - norm.obs_low)
    low, high = repeated_edges(obs, norm)
    return Box(np.where(low, -np.inf, norm.obs_low - slack), np.where(high, np.inf, norm.obs_high + slack))


class Limits(NamedTuple):
    """What keeps imagined values inside what the log can support; none of it is in the paper."""

    box: Box | None = None  # leaving it ends a rollout
    left_value: float = 0.0  # and is worth this
    backup_low: float | None = None  # backups are clipped to what rewards of the log's range can add up to
    backup_high: float | None = None


def weigh(
    models: Ensemble,
    log_prior: Array,
    norm: Normaliser,
    terminated: Termination,
    range: PredictionRange,
    value: Callable[[Array], Array],
    q: Array,
    obs: Array,
    action: Array,
    noise: Array,
    gamma: float,
    beta: float | Array,
    limits: Limits = Limits(),  # noqa: B008
) -> Weighed:
    """The posterior over the models at each (s, a), Eq. model:eq1. `value` maps features to V(s')."""
    prediction = models.predict(model_inputs(norm, obs, action))
    predicted, reward = draw_next(norm, obs, prediction, noise)
    reward = range.reward(reward)
    reached = range.reached(norm, predicted)
    done = terminated(norm, obs, action, reached)
    next_obs = range.keep(reached)
    ahead = jnp.where(done, 0.0, value(norm.encode(next_obs)))
    if limits.box is not None:
        left = outside(predicted, limits.box)
        ahead, done = jnp.where(left & ~done, limits.left_value, ahead), done | left
    backup = jnp.clip(reward + gamma * ahead.mean(0), limits.backup_low, limits.backup_high)
    f = consistency(q, backup)
    return Weighed(next_obs, done, reward, backup, f, log_posterior(log_prior, f, beta))


def outside(predicted: Array, box: Box) -> Array:
    """Whether any column of a prediction lies outside."""
    return ((predicted < box.low) | (predicted > box.high)).any(axis=-1)


def draw_members(chains: Chains, weighed: Weighed, key: Array, hold: bool) -> Array:
    """A model per chain from the posterior: anew at every step (Eq. pre:eq4), or held for the episode (Eq. pre:eq5)."""
    drawn = jax.random.categorical(key, weighed.log_weight, axis=0)
    return jnp.where(chains.age == 0, drawn, chains.member) if hold else drawn


def advance(chains: Chains, weighed: Weighed, member: Array, restart: Array, horizon: int) -> Chains:
    """Every chain one step further in its member; chains that ended or grew old start anew from `restart`."""
    row = jnp.arange(member.shape[0])
    after, ended = weighed.next_obs[0, member, row], weighed.done[0, member, row]
    age = chains.age + 1
    over = ended | (age >= horizon)
    return Chains(jnp.where(over[:, None], restart, after), jnp.where(over, 0, age), member)
