"""Perceptrons alone and stacked, against matrix products in NumPy."""

from __future__ import annotations

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.nets.mlp import MLP, apply_each, apply_stack, mlp, mlp_stack, moving_average

SIZES = [3, 8, 5, 2]
NUMPY_ACTIVATIONS = {"silu": lambda z: z / (1 + np.exp(-z)), "relu": lambda z: np.maximum(z, 0), "tanh": np.tanh}


def by_hand(weights, biases, activation: str, x: np.ndarray) -> np.ndarray:
    for layer, (w, b) in enumerate(zip(weights, biases, strict=True)):
        x = x @ np.asarray(w, np.float64) + np.asarray(b, np.float64)
        if layer < len(weights) - 1:
            x = NUMPY_ACTIVATIONS[activation](x)
    return x


def some_stack(activation: str = "silu") -> MLP:
    """Four members, with biases that are not zero, so that forgetting one shows."""
    rng = np.random.default_rng(1)
    weights = [jnp.asarray(rng.normal(size=(4, *shape)), jnp.float32) for shape in pairwise(SIZES)]
    return MLP(weights, [jnp.asarray(rng.normal(size=(4, size)), jnp.float32) for size in SIZES[1:]], activation)


@pytest.mark.parametrize("activation", NUMPY_ACTIVATIONS)
def test_a_stack_is_its_members_side_by_side(activation: str) -> None:
    stack, rng = some_stack(activation), np.random.default_rng(0)
    shared, own = rng.normal(size=(6, 3)), rng.normal(size=(4, 6, 3))
    for_all, for_each = jax.jit(apply_stack)(stack, shared), jax.jit(apply_each)(stack, own)
    assert for_all.shape == for_each.shape == (4, 6, 2)
    for m in range(4):
        member = jax.tree.map(lambda leaf, m=m: leaf[m], stack)
        expected = by_hand(member.weights, member.biases, activation, shared)
        np.testing.assert_allclose(for_all[m], expected, rtol=1e-4, atol=1e-5)
        expected = by_hand(member.weights, member.biases, activation, own[m])
        np.testing.assert_allclose(for_each[m], expected, rtol=1e-4, atol=1e-5)


def test_leading_axes_pass_through() -> None:
    net = jax.tree.map(lambda leaf: leaf[0], some_stack())
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 3)), jnp.float32)
    assert net(x).shape == (2, 5, 2)
    assert net(x[0, 0]).shape == (2,)
    np.testing.assert_allclose(net(x)[1, 3], net(x[1, 3]), rtol=1e-5, atol=1e-6)


def test_new_weights_have_the_variance_of_one_over_fan_in() -> None:
    net = mlp(jax.random.PRNGKey(3), [64, 128, 32], last_scale=0.1)
    first, last = (np.asarray(w) for w in net.weights)
    assert first.var() == pytest.approx(1 / 64, rel=0.05)
    assert last.var() == pytest.approx(0.01 / 128, rel=0.05)
    assert np.abs(first).max() <= (3 / 64) ** 0.5
    assert all(np.all(np.asarray(b) == 0) for b in net.biases)


def test_layers_and_members_have_different_initial_weights() -> None:
    stack = mlp_stack(jax.random.PRNGKey(0), 3, [4, 4, 4])
    drawn = [np.asarray(w)[m].tobytes() for w in stack.weights for m in range(3)]
    assert len(set(drawn)) == 6


def test_a_moving_average_goes_part_of_the_way() -> None:
    target, online = {"a": jnp.array([1.0, -2.0])}, {"a": jnp.array([3.0, 2.0])}
    np.testing.assert_allclose(moving_average(target, online, 0.25)["a"], [1.5, -1.0])
    np.testing.assert_array_equal(moving_average(target, online, 0.0)["a"], target["a"])
    np.testing.assert_array_equal(moving_average(target, online, 1.0)["a"], online["a"])


def test_layer_norm_standardises_every_hidden_layer() -> None:
    net = mlp(jax.random.PRNGKey(0), [3, 8, 6, 2], layer_norm=True)
    x = np.random.default_rng(0).normal(size=(5, 3))
    h = x
    for w, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
        h = h @ np.asarray(w, np.float64) + np.asarray(b)
        h = (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + 1e-6)
        h = h / (1.0 + np.exp(-h))
    expected = h @ np.asarray(net.weights[-1], np.float64) + np.asarray(net.biases[-1])
    np.testing.assert_allclose(
        jax.jit(lambda net, x: net(x))(net, x.astype(np.float32)), expected, rtol=1e-4, atol=1e-5
    )
