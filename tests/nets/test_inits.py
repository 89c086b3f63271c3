"""Initial weights and biases, as in the code of the published algorithms."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

from pspo.nets.mlp import INITS, MLP, mlp, mlp_stack

SIZES = [30, 40, 20, 10]


@cache
def new_networks() -> dict[str, MLP]:
    """One of each, by one program; and a stack."""

    def make(key: Any) -> dict[str, MLP]:
        made = {name: mlp(key, SIZES, init=name) for name in INITS}
        return made | {"stack": mlp_stack(key, 2, [6, 4, 1], init="orthogonal")}

    return jax.tree.map(np.asarray, jax.jit(make)(jax.random.PRNGKey(0)))


def assert_uniform_within(array: np.ndarray, reach: float) -> None:
    assert np.abs(array).max() <= reach
    assert np.abs(array).max() > 0.75 * reach
    assert array.min() < 0.0 < array.max()
    if array.size >= 200:
        assert array.std() == pytest.approx(reach / np.sqrt(3.0), rel=0.1)


def test_the_names_of_initialisations_are_known() -> None:
    assert set(INITS) == {"torch", "orthogonal", "keras", "rlkit-critic", "rlkit-actor"}


def test_pytorchs_weights_are_uniform_within_one_over_root_fan_in() -> None:
    net = new_networks()["torch"]
    for fan_in, w, b in zip(SIZES[:-1], net.weights, net.biases, strict=True):
        assert_uniform_within(w, fan_in**-0.5)
        assert_uniform_within(b, fan_in**-0.5)


def test_orthogonal_weights_double_squared_lengths_in_every_layer() -> None:
    net = new_networks()["orthogonal"]
    for w, b in zip(net.weights, net.biases, strict=True):
        gram = w.T @ w if w.shape[0] >= w.shape[1] else w @ w.T
        np.testing.assert_allclose(gram, 2.0 * np.eye(min(w.shape)), atol=1e-5)
        np.testing.assert_array_equal(b, 0.0)
    stack = new_networks()["stack"]
    for w in stack.weights:
        for member in w:
            np.testing.assert_allclose(member.T @ member, 2.0 * np.eye(w.shape[-1]), atol=1e-5)
        assert not np.allclose(w[0], w[1])


def test_kerass_weights_have_glorots_variance_and_no_biases() -> None:
    net = new_networks()["keras"]
    for w, b in zip(net.weights, net.biases, strict=True):
        assert_uniform_within(w, (6.0 / sum(w.shape)) ** 0.5)
        np.testing.assert_array_equal(b, 0.0)


@pytest.mark.parametrize(("name", "reach"), [("rlkit-critic", 3e-3), ("rlkit-actor", 1e-3)])
def test_rlkits_networks_have_biases_of_a_tenth_and_a_small_last_layer(name: str, reach: float) -> None:
    net = new_networks()[name]
    for w, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
        assert_uniform_within(w, w.shape[1] ** -0.5)  # the fan-out, by its slip
        np.testing.assert_allclose(b, 0.1, rtol=1e-6)
    assert_uniform_within(net.weights[-1], reach)
    assert_uniform_within(net.biases[-1], reach)
