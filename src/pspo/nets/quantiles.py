"""A critic of the whole distribution of returns: an implicit quantile network (Dabney et al. 2018) for continuous
actions, with the architecture of ORAAC's authors.

State and action have a branch each; their joint embedding is multiplied by an embedding of the quantile level, so
that one network gives every quantile of the return and each level costs two small layers.
"""

from __future__ import annotations

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from pspo.nets.mlp import INITS, MLP

COSINES = 16  # cos(pi i tau), i = 0, ..., 15
EMBEDDING = 16  # units of the embeddings
MERGED = 32  # units of the layer after their product
HIDDEN_STD = 0.1  # of initial hidden weights
HEAD_SCALE = 3e-4  # of the initial last layer: all quantiles start near zero


class QuantileCritic(eqx.Module):
    """Features (batch, f), actions (batch, a) and levels (n,) to quantiles (n, batch): every level for every state."""

    state: MLP
    action: MLP
    joint: MLP
    level: MLP
    head: MLP

    def __call__(self, features: Array, action: Array, tau: Array) -> Array:
        branches = [jax.nn.relu(self.state(features)), jax.nn.relu(self.action(action))]
        joint = jax.nn.relu(self.joint(jnp.concatenate(branches, axis=-1)))  # (batch, EMBEDDING)
        level = jax.nn.relu(self.level(cosines(tau)))  # (n, EMBEDDING)
        return self.head(joint * level[:, None])[..., 0]


def cosines(tau: Array) -> Array:
    """(n,) -> (n, COSINES): cos(pi i tau) (IQN, Eq. 4)."""
    return jnp.cos(jnp.pi * jnp.arange(COSINES) * tau[:, None])


def quantile_critic(key: Array, features: int, action_dim: int, width: int) -> QuantileCritic:
    """A new critic; `width` units in the branches of state and action."""
    keys = jax.random.split(key, 5)
    return QuantileCritic(
        state=_layers(keys[0], [features, width]),
        action=_layers(keys[1], [action_dim, width]),
        joint=_layers(keys[2], [2 * width, EMBEDDING]),
        level=_layers(keys[3], [COSINES, EMBEDDING]),
        head=_near_zero(_layers(keys[4], [EMBEDDING, MERGED, 1]), keys[4]),
    )


def _layers(key: Array, sizes: list[int]) -> MLP:
    """Weights N(0, HIDDEN_STD^2), whatever the fan-in; biases as PyTorch draws them."""
    weights, biases = [], []
    for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        w_key, b_key = jax.random.split(jax.random.fold_in(key, i))
        weights.append(HIDDEN_STD * jax.random.normal(w_key, (fan_in, fan_out)))
        biases.append(INITS["torch"](b_key, fan_in, fan_out, False)[1])
    return MLP(weights, biases, "relu")


def _near_zero(net: MLP, key: Array) -> MLP:
    """The same network with a last layer within HEAD_SCALE and zero biases."""
    key = jax.random.fold_in(key, len(net.weights))
    last = jax.random.uniform(key, net.weights[-1].shape, minval=-HEAD_SCALE, maxval=HEAD_SCALE)
    biases = [*net.biases[:-1], jnp.zeros_like(net.biases[-1])]
    return MLP([*net.weights[:-1], last], biases, net.activation)
