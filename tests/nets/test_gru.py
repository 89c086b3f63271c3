"""Recurrent layers and residual blocks, against the formulas in NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.nets.gru import GRU, gru
from pspo.nets.residual import ResidualBlocks, dropped, residual_blocks

RNG = np.random.default_rng(0)


def f32(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(scale=0.7, size=shape), jnp.float32)


def doubled(leaf: jax.Array) -> np.ndarray:
    return np.asarray(leaf, np.float64)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def cell_by_hand(net: GRU, layer: int, h: np.ndarray, x: np.ndarray) -> np.ndarray:
    """One gate after the other, each with its own block of columns."""
    parts = (net.input_weights, net.input_biases, net.hidden_weights, net.hidden_biases)
    w, b, u, c = (doubled(part[layer]) for part in parts)
    n = h.shape[-1]
    reset, update, new = slice(0, n), slice(n, 2 * n), slice(2 * n, 3 * n)
    r = sigmoid(x @ w[:, reset] + b[reset] + h @ u[:, reset] + c[reset])
    z = sigmoid(x @ w[:, update] + b[update] + h @ u[:, update] + c[update])
    candidate = np.tanh(x @ w[:, new] + b[new] + r * (h @ u[:, new] + c[new]))
    return (1.0 - z) * candidate + z * h


def test_every_layer_is_the_published_cell_on_the_output_of_the_one_below() -> None:
    net = GRU([f32(3, 12), f32(4, 12)], [f32(12), f32(12)], [f32(4, 12), f32(4, 12)], [f32(12), f32(12)])
    assert (net.depth, net.units) == (2, 4)
    hidden, x = [f32(5, 4), f32(5, 4)], f32(5, 3)
    result = jax.jit(lambda h, x: net.step(h, x))(hidden, x)
    first = cell_by_hand(net, 0, doubled(hidden[0]), doubled(x))
    second = cell_by_hand(net, 1, doubled(hidden[1]), first)
    for now, expected in zip(result, (first, second), strict=True):
        np.testing.assert_allclose(now, expected, rtol=1e-5, atol=1e-6)


def test_a_new_gru_has_different_parameters_within_one_over_root_units() -> None:
    net = jax.jit(gru, static_argnums=(1, 2, 3))(jax.random.PRNGKey(0), 3, 16, 2)
    assert [w.shape for w in net.input_weights] == [(3, 48), (16, 48)]
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(net)]
    assert all(0.2 < np.abs(leaf).max() <= 0.25 for leaf in leaves)
    assert len({leaf.ravel()[:40].tobytes() for leaf in leaves}) == len(leaves) == 8


def test_a_residual_block_normalises_the_sum() -> None:
    net = ResidualBlocks([f32(4, 4), f32(4, 4)], [f32(4), f32(4)], [f32(4), f32(4)], [f32(4), f32(4)])
    x = f32(6, 4)
    y = doubled(x)
    for i in range(2):
        inside = y @ doubled(net.weights[i]) + doubled(net.biases[i])
        y = y + inside * sigmoid(inside)
        y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-6)
        y = y * doubled(net.scales[i]) + doubled(net.shifts[i])
    result = jax.jit(lambda x: net(x, 0.5))(x)  # without a key nothing is dropped
    np.testing.assert_allclose(result, y, rtol=1e-4, atol=1e-5)


def test_dropout_keeps_the_expectation_and_drops_its_share() -> None:
    x = jnp.ones((200, 100))
    result = np.asarray(dropped(x, 0.2, jax.random.PRNGKey(1)))
    assert set(np.unique(result).tolist()) == {0.0, 1.25}
    assert (result == 0.0).mean() == pytest.approx(0.2, abs=0.01)


def test_every_block_drops_other_units() -> None:
    """Two equal blocks with one key are not the same block twice with that key."""
    one = residual_blocks(jax.random.PRNGKey(0), 8, 1)
    both = ResidualBlocks(*([part[0], part[0]] for part in (one.weights, one.biases, one.scales, one.shifts)))
    key, x = jax.random.PRNGKey(2), f32(3, 8)
    np.testing.assert_allclose(one(one(x)), both(x), atol=1e-6)
    assert not np.allclose(one(one(x, 0.5, key), 0.5, key), both(x, 0.5, key))
