"""The natural policy gradient's pieces: advantages that end where paths do, Fisher products, conjugate gradients."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from pspo.algorithms.common.natural_gradient import (
    advantages,
    conjugate_gradient,
    discounted_sums,
    fisher_product,
    gaussian_kl,
    natural_step,
    whitened,
)
from pspo.nets.actors import LinearGaussian
from pspo.nets.mlp import MLP
from tests.arrays import f32

RNG = np.random.default_rng(0)
TIME, PATHS = 6, 4
LAST = np.array([2, 5, 5, 0])  # the last step of each path
TERMINAL = np.zeros((TIME, PATHS), bool)
TERMINAL[[2, 5, 0], [0, 1, 3]] = True  # one halts, one ends with the rollout, one halts at once; the third is cut off
ALIVE = np.arange(TIME)[:, None] <= LAST
GAMMA, TRACE = 0.9, 0.7


REWARD, VALUE = RNG.normal(size=(TIME, PATHS)), RNG.normal(size=(TIME + 1, PATHS))


@jax.jit
def both_computed(reward: Any, value: Any, next_value: Any, terminal: Any) -> Any:
    alive = jnp.asarray(ALIVE)
    found = advantages(
        reward=reward,
        value=value,
        next_value=next_value,
        terminal=terminal,
        alive=alive,
        gamma=GAMMA,
        trace=TRACE,
    )
    return found, discounted_sums(reward, alive, GAMMA), whitened(found, alive)


def test_advantages_and_returns_are_those_of_each_path_alone() -> None:
    """Path by path in double precision: only the one that was cut off has a value at its end."""
    found = both_computed(f32(REWARD), f32(VALUE[:-1]), f32(VALUE[1:]), TERMINAL)
    expected, returns = np.zeros((TIME, PATHS)), np.zeros((TIME, PATHS))
    for p in range(PATHS):
        steps = LAST[p] + 1
        after = VALUE[1 : steps + 1, p] * ~TERMINAL[:steps, p]
        error = REWARD[:steps, p] + GAMMA * after - VALUE[:steps, p]
        for t in range(steps):
            fade = np.arange(steps - t)
            expected[t, p] = ((GAMMA * TRACE) ** fade * error[t:]).sum()
            returns[t, p] = (GAMMA**fade * REWARD[t:steps, p]).sum()
    counted = expected[ALIVE]
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1], returns, rtol=1e-5, atol=1e-6)
    by_hand = np.where(ALIVE, (expected - counted.mean()) / counted.std(), 0.0)
    np.testing.assert_allclose(found[2], by_hand, rtol=1e-4, atol=1e-5)


def test_nothing_after_a_halt_or_an_end_counts() -> None:
    """Rewards and values of steps that never happened, and the value of the state that a terminal step reached."""
    here = both_computed(f32(REWARD), f32(VALUE[:-1]), f32(VALUE[1:]), TERMINAL)
    reward, value, after = np.where(ALIVE, REWARD, 1e3), np.where(ALIVE, VALUE[:-1], -1e3), VALUE[1:].copy()
    after[TERMINAL | ~ALIVE] = 1e4
    for a, b in zip(here, both_computed(f32(reward), f32(value), f32(after), TERMINAL), strict=True):
        np.testing.assert_array_equal(a, b)
    cut_off = VALUE[1:].copy()
    cut_off[-1, 2] += 1.0  # and what follows a cut does count
    changed = both_computed(f32(REWARD), f32(VALUE[:-1]), f32(cut_off), TERMINAL)[0] - here[0]
    by_hand = GAMMA * (GAMMA * TRACE) ** np.arange(TIME)[::-1]
    np.testing.assert_allclose(changed[:, 2], by_hand, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(changed[:, [0, 1, 3]], 0.0)


def test_advantages_that_are_all_the_same_are_no_advantage() -> None:
    assert np.all(np.asarray(whitened(jnp.full((TIME, PATHS), 3.0), jnp.asarray(ALIVE))) == 0.0)


# The step

SIZES = [2, 3, 2]
ROWS = RNG.normal(size=(5, 2))
WEIGHT = np.array([0.1, 0.3, 0.0, 0.4, 0.2])
THETA = RNG.normal(scale=0.7, size=2 * 3 + 3 + 3 * 2 + 2 + 2)


def unpacked(theta: Any) -> tuple[list[Any], list[Any], Any]:
    weights, biases, at = [], [], 0
    for a, b in pairwise(SIZES):
        weights.append(theta[at : at + a * b].reshape(a, b))
        biases.append(theta[at + a * b : at + a * b + b])
        at += a * b + b
    return weights, biases, theta[at:]


def policy(theta: Any) -> LinearGaussian:
    weights, biases, log_std = unpacked(jnp.asarray(theta, jnp.float32))
    return LinearGaussian(MLP(weights, biases, "tanh"), log_std)


def packed(policy: LinearGaussian) -> np.ndarray:
    layers = [part for pair in zip(policy.net.weights, policy.net.biases, strict=True) for part in pair]
    return np.concatenate([np.ravel(part) for part in (*layers, policy.log_std)])


def moments_by_hand(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    (w0, w1), (b0, b1), log_std = unpacked(theta)
    return np.tanh(ROWS @ w0 + b0) @ w1 + b1, log_std


def explicit_fisher(theta: np.ndarray) -> np.ndarray:
    """E[score score'] over actions by Gauss-Hermite quadrature (exact here), scores by central differences."""
    node, share = np.polynomial.hermite_e.hermegauss(5)
    noise = np.stack(np.meshgrid(node, node), axis=-1).reshape(-1, 1, 2)
    odds = np.outer(share, share).ravel() / share.sum() ** 2
    mean, log_std = moments_by_hand(theta)
    action = mean + np.exp(log_std) * noise  # (nodes, rows, columns)

    def density(theta: np.ndarray) -> np.ndarray:
        mean, log_std = moments_by_hand(theta)
        return scipy.stats.norm.logpdf(action, mean, np.exp(log_std)).sum(-1)

    reach = 1e-5 * np.eye(len(theta))
    score = np.stack([(density(theta + e) - density(theta - e)) / 2e-5 for e in reach])
    return np.einsum("inr,jnr,n,r->ij", score, score, odds, WEIGHT)


def test_a_fisher_product_is_that_of_the_explicit_matrix() -> None:
    directions = RNG.normal(size=(3, THETA.size))

    @jax.jit
    def products(theta: Any, directions: Any) -> Any:
        product = fisher_product(policy(theta), f32(ROWS), f32(WEIGHT), 0.3)
        return [product(policy(v)) for v in directions]

    fisher = explicit_fisher(THETA)
    assert np.linalg.matrix_rank(fisher) == 4 * 2 + 2  # rows that count by columns, and the standard deviations
    for v, found in zip(directions, products(f32(THETA), f32(directions)), strict=True):
        np.testing.assert_allclose(packed(found), fisher @ v + 0.3 * v, rtol=1e-4, atol=1e-4)


def test_conjugate_gradients_solve_a_known_system() -> None:
    """Over a tree; with as many iterations as unknowns, and nearly so with fewer."""
    half = RNG.normal(size=(6, 6))
    matrix, right = half @ half.T + np.eye(6), RNG.normal(size=6)
    tree = {"a": f32(right[:2]), "b": f32(right[2:])}

    def product(x: Any) -> Any:
        out = f32(matrix) @ jnp.concatenate([x["a"], x["b"]])
        return {"a": out[:2], "b": out[2:]}

    whole, short = (jax.jit(lambda n=n: conjugate_gradient(product, tree, n))() for n in (6, 1))
    np.testing.assert_allclose(np.concatenate([whole["a"], whole["b"]]), np.linalg.solve(matrix, right), rtol=1e-3)
    first = right * (right @ right) / (right @ matrix @ right)  # one iteration is steepest descent
    np.testing.assert_allclose(np.concatenate([short["a"], short["b"]]), first, rtol=1e-4)


def test_a_natural_step_is_half_its_size_away_in_kl_divergence() -> None:
    """Without damping the step is as long as the formula says, and its KL is size / 2 to within a tenth."""
    gradient, size = RNG.normal(size=THETA.size), 0.004
    fisher = explicit_fisher(THETA)
    gradient = fisher @ gradient  # only what the rows can tell has a natural direction

    @jax.jit
    def step(theta: Any, gradient: Any) -> Any:
        here, slope = policy(theta), policy(gradient)
        direction = conjugate_gradient(fisher_product(here, f32(ROWS), f32(WEIGHT), 1e-6), slope, 60)
        new = natural_step(here, slope, direction, size)
        return new, gaussian_kl(*here.moments(f32(ROWS)), *new.moments(f32(ROWS)))

    new, kl = step(f32(THETA), f32(gradient))
    x = np.linalg.lstsq(fisher + 1e-6 * np.eye(THETA.size), gradient)[0]
    expected = THETA + np.sqrt(size / (gradient @ x)) * x
    assert np.abs(expected - THETA).max() > 0.02
    np.testing.assert_allclose(packed(new), expected, atol=5e-4)
    (mean, log_std), (after, new_log_std) = moments_by_hand(THETA), moments_by_hand(packed(new).astype(np.float64))
    std, new_std = np.exp(log_std), np.exp(new_log_std)
    by_hand = (np.log(new_std / std) + (std**2 + (mean - after) ** 2) / (2 * new_std**2) - 0.5).sum(1)
    np.testing.assert_allclose(kl, by_hand, rtol=1e-2, atol=1e-5)
    assert abs(WEIGHT @ by_hand / (size / 2) - 1.0) < 0.1


def test_without_a_gradient_there_is_no_step() -> None:
    here, zero = policy(THETA), policy(np.zeros_like(THETA))

    @jax.jit
    def step(here: Any, zero: Any) -> Any:
        direction = conjugate_gradient(fisher_product(here, f32(ROWS), f32(WEIGHT), 1e-3), zero, 5)
        return natural_step(here, zero, direction, 0.02)

    np.testing.assert_array_equal(packed(step(here, zero)), packed(here))
