"""Uncertainty of an ensemble at (s, a), by the measures of published methods. In raw units."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from pspo.dynamics.ensemble import Prediction


def _raw(part: Array, reward_scale: Array | float) -> Array:
    """Predictions with the reward, the last column, in raw units too."""
    return jnp.concatenate([part[..., :-1], part[..., -1:] * reward_scale], axis=-1)


def largest_std(prediction: Prediction, reward_scale: Array | float) -> Array:
    """(batch,): max over members of the norm of the standard deviations of next state and reward (MOPO)."""
    return jnp.linalg.norm(_raw(prediction.std, reward_scale), axis=-1).max(0)


def largest_deviation(prediction: Prediction, reward_scale: Array | float) -> Array:
    """(batch,): max over members of the distance of their mean next state to the mean of all members."""
    mean = prediction.mean[..., :-1]
    return jnp.linalg.norm(mean - mean.mean(0), axis=-1).max(0)


def largest_pairwise_distance(prediction: Prediction, unit: Array | float = 1.0) -> Array:
    """(batch,): max over pairs of members of the distance between their mean next states, in `unit` (MOReL)."""
    mean = prediction.mean[..., :-1] / unit
    return jnp.linalg.norm(mean[:, None] - mean[None], axis=-1).max((0, 1))


def lag_std(next_obs: Array, valid: Array) -> Array:
    """(batch,): disagreement of the mean next states (lags, batch, obs_dim) of an any-step model (ADM).

    sqrt(mean over columns of the variance over lags), over the `valid` lags (lags, batch), at least one per state.
    """
    weight = (valid / valid.sum(0))[..., None]
    mean = (weight * next_obs).sum(0)
    return jnp.sqrt((weight * jnp.square(next_obs - mean)).sum(0).mean(-1))
