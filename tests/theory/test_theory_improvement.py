"""Theorem 3: when a constrained step on the regularised return improves the plain one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings

from pspo.theory import (
    FiniteEnsemble,
    constrained_step,
    discounted_divergence,
    expected_return,
    fisher_inner,
    greedy_policy,
    improvement_condition,
    improvement_path,
    kl_divergence,
    occupancy,
    regularised_optimum,
    regularised_return,
    return_gradient,
)
from tests.theory.theory_cases import Case, cases, make_case


def bandit(reward: list[float]) -> tuple[FiniteEnsemble, np.ndarray]:
    """One state, one model, no future: J is the mean reward. Returned with its only posterior."""
    actions = len(reward)
    ensemble = FiniteEnsemble(np.ones((1, 1, actions, 1)), np.array([reward]), np.ones(1), 0.0, np.ones(1))
    return ensemble, np.ones((1, 1, actions))


def softmax(logits: np.ndarray) -> np.ndarray:
    return greedy_policy(logits, np.ones_like(logits), 1.0)


@given(cases(max_gamma=0.9, min_actions=2))
@settings(max_examples=15, deadline=None)
def test_gradients_match_finite_differences(case: Case) -> None:
    e, h = case.ensemble, 1e-5
    logits = np.log(case.policy)
    plain = return_gradient(e, case.posterior, case.policy)
    regularised = return_gradient(e, case.posterior, case.policy, case.mu, case.alpha)
    for index in np.ndindex(*case.shape):
        shift = np.zeros(case.shape)
        shift[index] = h
        up, down = softmax(logits + shift), softmax(logits - shift)
        slope = (expected_return(e, case.posterior, up) - expected_return(e, case.posterior, down)) / (2 * h)
        np.testing.assert_allclose(plain[index], slope, atol=1e-6)
        ends = [regularised_return(e, case.posterior, p, case.mu, case.alpha) for p in (up, down)]
        np.testing.assert_allclose(regularised[index], (ends[0] - ends[1]) / (2 * h), atol=1e-5)


def fisher_matrix(case: Case) -> np.ndarray:
    """E[grad log pi grad log pi^T] over normalised discounted visits, entry by entry."""
    n_states, n_actions = case.shape
    visits = (1.0 - case.ensemble.gamma) * occupancy(case.ensemble, case.posterior, case.policy)
    matrix = np.zeros((n_states * n_actions, n_states * n_actions))
    for s in range(n_states):
        for a in range(n_actions):
            score = np.zeros(case.shape)
            score[s] = -case.policy[s]
            score[s, a] += 1.0
            matrix += visits[s] * case.policy[s, a] * np.outer(score.ravel(), score.ravel())
    return matrix


@pytest.mark.parametrize("seed", range(5))
def test_the_fisher_product_matches_the_pseudo_inverse_of_the_full_matrix(seed: int) -> None:
    case = make_case(seed)
    first = return_gradient(case.ensemble, case.posterior, case.policy)
    second = return_gradient(case.ensemble, case.posterior, case.policy, case.mu, case.alpha)
    inverse = np.linalg.pinv(fisher_matrix(case), rcond=1e-12)
    expected = first.ravel() @ inverse @ second.ravel()
    actual = fisher_inner(case.ensemble, case.posterior, case.policy, first, second)
    np.testing.assert_allclose(actual, expected, rtol=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_the_divergence_is_half_the_fisher_form_to_second_order(seed: int) -> None:
    case = make_case(seed)
    direction, h = case.some_q(), 1e-4
    moved = softmax(np.log(case.policy) + h * direction)
    quadratic = 0.5 * h**2 * direction.ravel() @ fisher_matrix(case) @ direction.ravel()
    actual = discounted_divergence(case.ensemble, case.posterior, moved, case.policy)
    np.testing.assert_allclose(actual, quadratic, rtol=1e-2)


def farthest_feasible(case: Case, target: np.ndarray, epsilon: float) -> np.ndarray:
    """The policy nearest the target, on the straight line to it, that the constraint around case.policy allows."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        mixed = middle * target + (1.0 - middle) * case.policy
        inside = discounted_divergence(case.ensemble, case.posterior, mixed, case.policy) <= epsilon
        low, high = (middle, high) if inside else (low, middle)
    return low * target + (1.0 - low) * case.policy


