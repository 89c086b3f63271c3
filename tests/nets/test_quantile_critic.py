"""The critic of the distribution of returns: its formula and its initial weights."""

from __future__ import annotations

import jax
import numpy as np

from pspo.nets.mlp import MLP
from pspo.nets.quantiles import QuantileCritic, cosines, quantile_critic
from tests.algorithms.baseline_cases import made_mlp
from tests.arrays import f32

FEATURES, ACT, WIDTH, BATCH = 3, 2, 6, 5
RNG = np.random.default_rng(0)
S, A = RNG.normal(size=(BATCH, FEATURES)), RNG.uniform(-1, 1, size=(BATCH, ACT))
TAU = np.array([0.0, 0.05, 0.3, 0.99])


CRITIC = QuantileCritic(
    made_mlp(RNG, [FEATURES, WIDTH]),
    made_mlp(RNG, [ACT, WIDTH]),
    made_mlp(RNG, [2 * WIDTH, 16]),
    made_mlp(RNG, [16, 16]),
    made_mlp(RNG, [16, 32, 1]),
)
evaluate = jax.jit(lambda critic, features, action, tau: critic(features, action, tau))


def layer(net: MLP, i: int, x: np.ndarray) -> np.ndarray:
    return x @ np.asarray(net.weights[i], np.float64) + np.asarray(net.biases[i], np.float64)


def by_hand(critic: QuantileCritic, s: np.ndarray, a: np.ndarray, tau: float) -> float:
    """One row and one level at a time, in double precision."""
    branches = [np.maximum(layer(critic.state, 0, s), 0.0), np.maximum(layer(critic.action, 0, a), 0.0)]
    joint = np.maximum(layer(critic.joint, 0, np.concatenate(branches)), 0.0)
    level = np.maximum(layer(critic.level, 0, np.array([np.cos(np.pi * i * tau) for i in range(16)])), 0.0)
    return layer(critic.head, 1, np.maximum(layer(critic.head, 0, joint * level), 0.0)).item()


def test_every_level_is_evaluated_for_every_state() -> None:
    result = evaluate(CRITIC, f32(S), f32(A), f32(TAU))
    expected = [[by_hand(CRITIC, s, a, tau) for s, a in zip(S, A, strict=True)] for tau in TAU]
    assert result.shape == (len(TAU), BATCH)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_the_cosines_begin_with_a_constant_and_alternate_at_the_highest_level() -> None:
    result = np.asarray(cosines(f32([0.0, 0.5, 1.0])))
    np.testing.assert_allclose(result[0], np.ones(16), atol=1e-5)
    np.testing.assert_allclose(result[1], np.tile([1.0, 0.0, -1.0, 0.0], 4), atol=1e-5)
    np.testing.assert_allclose(result[2], np.tile([1.0, -1.0], 8), atol=1e-5)


def test_a_new_critic_has_the_shapes_and_weights_of_its_authors() -> None:
    net = jax.jit(lambda key: quantile_critic(key, FEATURES, ACT, 256))(jax.random.PRNGKey(0))
    shapes = [[w.shape for w in part.weights] for part in (net.state, net.action, net.joint, net.level, net.head)]
    assert shapes == [[(FEATURES, 256)], [(ACT, 256)], [(512, 16)], [(16, 16)], [(16, 32), (32, 1)]]
    for w in (net.state.weights[0], net.action.weights[0], net.joint.weights[0], net.head.weights[0]):
        assert abs(np.std(w) - 0.1) < 0.01  # whatever the fan-in
        assert np.abs(w).max() > 0.2  # and normal, not uniform
    for part in (net.state, net.action, net.joint, net.level):
        bound = part.weights[0].shape[0] ** -0.5
        assert 0.5 * bound < np.abs(part.biases[0]).max() <= bound
    assert 1e-4 < np.abs(net.head.weights[1]).max() <= 3e-4
    assert np.all(np.asarray(net.head.biases[1]) == 0.0)
