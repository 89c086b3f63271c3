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


Init = Callable[[Array, int, int, bool], tuple[Array, Array]]
"""(key, fan_in, fan_out, whether it is the last layer) -> weights and biases."""


def _uniform(key: Array, shape: tuple[int, ...], scale: float) -> Array:
    return jax.random.uniform(key, shape, minval=-scale, maxval=scale)


def _torch(key: Array, fan_in: int, fan_out: int, last: bool) -> tuple[Array, Array]:
    """PyTorch's default: weights and biases uniform within 1/sqrt(fan-in)."""
    w_key, b_key = jax.random.split(key)
    scale = fan_in**-0.5
    return _uniform(w_key, (fan_in, fan_out), scale), _uniform(b_key, (fan_out,), scale)


def _orthogonal(key: Array, fan_in: int, fan_out: int, last: bool) -> tuple[Array, Array]:
    """Orthogonal with gain sqrt(2), in the last layer too: IQL's."""
    return jax.nn.initializers.orthogonal(2.0**0.5)(key, (fan_in, fan_out)), jnp.zeros(fan_out)


def _keras(key: Array, fan_in: int, fan_out: int, last: bool) -> tuple[Array, Array]:
    """Keras' default: Glorot's uniform weights, zero biases; used by MOPO, RAMBO and 1R2R."""
    return _uniform(key, (fan_in, fan_out), (6.0 / (fan_in + fan_out)) ** 0.5), jnp.zeros(fan_out)


def _small_last(scale: float) -> Init:
    """rlkit's: hidden weights within 1/sqrt(fan-out) (its slip for fan-in), biases 0.1, and a last layer near zero."""

    def layer(key: Array, fan_in: int, fan_out: int, last: bool) -> tuple[Array, Array]:
        if not last:
            return _uniform(key, (fan_in, fan_out), fan_out**-0.5), jnp.full(fan_out, 0.1, jnp.float32)
        w_key, b_key = jax.random.split(key)
        return _uniform(w_key, (fan_in, fan_out), scale), _uniform(b_key, (fan_out,), scale)

    return layer


INITS: dict[str, Init] = {
    "torch": _torch,
    "orthogonal": _orthogonal,
    "keras": _keras,
    "rlkit-critic": _small_last(3e-3),
    "rlkit-actor": _small_last(1e-3),
}


def mlp(
    key: Array,
    sizes: list[int],
    activation: str = "silu",
    last_scale: float = 1.0,
    layer_norm: bool = False,
    init: str | None = None,
) -> MLP:
    """A new network, initialised by one of `INITS`; by default uniform weights with variance 1/fan-in and zero biases.

    `last_scale` scales the last layer of the default.
    """
    weights, biases = [], []
    for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        layer_key, last = jax.random.fold_in(key, i), i == len(sizes) - 2
        if init:
            w, b = INITS[init](layer_key, fan_in, fan_out, last)
        else:
            scale = (last_scale if last else 1.0) * (3.0 / fan_in) ** 0.5
            w, b = _uniform(layer_key, (fan_in, fan_out), scale), jnp.zeros(fan_out)
        weights.append(w)
        biases.append(b)
    return MLP(weights, biases, activation, layer_norm)


def mlp_stack(key: Array, count: int, sizes: list[int], **shape: Any) -> MLP:
    """`count` independent networks in one module."""
    return eqx.filter_vmap(lambda k: mlp(k, sizes, **shape))(jax.random.split(key, count))


def apply_stack(stack: MLP, x: Array) -> Array:
    """The same input for all members, (batch, in) -> (members, batch, out)."""
    return eqx.filter_vmap(lambda net, x: net(x), in_axes=(eqx.if_array(0), None))(stack, x)


def apply_each(stack: MLP, x: Array) -> Array:
    """Each member on its own input, (members, batch, in) -> (members, batch, out)."""
    return eqx.filter_vmap(lambda net, x: net(x))(stack, x)


def moving_average(target, online, tau: float):
    """target <- (1 - tau) target + tau online, leaf by leaf."""
    return jax.tree.map(lambda t, o: t + tau * (o - t), target, online)
