"""The closed forms on sampled actions, against plain NumPy written from the equations."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.algorithms.pspo import improvement

soft_value = jax.jit(improvement.soft_value)  # compiled once per shape: hypothesis calls them often
improvement_log_weights = jax.jit(improvement.improvement_log_weights)
balance_heuristic = jax.jit(improvement.balance_heuristic)

seeds = st.integers(0, 2**32 - 1)
sizes = st.sampled_from([1, 2, 9])
temperatures = st.sampled_from([0.01, 0.1, 1.0, 10.0])


def distribution(rng: np.random.Generator, actions: int) -> np.ndarray:
    """Probabilities bounded away from zero, so that float32 logarithms of them are good to six digits."""
    p = rng.dirichlet(np.ones(actions)) + 0.01
    return p / p.sum()


@given(seeds, sizes, temperatures)
@settings(max_examples=60, deadline=None)
def test_soft_value_is_alpha_log_mean_of_the_weighted_exponentials(seed, samples, alpha) -> None:
    rng = np.random.default_rng(seed)
    q, log_mu, log_proposal = rng.normal(size=(3, samples, 3))
    ratio = np.exp(log_mu) / np.exp(log_proposal)
    expected = alpha * np.log(np.mean(ratio * np.exp(q / alpha), axis=0))
    found = soft_value(q, log_mu, log_proposal, alpha)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * max(1.0, alpha))


@given(seeds, sizes, temperatures)
@settings(max_examples=40, deadline=None)
def test_soft_value_of_every_action_once_is_the_sum_over_mu(seed, actions, alpha) -> None:
    """Uniform proposal, each action drawn once: the estimate has no noise left, it is Eq. (8) itself."""
    rng = np.random.default_rng(seed)
    mu, q = distribution(rng, actions), rng.normal(size=actions)
    expected = alpha * np.log(np.sum(mu * np.exp(q / alpha)))
    log_proposal = np.full((actions, 1), -np.log(actions))
    found = soft_value(q[:, None], np.log(mu)[:, None], log_proposal, alpha)
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5 * max(1.0, alpha))


def test_a_hot_soft_value_is_the_mean_and_a_cold_one_the_maximum() -> None:
    q = np.random.default_rng(0).normal(size=(16, 5)).astype(np.float32)
    same = np.zeros_like(q)
    hot = soft_value(q, same, same, 300.0)
    np.testing.assert_allclose(hot, q.mean(axis=0), atol=5e-3)  # the second-order term is Var(Q) / (2 alpha)
    cold = np.asarray(soft_value(q, same, same, 1e-4))
    assert np.all(cold <= q.max(axis=0) + 1e-6)
    assert np.all(cold >= q.max(axis=0) - 1e-4 * np.log(16) - 1e-6)


def test_a_soft_value_survives_exponentials_that_overflow() -> None:
    q, zero = np.array([[1000.0], [999.0]]), np.zeros((2, 1))
    assert float(soft_value(q, zero, zero, 0.01)[0]) == pytest.approx(1000.0, abs=0.01)
    assert float(soft_value(-q, zero, zero, 0.01)[0]) == pytest.approx(-999.0, abs=0.01)


@given(seeds, sizes, temperatures, st.floats(0.0, 5.0))
@settings(max_examples=60, deadline=None)
def test_soft_value_is_1_lipschitz_and_moves_with_a_constant(seed, samples, alpha, size) -> None:
    rng = np.random.default_rng(seed)
    q, log_mu, log_proposal = rng.normal(size=(3, samples, 3))
    change = rng.uniform(-size, size, size=(samples, 3))
    before = soft_value(q, log_mu, log_proposal, alpha)
    after = soft_value(q + change, log_mu, log_proposal, alpha)
    slack = 1e-5 * max(1.0, alpha)
    assert np.all(np.abs(after - before) <= np.abs(change).max(axis=0) + slack)
    np.testing.assert_allclose(soft_value(q + size, log_mu, log_proposal, alpha), before + size, rtol=1e-5, atol=slack)


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_the_balance_heuristic_is_the_density_of_half_and_half(seed) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(0.01, 3.0, size=(2, 7))
    found = balance_heuristic(np.log(a), np.log(b))
    np.testing.assert_allclose(np.exp(found), (a + b) / 2, rtol=1e-5)
    np.testing.assert_array_equal(found, balance_heuristic(np.log(b), np.log(a)))


def test_the_balance_heuristic_of_an_impossible_action_is_half_the_other_density() -> None:
    found = balance_heuristic(np.array([-np.inf, -200.0]), np.array([0.3, -200.0]))
    np.testing.assert_allclose(found, [0.3 - np.log(2), -200.0], rtol=1e-6)


@given(seeds, st.sampled_from([2, 7]), temperatures, temperatures)
@settings(max_examples=60, deadline=None)
def test_improvement_weights_are_the_closed_form(seed, actions, alpha, multiplier) -> None:
    rng = np.random.default_rng(seed)
    mu, target, q = distribution(rng, actions), distribution(rng, actions), rng.uniform(-1, 1, size=actions)
    share = alpha / (alpha + multiplier)
    expected = mu**share * target ** (1 - share) * np.exp(q / (alpha + multiplier))
    expected /= expected.sum()
    found = np.exp(weights_of_every_action_once(q, mu, target, alpha, multiplier))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)


@given(seeds, st.sampled_from([2, 7]), temperatures, temperatures)
@settings(max_examples=30, deadline=None)
def test_no_other_policy_does_better_inside_the_trust_region(seed, actions, alpha, multiplier) -> None:
    """The weights maximise E[Q] - alpha KL(pi||mu) - lambda KL(pi||pi'): other policies, far and close, do worse."""
    rng = np.random.default_rng(seed)
    mu, target, q = distribution(rng, actions), distribution(rng, actions), rng.uniform(-1, 1, size=actions)

    def objective(pi: np.ndarray) -> float:
        log_pi = np.log(np.maximum(pi, 1e-300))
        return float(pi @ (q - alpha * (log_pi - np.log(mu)) - multiplier * (log_pi - np.log(target))))

    best = np.exp(weights_of_every_action_once(q, mu, target, alpha, multiplier).astype(np.float64))
    best /= best.sum()
    for share in (1.0, 0.3, 0.05):
        other = share * distribution(rng, actions) + (1 - share) * best
        assert objective(other) <= objective(best) + 1e-6


@given(seeds, temperatures)
@settings(max_examples=30, deadline=None)
def test_improvement_weights_undo_the_proposal(seed, alpha) -> None:
    """Weights are target density over proposal density, normalised, whatever the proposal."""
    rng = np.random.default_rng(seed)
    q, log_mu, log_target, log_proposal = rng.normal(size=(4, 9, 2))
    multiplier = 0.7
    density = (np.exp(log_mu) ** alpha * np.exp(log_target) ** multiplier * np.exp(q)) ** (1 / (alpha + multiplier))
    expected = density / np.exp(log_proposal)
    expected /= expected.sum(axis=0)
    found = np.exp(improvement_log_weights(q, log_mu, log_target, log_proposal, alpha, multiplier))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)


def test_improvement_weights_in_their_limits() -> None:
    rng = np.random.default_rng(1)
    mu, target, q = distribution(rng, 5), distribution(rng, 5), rng.normal(size=5)

    def weights(alpha, multiplier):
        return np.exp(weights_of_every_action_once(q, mu, target, alpha, multiplier))

    np.testing.assert_allclose(weights(0.1, 1e5), target, atol=1e-4)
    np.testing.assert_allclose(weights(1e5, 0.1), mu, atol=1e-4)
    greedy = weights(0.0, 1e-3)
    assert greedy[np.argmax(q)] > 0.999
    without_mu = target * np.exp(q / 0.5)
    np.testing.assert_allclose(weights(0.0, 0.5), without_mu / without_mu.sum(), rtol=1e-4)


def weights_of_every_action_once(q, mu, target, alpha, multiplier) -> np.ndarray:
    """On a finite action set with the uniform proposal the weights are the improved policy itself."""
    log_proposal = np.full((len(q), 1), -np.log(len(q)))
    columns = (a[:, None] for a in (q, np.log(mu), np.log(target)))
    return np.asarray(improvement_log_weights(*columns, log_proposal, alpha, multiplier))[:, 0]
