"""Prop. 1, Prop. 2, Lemma 1 and Thm. 2, for a fixed posterior."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.theory import (
    FiniteEnsemble,
    evaluation_operator,
    expected_return,
    fixed_point,
    greedy_policy,
    kl_divergence,
    occupancy,
    optimality_operator,
    policy_value,
    regularised_optimum,
    regularised_return,
    soft_value,
    state_values,
    target_variance,
    trust_region_policy,
)
from tests.theory.theory_cases import Case, cases, make_case, sup

scales = st.sampled_from([1e-3, 1.0, 1e3])


@given(cases(), scales)
@settings(max_examples=60, deadline=None)
def test_prop_1_the_evaluation_operator_contracts_by_gamma(case: Case, scale: float) -> None:
    operator = partial(evaluation_operator, case.ensemble, case.posterior, case.policy)
    first, second = case.some_q(scale), case.some_q(scale)
    assert sup(operator(first) - operator(second)) <= case.ensemble.gamma * sup(first - second) * (1 + 1e-9) + 1e-12


@given(cases())
@settings(max_examples=20, deadline=None)
def test_prop_1_the_factor_gamma_is_attained(case: Case) -> None:
    operator = partial(evaluation_operator, case.ensemble, case.posterior, case.policy)
    q = case.some_q()
    np.testing.assert_allclose(sup(operator(q + 1.0) - operator(q)), case.ensemble.gamma, atol=1e-12)


@given(cases())
@settings(max_examples=20, deadline=None)
def test_the_evaluation_fixed_point_is_the_value_in_j(case: Case) -> None:
    e = case.ensemble
    operator = partial(evaluation_operator, e, case.posterior, case.policy)
    q = fixed_point(operator, case.some_q(10.0), tolerance=1e-11)
    value = policy_value(q, case.policy)
    np.testing.assert_allclose(value, state_values(e, case.posterior, case.policy), atol=1e-8)
    np.testing.assert_allclose(e.initial @ value, expected_return(e, case.posterior, case.policy), atol=1e-8)


@given(cases(), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_prop_2_the_variance_of_the_target_is_bounded(case: Case, soft: bool, draw_next_state: bool) -> None:
    e = case.ensemble
    # The proof's assumption |Q| <= R_max / (1 - gamma), at its edges: extreme values make the largest variance.
    q = e.value_bound * case.rng.choice([-1.0, 1.0], size=case.shape)
    value = soft_value(q, case.mu, case.alpha) if soft else policy_value(q, case.policy)
    variance = target_variance(e, case.posterior, value, draw_next_state)
    assert np.all(variance >= 0.0)
    assert np.all(variance <= e.value_bound**2)


def opposite_states(gamma: float) -> FiniteEnsemble:
    """Two absorbing states that pay +1 and -1, and a third from which two models lead to one of them each."""
    transitions = np.zeros((2, 3, 1, 3))
    transitions[:, 0, 0, 0] = transitions[:, 1, 0, 1] = 1.0
    transitions[0, 2, 0, 0] = transitions[1, 2, 0, 1] = 1.0
    reward = np.array([[1.0], [-1.0], [0.0]])
    return FiniteEnsemble(transitions, reward, np.array([0.5, 0.5]), gamma, np.array([0.0, 0.0, 1.0]))


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99])
def test_prop_2_is_tight_up_to_gamma_squared_and_needs_its_assumption(gamma: float) -> None:
    ensemble = opposite_states(gamma)
    posterior = np.full((2, 3, 1), 0.5)
    value = ensemble.value_bound * np.array([1.0, -1.0, 0.0])
    bound = ensemble.value_bound**2
    np.testing.assert_allclose(target_variance(ensemble, posterior, value)[2, 0], gamma**2 * bound)
    # Values outside [-R_max/(1-gamma), R_max/(1-gamma)], as a badly initialised critic may have, break the bound.
    assert target_variance(ensemble, posterior, 1.1 / gamma * value)[2, 0] > bound


@given(cases(), scales)
@settings(max_examples=60, deadline=None)
def test_lemma_1_the_soft_value_is_1_lipschitz(case: Case, scale: float) -> None:
    first, second = case.some_q(scale), case.some_q(scale)
    moved = sup(soft_value(first, case.mu, case.alpha) - soft_value(second, case.mu, case.alpha))
    assert moved <= sup(first - second) * (1 + 1e-9) + 1e-12


@given(cases(), scales)
@settings(max_examples=40, deadline=None)
def test_the_soft_value_is_the_maximum_of_the_penalised_mean(case: Case, scale: float) -> None:
    q = case.some_q(scale)

    def penalised(policy: np.ndarray) -> np.ndarray:
        return policy_value(q, policy) - case.alpha * kl_divergence(policy, case.mu)

    best = soft_value(q, case.mu, case.alpha)
    greedy = greedy_policy(q, case.mu, case.alpha)
    slack = 1e-9 * (1.0 + scale)
    np.testing.assert_allclose(penalised(greedy), best, atol=slack)
    for candidate in (case.mu, case.some_policy(), case.some_policy(0.1)):
        assert np.all(penalised(candidate) <= best + slack)
        assert np.all(penalised(0.99 * greedy + 0.01 * candidate) <= best + slack)


@given(cases(), scales)
@settings(max_examples=40, deadline=None)
def test_thm_2_the_optimality_operator_contracts_by_gamma(case: Case, scale: float) -> None:
    operator = partial(optimality_operator, case.ensemble, case.posterior, case.mu, case.alpha)
    first, second = case.some_q(scale), case.some_q(scale)
    assert sup(operator(first) - operator(second)) <= case.ensemble.gamma * sup(first - second) * (1 + 1e-9) + 1e-12


@given(cases())
@settings(max_examples=15, deadline=None)
def test_thm_2_one_fixed_point_from_many_starts(case: Case) -> None:
    operator = partial(optimality_operator, case.ensemble, case.posterior, case.mu, case.alpha)
    starts = [np.zeros(case.shape), case.some_q(1.0), case.some_q(1e3), np.full(case.shape, -1e3)]
    ends = [fixed_point(operator, start, tolerance=1e-11) for start in starts]
    np.testing.assert_allclose(operator(ends[0]), ends[0], atol=1e-9)
    for end in ends[1:]:
        np.testing.assert_allclose(end, ends[0], atol=1e-8)


@given(cases(min_actions=2))
@settings(max_examples=25, deadline=None)
def test_thm_2_the_policy_of_the_fixed_point_is_optimal_for_the_regularised_return(case: Case) -> None:
    e = case.ensemble
    operator = partial(optimality_operator, e, case.posterior, case.mu, case.alpha)
    q = fixed_point(operator, np.zeros(case.shape), tolerance=1e-12)
    optimal = greedy_policy(q, case.mu, case.alpha)
    best = regularised_return(e, case.posterior, optimal, case.mu, case.alpha)
    # The fixed point also predicts the return it gets.
    np.testing.assert_allclose(best, e.initial @ soft_value(q, case.mu, case.alpha), atol=1e-8)
    for concentration in (0.1, 1.0, 10.0):
        candidate = case.some_policy(concentration)
        for share in (1.0, 0.1, 0.01):
            mixed = share * candidate + (1.0 - share) * optimal
            loss = best - regularised_return(e, case.posterior, mixed, case.mu, case.alpha)
            assert loss > -1e-9
            # How much worse, exactly: alpha KL(pi || pi*) over the other policy's visits. Zero only for pi* itself.
            distance = case.alpha * occupancy(e, case.posterior, mixed) @ kl_divergence(mixed, optimal)
            np.testing.assert_allclose(loss, distance, rtol=1e-6, atol=1e-8)


@given(cases())
@settings(max_examples=20, deadline=None)
def test_soft_policy_iteration_finds_the_policy_of_value_iteration(case: Case) -> None:
    operator = partial(optimality_operator, case.ensemble, case.posterior, case.mu, case.alpha)
    q = fixed_point(operator, np.zeros(case.shape), tolerance=1e-12)
    newton = regularised_optimum(case.ensemble, case.posterior, case.mu, case.alpha, start=case.policy)
    np.testing.assert_allclose(newton, greedy_policy(q, case.mu, case.alpha), atol=1e-7)


@given(cases(min_actions=2), st.sampled_from([0.0, 0.1, 1.0, 30.0]))
@settings(max_examples=40, deadline=None)
def test_the_trust_region_policy_maximises_the_doubly_penalised_mean(case: Case, lam: float) -> None:
    q, previous = case.some_q(), case.some_policy()

    def penalised(policy: np.ndarray) -> np.ndarray:
        penalty = case.alpha * kl_divergence(policy, case.mu) + lam * kl_divergence(policy, previous)
        return policy_value(q, policy) - penalty

    solution = trust_region_policy(q, case.mu, previous, case.alpha, lam)
    best = penalised(solution)
    for candidate in (case.mu, previous, case.some_policy(), case.some_policy(0.1)):
        assert np.all(penalised(candidate) < best)
        for share in (0.1, 0.001):
            assert np.all(penalised(share * candidate + (1.0 - share) * solution) <= best + 1e-11)


def test_the_trust_region_policy_at_its_two_ends() -> None:
    case = make_case(seed=0)
    q, previous = case.some_q(), case.some_policy()
    free = trust_region_policy(q, case.mu, previous, case.alpha, lam=0.0)
    np.testing.assert_allclose(free, greedy_policy(q, case.mu, case.alpha), atol=1e-12)
    tied = trust_region_policy(q, case.mu, previous, case.alpha, lam=1e9)
    np.testing.assert_allclose(tied, previous, atol=1e-7)


def test_soft_values_and_policies_survive_large_q_and_missing_actions() -> None:
    q = np.array([[1e6, 1e6 + 1.0, 2e6]])
    mu = np.array([[0.5, 0.5, 0.0]])
    alpha = 1e-3
    np.testing.assert_allclose(soft_value(q, mu, alpha), [1e6 + 1.0 + alpha * np.log(0.5)], rtol=1e-12)
    np.testing.assert_allclose(greedy_policy(q, mu, alpha), [[0.0, 1.0, 0.0]], atol=1e-12)


def test_a_map_without_fixed_point_is_reported() -> None:
    with pytest.raises(RuntimeError, match="contraction"):
        fixed_point(lambda q: q + 1.0, np.zeros((1, 1)), max_iterations=10)


def test_kl_divergence_on_the_edge_of_the_simplex() -> None:
    half, corner = np.array([0.5, 0.5]), np.array([1.0, 0.0])
    assert kl_divergence(corner, corner) == 0.0
    np.testing.assert_allclose(kl_divergence(corner, half), np.log(2.0))
    assert kl_divergence(half, corner) == np.inf
