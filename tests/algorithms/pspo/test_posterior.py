"""The posterior over models, Eq. (4), against NumPy and at its extremes."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.algorithms.pspo import posterior

consistency = jax.jit(posterior.consistency)
log_posterior = jax.jit(posterior.log_posterior)
entropy = jax.jit(posterior.entropy)
likelihood_log_prior = jax.jit(posterior.likelihood_log_prior)

seeds = st.integers(0, 2**32 - 1)
models = st.sampled_from([1, 2, 6])


def some(seed: int, count: int, batch: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Log-prior and F."""
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.ones(count)) + 0.01
    return np.log(prior / prior.sum()), rng.gamma(1.0, 2.0, size=(count, batch))


def test_consistency_is_the_squared_difference() -> None:
    q, backups = np.array([1.0, -2.0]), np.array([[0.0, 0.0], [1.5, -5.0]])
    np.testing.assert_allclose(consistency(q, backups), [[1.0, 4.0], [0.25, 9.0]])


@given(seeds, models, st.sampled_from([0.0, 0.1, 1.0, 5.0]))
@settings(max_examples=50, deadline=None)
def test_weights_are_prior_times_exponential_normalised_per_row(seed, count, beta) -> None:
    log_prior, f = some(seed, count)
    expected = np.exp(log_prior)[:, None] * np.exp(-beta * f)
    expected /= expected.sum(axis=0)
    np.testing.assert_allclose(np.exp(log_posterior(log_prior, f, beta)), expected, rtol=1e-4, atol=1e-6)


@given(seeds, models)
@settings(max_examples=20, deadline=None)
def test_beta_zero_is_the_prior_whatever_f(seed, count) -> None:
    log_prior, f = some(seed, count)
    found = np.exp(log_posterior(log_prior, f * 1e6, 0.0))
    np.testing.assert_allclose(found, np.broadcast_to(np.exp(log_prior)[:, None], f.shape), rtol=1e-5)


@given(seeds, st.sampled_from([0.1, 1.0, 5.0]), st.integers(0, 5), st.floats(0, 10))
@settings(max_examples=50, deadline=None)
def test_a_larger_f_never_gets_more_mass(seed, beta, which, more) -> None:
    log_prior, f = some(seed, 6)
    raised = f.copy()
    raised[which] += more
    before, after = (np.exp(log_posterior(log_prior, values, beta)) for values in (f, raised))
    assert np.all(after[which] <= before[which] + 1e-6)
    others = np.delete(np.arange(6), which)
    assert np.all(after[others] >= before[others] - 1e-6)


@given(seeds, models, st.sampled_from([0.0, 1.0, 100.0]))
@settings(max_examples=40, deadline=None)
def test_entropy_is_minus_the_sum_of_p_log_p_between_zero_and_log_n(seed, count, beta) -> None:
    log_prior, f = some(seed, count)
    log_weight = np.asarray(log_posterior(log_prior, f, beta), np.float64)
    found = np.asarray(entropy(log_weight))
    np.testing.assert_allclose(found, -(np.exp(log_weight) * log_weight).sum(axis=0), rtol=1e-4, atol=1e-5)
    assert np.all(found >= -1e-4)  # float32: large beta F leave log-weights normalised to a few digits less
    assert np.all(found <= np.log(count) + 1e-4)


def test_entropy_at_its_ends() -> None:
    uniform = np.full((4, 1), -np.log(4.0))
    certain = np.array([[0.0], [-np.inf], [-np.inf], [-np.inf]])
    assert float(entropy(uniform)[0]) == pytest.approx(np.log(4.0), rel=1e-6)
    assert float(entropy(certain)[0]) == 0.0


def test_extreme_f_is_never_nan() -> None:
    log_prior = np.log(np.full(3, 1 / 3))
    f = np.array([[0.0, 1e30, 1e30, 1e-30, 0.0], [1e30, 1e30, 0.0, 1e-30, 1e38], [np.inf, 1e30, 1e30, 0.0, np.inf]])
    log_weight = log_posterior(log_prior, f, 1.0)
    weight = np.exp(log_weight)
    assert not np.isnan(weight).any()
    np.testing.assert_allclose(weight.sum(axis=0), 1.0, rtol=1e-6)
    np.testing.assert_allclose(weight[:, 0], [1, 0, 0], atol=1e-6)
    np.testing.assert_allclose(weight[:, 1], 1 / 3, rtol=1e-5)
    assert not np.isnan(entropy(log_weight)).any()


def test_the_likelihood_prior_is_e_times_lighter_per_temperature() -> None:
    holdout = np.array([0.3, 0.35, 0.2, 0.2])
    found = np.exp(likelihood_log_prior(holdout, 0.05))
    expected = np.exp(-holdout / 0.05)
    np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-4)
    assert found[0] / found[1] == pytest.approx(np.e, rel=1e-4)
    assert found.argmax() in (2, 3)


def test_the_likelihood_prior_survives_hopeless_members() -> None:
    found = np.asarray(likelihood_log_prior(np.array([-3.0, 1e20, 500.0]), 1e-6))
    assert not np.isnan(found).any()
    np.testing.assert_allclose(np.exp(found), [1.0, 0.0, 0.0], atol=1e-6)
