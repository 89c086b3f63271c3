"""Residual blocks with layer normalisation and dropout: y = LN(x + dropout(swish(x W + b)))."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from pspo.nets.mlp import INITS, standardised


class ResidualBlocks(eqx.Module):
    weights: list[Array]
    biases: list[Array]
    scales: list[Array]  # scales and shifts of the layer normalisation
    shifts: list[Array]

    def __call__(self, x: Array, dropout: float = 0.0, key: Array | None = None) -> Array:
        """Without a key there is no dropout."""
        for i, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            change = jax.nn.silu(x @ w + b)
            if key is not None and dropout:
                change = dropped(change, dropout, jax.random.fold_in(key, i))
            x = standardised(x + change) * self.scales[i] + self.shifts[i]
        return x


def dropped(x: Array, share: float, key: Array) -> Array:
    """Dropout: a fraction `share` of the numbers is zero, the others are scaled up to keep the expectation."""
    return jnp.where(jax.random.bernoulli(key, 1.0 - share, x.shape), x / (1.0 - share), 0.0)


def residual_blocks(key: Array, units: int, depth: int) -> ResidualBlocks:
    """New blocks with PyTorch's initialisation."""
    layers = [INITS["torch"](jax.random.fold_in(key, i), units, units, False) for i in range(depth)]
    return ResidualBlocks(
        [w for w, _ in layers], [b for _, b in layers], [jnp.ones(units)] * depth, [jnp.zeros(units)] * depth
    )