@given(cases(max_gamma=0.9, min_actions=2))
@settings(max_examples=20, deadline=None)
def test_the_constrained_step_is_feasible_and_no_feasible_policy_beats_it(case: Case) -> None:
    e, epsilon = case.ensemble, 0.01
    step = constrained_step(e, case.posterior, case.policy, case.mu, case.alpha, epsilon)
    reached = discounted_divergence(e, case.posterior, step.policy, case.policy)
    assert reached <= epsilon
    assert step.lam == 0.0 or reached > 0.999 * epsilon  # either slack and free, or on the boundary
    for target in (case.mu, case.some_policy(), case.some_policy(0.1)):
        other_policy = farthest_feasible(case, target, epsilon)
        for share in (1.0, 0.5, 0.1):  # from the other policy on the boundary to the step's close neighbours
            mixed = share * other_policy + (1.0 - share) * step.policy
            value = regularised_return(e, case.posterior, mixed, case.mu, case.alpha)
            # A chord of the feasible set may leave it by rounding or curvature: then it is no alternative.
            if discounted_divergence(e, case.posterior, mixed, case.policy) <= epsilon:
                assert value <= step.regularised_return + 1e-8
            else:
                assert share < 1.0


def test_a_wide_constraint_is_slack_and_gives_the_optimum_of_thm_2() -> None:
    case = make_case(seed=5)
    step = constrained_step(case.ensemble, case.posterior, case.policy, case.mu, case.alpha, epsilon=100.0)
    optimum = regularised_optimum(case.ensemble, case.posterior, case.mu, case.alpha, start=case.policy)
    assert step.lam == 0.0
    np.testing.assert_allclose(step.policy, optimum, atol=1e-9)


@given(cases(max_gamma=0.9, min_actions=2))
@settings(max_examples=25, deadline=None)
def test_thm_3_the_condition_predicts_how_fast_j_moves(case: Case) -> None:
    """Both directions at once: the sign of the change is the condition's, and its size is the predicted slope."""
    e, epsilon = case.ensemble, 1e-8
    condition = improvement_condition(e, case.posterior, case.policy, case.mu, case.alpha)
    size = condition.squared_norm**0.5
    assume(size > 1e-3 and condition.step_norm > 1e-3)
    before = expected_return(e, case.posterior, case.policy)
    step = constrained_step(e, case.posterior, case.policy, case.mu, case.alpha, epsilon)
    change = (step.expected_return - before) / np.sqrt(2.0 * epsilon)
    np.testing.assert_allclose(change, condition.slope, atol=2e-2 * size)
    assume(abs(condition.slope) > 5e-2 * size)
    assert (change > 0.0) == condition.holds


@pytest.mark.parametrize("seed", range(6))
def test_thm_3_j_never_falls_along_a_path_on_which_the_condition_holds(seed: int) -> None:
    case = make_case(seed, alpha=0.1)
    e = case.ensemble
    path = improvement_path(e, case.posterior, start=case.policy, mu=case.mu, alpha=case.alpha, epsilon=1e-3, steps=15)
    count = 0
    for before, after in pairwise(path):
        assert after.regularised_return >= before.regularised_return  # always: the old policy is feasible
        condition = improvement_condition(e, case.posterior, before.policy, case.mu, case.alpha)
        if condition.holds:
            count += 1
            assert after.expected_return >= before.expected_return
    assert count >= 10  # otherwise the loop above has tested nothing


def test_thm_3_where_the_condition_fails_j_falls() -> None:
    """A start that is better in J than the regularised optimum: the steps lead down to that optimum."""
    ensemble, posterior = bandit([0.0, 1.0])
    mu, start, alpha = np.array([[0.9, 0.1]]), np.array([[0.01, 0.99]]), 1.0
    assert not improvement_condition(ensemble, posterior, start, mu, alpha).holds
    path = improvement_path(ensemble, posterior, start=start, mu=mu, alpha=alpha, epsilon=1e-2, steps=60)
    returns = [step.expected_return for step in path]
    assert returns[1] < returns[0]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(returns))
    # "Monotone in J from an arbitrary start, and convergent to pi*" cannot both hold here: pi* has the lower J.
    np.testing.assert_allclose(path[-1].policy, greedy_policy(ensemble.reward, mu, alpha), atol=1e-6)
    assert returns[-1] < returns[0] - 0.5


