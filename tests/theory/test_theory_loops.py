"""The array formulas against plain loops written from the paper's equations, one scalar at a time."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings

from pspo.theory import (
    consistency,
    episodic_return,
    evaluation_operator,
    expected_return,
    model_posterior,
    occupancy,
    optimality_operator,
    posterior_objective,
    regularised_return,
    soft_value,
    target_variance,
)
from tests.theory.theory_cases import Case, cases, make_case

BETA = 0.7


def loop_expectation(case: Case, model: int, s: int, a: int, value: list[float]) -> float:
    row = case.ensemble.transitions[model, s, a]
    return sum(float(row[k]) * value[k] for k in range(case.ensemble.n_states))


def loop_soft_value(case: Case, q: np.ndarray) -> list[float]:
    n_states, n_actions = case.shape
    return [
        case.alpha * math.log(sum(case.mu[s, a] * math.exp(q[s, a] / case.alpha) for a in range(n_actions)))
        for s in range(n_states)
    ]


def loop_mean_value(case: Case, q: np.ndarray) -> list[float]:
    n_states, n_actions = case.shape
    return [sum(case.policy[s, a] * q[s, a] for a in range(n_actions)) for s in range(n_states)]


@given(cases())
@settings(max_examples=40, deadline=None)
def test_posterior_and_its_objective(case: Case) -> None:
    e = case.ensemble
    q, value = case.some_q(), case.rng.normal(size=e.n_states)
    metric = consistency(e, q, value)
    posterior = model_posterior(e.prior, metric, BETA)
    objective = posterior_objective(case.posterior, e.prior, metric, BETA)
    for s in range(e.n_states):
        for a in range(e.n_actions):
            targets = [
                e.reward[s, a] + e.gamma * loop_expectation(case, i, s, a, list(value)) for i in range(e.n_models)
            ]
            gaps = [(q[s, a] - y) ** 2 for y in targets]
            weights = [e.prior[i] * math.exp(-BETA * gaps[i]) for i in range(e.n_models)]
            np.testing.assert_allclose(metric[:, s, a], gaps, atol=1e-12)
            np.testing.assert_allclose(posterior[:, s, a], np.array(weights) / sum(weights), atol=1e-12)
            other = case.posterior[:, s, a]
            cost = sum(p * (math.log(p / e.prior[i]) + BETA * gaps[i]) for i, p in enumerate(other))
            np.testing.assert_allclose(objective[s, a], cost, atol=1e-12)


@given(cases())
@settings(max_examples=40, deadline=None)
def test_both_operators_and_the_variance_of_their_target(case: Case) -> None:
    e = case.ensemble
    q = case.some_q()
    evaluated = evaluation_operator(e, case.posterior, case.policy, q)
    optimal = optimality_operator(e, case.posterior, case.mu, case.alpha, q)
    soft = soft_value(q, case.mu, case.alpha)
    variance = target_variance(e, case.posterior, soft)
    drawn_variance = target_variance(e, case.posterior, soft, draw_next_state=True)
    mean_value, loop_soft = loop_mean_value(case, q), loop_soft_value(case, q)
    np.testing.assert_allclose(soft, loop_soft, atol=1e-12)
    for s in range(e.n_states):
        for a in range(e.n_actions):
            r, w = float(e.reward[s, a]), case.posterior[:, s, a]
            y = [r + e.gamma * loop_expectation(case, i, s, a, loop_soft) for i in range(e.n_models)]
            best = sum(w[i] * y[i] for i in range(e.n_models))
            mean = sum(w[i] * loop_expectation(case, i, s, a, mean_value) for i in range(e.n_models))
            second = sum(w[i] * (y[i] - best) ** 2 for i in range(e.n_models))
            outcome = [(r + e.gamma * v - best) ** 2 for v in loop_soft]
            drawn = sum(w[i] * loop_expectation(case, i, s, a, outcome) for i in range(e.n_models))
            np.testing.assert_allclose(evaluated[s, a], r + e.gamma * mean, atol=1e-12)
            np.testing.assert_allclose(optimal[s, a], best, atol=1e-12)
            np.testing.assert_allclose(variance[s, a], second, atol=1e-12)
            np.testing.assert_allclose(drawn_variance[s, a], drawn, atol=1e-12)


def loop_discounted_sums(case: Case, horizon: int) -> tuple[float, float, list[float]]:
    """J, J~ and visits, by carrying the state distribution forward and drawing a new model at every step."""
    e = case.ensemble
    states, actions = range(e.n_states), range(e.n_actions)
    at = [float(p) for p in e.initial]
    plain, regularised, visits = 0.0, 0.0, [0.0] * e.n_states
    for t in range(horizon):
        arriving = [0.0] * e.n_states
        for s in states:
            kl = sum(case.policy[s, a] * math.log(case.policy[s, a] / case.mu[s, a]) for a in actions)
            gain = sum(case.policy[s, a] * e.reward[s, a] for a in actions)
            plain += e.gamma**t * at[s] * gain
            regularised += e.gamma**t * at[s] * (gain - case.alpha * kl)
            visits[s] += e.gamma**t * at[s]
            for a in actions:
                for i in range(e.n_models):
                    joint = at[s] * case.policy[s, a] * case.posterior[i, s, a]
                    for k in states:
                        arriving[k] += joint * e.transitions[i, s, a, k]
        at = arriving
    return plain, regularised, visits


@given(cases(max_gamma=0.7))
@settings(max_examples=10, deadline=None)
def test_returns_and_visits(case: Case) -> None:
    plain, regularised, visits = loop_discounted_sums(case, horizon=80)  # 0.7^80 is 4e-13
    e = case.ensemble
    np.testing.assert_allclose(expected_return(e, case.posterior, case.policy), plain, atol=1e-10)
    np.testing.assert_allclose(
        regularised_return(e, case.posterior, case.policy, case.mu, case.alpha), regularised, atol=1e-9
    )
    np.testing.assert_allclose(occupancy(e, case.posterior, case.policy), visits, atol=1e-10)


def test_holding_the_model_for_an_episode_equals_redrawing_it_only_for_a_point_mass() -> None:
    case = make_case(seed=3, n_models=2, concentration=0.2)
    e = case.ensemble
    for weights, equal in (([1.0, 0.0], True), ([0.0, 1.0], True), ([0.5, 0.5], False)):
        posterior = np.broadcast_to(np.array(weights)[:, None, None], case.posterior.shape)
        redrawn = expected_return(e, posterior, case.policy)  # Eq. (1), pre:eq4
        kept = episodic_return(e, np.array(weights), case.policy)  # Eq. (2), pre:eq5
        assert (abs(redrawn - kept) < 1e-10) == equal
