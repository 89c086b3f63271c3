"""Gated recurrent units (Cho et al. 2014), as in PyTorch: the reset gate acts on the product with the state."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array


class GRU(eqx.Module):
    """Layers on top of each other, one position at a time. Columns of weights: reset gate, update gate, candidate."""

    input_weights: list[Array]  # (inputs, 3 units) each
    input_biases: list[Array]
    hidden_weights: list[Array]  # (units, 3 units) each
    hidden_biases: list[Array]

    @property
    def depth(self) -> int:
        return len(self.hidden_weights)

    @property
    def units(self) -> int:
        return self.hidden_weights[0].shape[-2]

    def step(self, hidden: list[Array], x: Array) -> list[Array]:
        """The states of all layers after one more input; the last of them is the output."""
        after = []
        layers = zip(self.input_weights, self.input_biases, self.hidden_weights, self.hidden_biases, strict=True)
        for h, (w, b, u, c) in zip(hidden, layers, strict=True):
            x = gated(h, x @ w + b, h @ u + c)
            after.append(x)
        return after


def gated(h: Array, from_input: Array, from_state: Array) -> Array:
    """r, z = sigmoid(x_rz + h_rz);  n = tanh(x_n + r h_n);  h' = (1 - z) n + z h."""
    x_r, x_z, x_n = jnp.split(from_input, 3, axis=-1)
    h_r, h_z, h_n = jnp.split(from_state, 3, axis=-1)
    reset, keep = jax.nn.sigmoid(x_r + h_r), jax.nn.sigmoid(x_z + h_z)
    return (1.0 - keep) * jnp.tanh(x_n + reset * h_n) + keep * h


def gru(key: Array, inputs: int, units: int, depth: int) -> GRU:
    """A new GRU; all parameters uniform within 1/sqrt(units), PyTorch's default."""
    scale = units**-0.5

    def uniform(part: int, layer: int, *shape: int) -> Array:
        return jax.random.uniform(jax.random.fold_in(key, 4 * layer + part), shape, minval=-scale, maxval=scale)

    layers = range(depth)
    return GRU(
        [uniform(0, layer, units if layer else inputs, 3 * units) for layer in layers],
        [uniform(1, layer, 3 * units) for layer in layers],
        [uniform(2, layer, units, 3 * units) for layer in layers],
        [uniform(3, layer, 3 * units) for layer in layers],
    )