def test_thm_3_needs_a_small_epsilon() -> None:
    """The condition holds at the start and a short step improves J; a long step from the same start lowers it."""
    ensemble, posterior = bandit([0.0, 0.5, 1.0])
    mu, start, alpha = np.array([[0.09, 0.83, 0.08]]), np.array([[0.11, 0.14, 0.75]]), 0.3
    assert improvement_condition(ensemble, posterior, start, mu, alpha).holds
    before = expected_return(ensemble, posterior, start)
    assert constrained_step(ensemble, posterior, start, mu, alpha, 1e-6).expected_return > before
    assert constrained_step(ensemble, posterior, start, mu, alpha, 5e-2).expected_return < before - 1e-2


def test_the_path_converges_to_the_regularised_optimum() -> None:
    case = make_case(seed=2, gamma=0.7)
    path = improvement_path(
        case.ensemble, case.posterior, start=case.policy, mu=case.mu, alpha=case.alpha, epsilon=0.05, steps=40
    )
    optimum = regularised_optimum(case.ensemble, case.posterior, case.mu, case.alpha, start=case.mu)
    np.testing.assert_allclose(path[-1].policy, optimum, atol=1e-9)
    assert path[1].lam > 0.0
    assert path[-1].lam == 0.0


def test_at_the_regularised_optimum_the_step_stays_and_the_slope_is_zero() -> None:
    case = make_case(seed=4)
    optimum = regularised_optimum(case.ensemble, case.posterior, case.mu, case.alpha, start=case.mu)
    condition = improvement_condition(case.ensemble, case.posterior, optimum, case.mu, case.alpha)
    assert condition.step_norm < 1e-9
    # The theorem's condition becomes an equality there: grad J = grad C_KL, although J itself could still grow.
    np.testing.assert_allclose(condition.squared_norm, condition.inner_product, rtol=1e-6)
    assert condition.squared_norm > 1e-3
    step = constrained_step(case.ensemble, case.posterior, optimum, case.mu, case.alpha, 1e-3)
    assert kl_divergence(step.policy, optimum).max() < 1e-12


def test_an_action_that_is_never_taken_stays_so_and_spoils_nothing() -> None:
    """With a tiny alpha probabilities underflow to zero; the next step and its condition must still be numbers."""
    ensemble, posterior = bandit([0.0, 0.5, 1.0])
    mu, start, alpha = np.array([[0.4, 0.3, 0.3]]), np.array([[0.0, 0.5, 0.5]]), 0.01
    assert return_gradient(ensemble, posterior, start, mu, alpha)[0, 0] == 0.0
    condition = improvement_condition(ensemble, posterior, start, mu, alpha)
    step = constrained_step(ensemble, posterior, start, mu, alpha, epsilon=1e-6)
    assert step.policy[0, 0] == 0.0
    change = (step.expected_return - expected_return(ensemble, posterior, start)) / np.sqrt(2e-6)
    np.testing.assert_allclose(change, condition.slope, rtol=1e-2)


def test_a_reference_that_excludes_an_action_of_the_policy_is_refused() -> None:
    ensemble, posterior = bandit([0.0, 1.0])
    with pytest.raises(ValueError, match="mu"):
        constrained_step(ensemble, posterior, np.array([[0.5, 0.5]]), np.array([[1.0, 0.0]]), 1.0, 0.1)


@pytest.mark.parametrize(("alpha", "epsilon"), [(0.0, 0.1), (1.0, 0.0)])
def test_steps_without_a_defined_answer_are_refused(alpha: float, epsilon: float) -> None:
    case = make_case(seed=0)
    with pytest.raises(ValueError, match="alpha" if alpha == 0.0 else "epsilon"):
        constrained_step(case.ensemble, case.posterior, case.policy, case.mu, alpha, epsilon)
