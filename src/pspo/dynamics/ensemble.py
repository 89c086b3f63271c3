"""Gaussian dynamics networks over (next observation, reward), stacked into one module."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from pspo.data.normalise import Normaliser
from pspo.nets.mlp import MLP, apply_each, apply_stack, mlp_stack

LOG_STD_FLOOR, LOG_STD_CEILING = -5.0, 0.5  # of normalised targets: where the soft clamp starts


class Prediction(NamedTuple):
    """Per member: mean and standard deviation of (observation change, reward), in raw units."""

    mean: Array  # (members, batch, obs_dim + 1)
    std: Array


class Ensemble(eqx.Module):
    """M members in one module: every array has a leading axis of length M."""

    net: MLP
    log_std_low: Array  # (M, targets): learned bounds of the soft clamp
    log_std_high: Array
    target_mean: Array  # (targets,): scale of the targets, shared by all members
    target_std: Array

    def normalised(self, x: Array, each: bool = False) -> tuple[Array, Array]:
        """Mean and log-std of normalised targets. `each`: x has one batch per member."""
        out = apply_each(self.net, x) if each else apply_stack(self.net, x)
        mean, raw = jnp.split(out, 2, axis=-1)
        high, low = self.log_std_high[:, None], self.log_std_low[:, None]
        log_std = high - jax.nn.softplus(high - raw)
        return mean, low + jax.nn.softplus(log_std - low)

    def predict(self, x: Array) -> Prediction:
        """Predictions of all members for the same inputs, in raw units."""
        mean, log_std = self.normalised(x)
        return Prediction(mean * self.target_std + self.target_mean, jnp.exp(log_std) * self.target_std)

    def take(self, members: Array) -> Ensemble:
        """The sub-ensemble of these members."""
        pick = lambda leaf: leaf[members]  # noqa: E731
        return Ensemble(
            jax.tree.map(pick, self.net),
            pick(self.log_std_low),
            pick(self.log_std_high),
            self.target_mean,
            self.target_std,
        )

    @property
    def size(self) -> int:
        return self.log_std_low.shape[0]


def ensemble(
    key: Array,
    *,
    members: int,
    inputs: int,
    width: int,
    depth: int,
    target_mean: Any,
    target_std: Any,
    layer_norm: bool = False,
) -> Ensemble:
    """A new ensemble with random weights."""
    targets = target_mean.shape[0]
    net = mlp_stack(key, members, [inputs] + [width] * depth + [2 * targets], last_scale=0.1, layer_norm=layer_norm)
    low = jnp.full((members, targets), LOG_STD_FLOOR, jnp.float32)
    high = jnp.full((members, targets), LOG_STD_CEILING, jnp.float32)
    return Ensemble(net, low, high, jnp.asarray(target_mean), jnp.asarray(target_std))


def model_inputs(norm: Normaliser, obs: Array, unit_action: Array) -> Array:
    """The input of a dynamics network: encoded observation and unit action."""
    return jnp.concatenate([norm.encode(obs), unit_action], axis=-1)


def draw_next(obs: Array, prediction: Prediction, noise: Array) -> tuple[Array, Array]:
    """Next observations drawn with standard normal noise (..., batch, obs_dim), and the expected reward.

    All members share the noise (common random numbers), so that they differ only in what they predict.
    """
    change = prediction.mean[..., :-1] + prediction.std[..., :-1] * noise
    return obs + change, prediction.mean[..., -1]
