"""PMDB's game: predictions of the drawn models, where rollouts end, and the ranges of rewards and values."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.core.errors import UserError
from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser, normaliser_in
from pspo.dynamics.ensemble import Ensemble, draw_next
from pspo.dynamics.model_env import ModelEnv
from pspo.dynamics.persistent_rollouts import PersistentRollouts, advance

MARGIN = 0.05  # of the dataset's range of rewards, on either side
INNER, OUTER = 11.0, 21.0  # half-ranges from the middle: the rollout almost surely continues, almost surely ends
EDGE = 6.0  # of the sigmoid between them


class Units(NamedTuple):
    """The critics' rewards are those of the dataset, in the normaliser's unit, less `shift`."""

    shift: float
    reward_low: float  # range of predicted rewards
    reward_high: float
    value_low: float  # range of values and targets
    value_high: float

    def value(self, value: Array) -> Array:
        return jnp.clip(value, self.value_low, self.value_high)


def make_units(dataset: Dataset, states: str, rewards: str, gamma: float) -> tuple[Normaliser, Units]:
    """The normaliser of policy and critics, and the ranges.

    rewards=unit is the authors' map into [1/22, 21/22], with values in [0, 1/(1-gamma)]. Its shift
    makes a longer episode worth more, so that without a discount it would be another task. All other units divide.
    There values stay within what the dataset's rewards can add up to or, without a discount, within its returns.
    """
    if rewards == "unit" and gamma == 1.0:
        raise UserError("rewards=unit rewards every further step, which has no limit with gamma=1: use rewards=std.")
    norm = normaliser_in(dataset, states, "raw" if rewards == "unit" else rewards, gamma)
    lowest, highest = float(dataset.reward.min()), float(dataset.reward.max())
    span = highest - lowest if highest > lowest else 1.0
    low, high = lowest - MARGIN * span, highest + MARGIN * span
    shift = 0.0
    if rewards == "unit":
        norm = norm._replace(reward_scale=np.asarray((1.0 + 2.0 * MARGIN) * span, np.float32))
        shift = low
    scale = float(norm.reward_scale)
    shift, low, high = shift / scale, (low - shift) / scale, (high - shift) / scale
    if gamma < 1.0:
        values = np.array([low, high]) / (1.0 - gamma)
    else:
        to_go = dataset.returns_to_go(gamma) / scale
        values = np.array([to_go.min(), to_go.max()])
    return norm, Units(shift, low, high, float(min(values[0], 0.0)), float(max(values[1], 0.0)))


def stay_probability(norm: Normaliser, next_obs: Array) -> Array:
    """Probability that a rollout continues, by each column's distance from the middle of its range, in half-ranges.

    min(1, sigmoid / sigmoid(6)) in each column, from 1 at the inner bound to nearly 0 at the outer; their product.
    """
    half = 0.5 * (norm.obs_high - norm.obs_low)
    away = jnp.abs(next_obs - 0.5 * (norm.obs_high + norm.obs_low)) / np.where(half > 0.0, half, 1.0)
    inside = jax.nn.sigmoid(EDGE * (INNER + OUTER - 2.0 * away) / (OUTER - INNER))
    return jnp.minimum(inside * (1.0 + np.exp(-EDGE)), 1.0).prod(-1)


class SampledPredictions(NamedTuple):
    """What each model predicts after (s, a)."""

    next_obs: Array  # (draws, models, batch, obs_dim)
    end: Array  # (draws, models, batch): probability that the rollout ends
    reward: Array  # (models, batch)

    def backup(self, next_value: Array, gamma: float) -> Array:
        """(models, batch): r + gamma E[(1 - d) V(s')]."""
        return self.reward + gamma * ((1.0 - self.end) * next_value).mean(0)


def predict(env: ModelEnv, units: Units, obs: Array, action: Array, noise: Array) -> SampledPredictions:
    """Predictions may leave the dataset's range, as the authors'; only counters and saturated columns are corrected."""
    predicted, reward = draw_next(obs, env.predict(obs, action), noise)
    next_obs = env.range.reached(env.model_norm, predicted)
    ended = env.terminated(env.model_norm, obs, action, next_obs)
    end = jnp.where(ended, 1.0, 1.0 - stay_probability(env.model_norm, next_obs))
    reward = jnp.clip(reward * env.reward_unit - units.shift, units.reward_low, units.reward_high)
    return SampledPredictions(next_obs, end, reward)


def models_of(pool: Ensemble, drawn: Array) -> tuple[Ensemble, Array]:
    """The models to evaluate, and the position of each drawn one among them: a small pool is evaluated as a whole."""
    if pool.size <= drawn.shape[0]:
        return pool, drawn
    return pool.take(drawn), jnp.arange(drawn.shape[0])


def follow(
    rollouts: PersistentRollouts,
    predictions: SampledPredictions,
    member: Array,
    key: Array,
    restart: Array,
    horizon: int,
) -> PersistentRollouts:
    """Every rollout to the first of its member's draws; those that end or reach the horizon restart from `restart`."""
    which = jnp.arange(member.shape[0])
    ended = jax.random.bernoulli(key, predictions.end[0, member, which])
    return advance(rollouts, predictions.next_obs[0, member, which], ended, member, restart, horizon)
