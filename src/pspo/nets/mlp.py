"""Plain multi-layer perceptrons, alone or stacked. A stack is the same module with a leading axis on every leaf."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"silu": jax.nn.silu, "relu": jax.nn.relu, "tanh": jnp.tanh}


class MLP(eqx.Module):
    weights: list[Array]
    biases: list[Array]
    activation: str = eqx.field(static=True)
    layer_norm: bool = eqx.field(static=True, default=False)

    def __call__(self, x: Array) -> Array:
        act = ACTIVATIONS[self.activation]
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = x @ w + b
            x = act(standardised(x) if self.layer_norm else x)
        return x @ self.weights[-1] + self.biases[-1]


def standardised(x: Array) -> Array:
    """Layer normalisation without learned scales: every row to mean 0 and variance 1."""
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)


def mlp(
    key: Array, sizes: list[int], activation: str = "silu", last_scale: float = 1.0, layer_norm: bool = False
) -> MLP:
    """Weights uniform with the variance 1/fan-in, zero biases; `last_scale` shrinks the last layer."""
    weights = []
    for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        scale = (last_scale if i == len(sizes) - 2 else 1.0) * (3.0 / fan_in) ** 0.5
        weights.append(jax.random.uniform(jax.random.fold_in(key, i), (fan_in, fan_out), minval=-scale, maxval=scale))
    return MLP(weights, [jnp.zeros(s) for s in sizes[1:]], activation, layer_norm)


def mlp_stack(key: Array, count: int, sizes: list[int], **shape: Any) -> MLP:
    """`count` independent networks in one module."""
    return eqx.filter_vmap(lambda k: mlp(k, sizes, **shape))(jax.random.split(key, count))


def apply_stack(stack: MLP, x: Array) -> Array:
    """One input for all members, (batch, in) -> (members, batch, out)."""
    return eqx.filter_vmap(lambda net, x: net(x), in_axes=(eqx.if_array(0), None))(stack, x)


def apply_each(stack: MLP, x: Array) -> Array:
    """Each member on its own input, (members, batch, in) -> (members, batch, out)."""
    return eqx.filter_vmap(lambda net, x: net(x))(stack, x)


def moving_average(target, online, rate: float):
    """target <- (1 - rate) target + rate online, leaf by leaf."""
    return jax.tree.map(lambda t, o: t + rate * (o - t), target, online)
