"""The posterior solves Eq. (4) (model:eq1)."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.theory import consistency, model_posterior, posterior_objective, soft_value
from tests.theory.theory_cases import Case, cases, make_case

betas = st.sampled_from([0.1, 1.0, 20.0])


def metric_of(case: Case) -> np.ndarray:
    q = case.some_q(2.0)
    return consistency(case.ensemble, q, soft_value(q, case.mu, case.alpha))


@given(cases(), betas)
@settings(max_examples=60, deadline=None)
def test_no_distribution_has_a_lower_objective(case: Case, beta: float) -> None:
    prior, metric = case.ensemble.prior, metric_of(case)
    posterior = model_posterior(prior, metric, beta)
    np.testing.assert_allclose(posterior.sum(axis=0), 1.0, atol=1e-12)
    best = posterior_objective(posterior, prior, metric, beta)
    for concentration in (0.1, 1.0, 10.0):
        other = case.some_posterior(concentration)
        for share in (1.0, 0.1, 0.001):  # far candidates and close ones
            mixed = share * other + (1.0 - share) * posterior
            assert np.all(posterior_objective(mixed, prior, metric, beta) >= best - 1e-10)


@given(cases(), betas)
@settings(max_examples=30, deadline=None)
def test_the_minimum_is_minus_log_of_the_evidence(case: Case, beta: float) -> None:
    prior, metric = case.ensemble.prior, metric_of(case)
    best = posterior_objective(model_posterior(prior, metric, beta), prior, metric, beta)
    evidence = (prior[:, None, None] * np.exp(-beta * metric)).sum(axis=0)
    np.testing.assert_allclose(best, -np.log(evidence), rtol=1e-9, atol=1e-9)


@given(cases())
@settings(max_examples=20, deadline=None)
def test_beta_zero_gives_the_prior(case: Case) -> None:
    posterior = model_posterior(case.ensemble.prior, metric_of(case), beta=0.0)
    expected = np.broadcast_to(case.ensemble.prior[:, None, None], posterior.shape)
    np.testing.assert_allclose(posterior, expected, atol=1e-15)


@given(cases(), betas)
@settings(max_examples=40, deadline=None)
def test_under_a_uniform_prior_a_less_consistent_model_never_gets_more_mass(case: Case, beta: float) -> None:
    metric = metric_of(case)
    n_models = case.ensemble.n_models
    posterior = model_posterior(np.full(n_models, 1.0 / n_models), metric, beta)
    worse = metric[:, None] > metric[None, :]
    heavier = posterior[:, None] > posterior[None, :]
    assert not np.any(worse & heavier)


def test_huge_metrics_do_not_underflow() -> None:
    case = make_case(seed=0, n_models=2)
    metric = np.full((2, *case.shape), 1e6)
    metric[1] += 1.0
    posterior = model_posterior(np.array([0.5, 0.5]), metric, beta=1.0)
    np.testing.assert_allclose(posterior[1] / posterior[0], np.exp(-1.0), rtol=1e-9)


def test_a_model_the_prior_excludes_stays_excluded() -> None:
    case = make_case(seed=0, n_models=2)
    posterior = model_posterior(np.array([0.0, 1.0]), metric_of(case), beta=1.0)
    np.testing.assert_array_equal(posterior[0], 0.0)
