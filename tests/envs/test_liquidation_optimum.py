"""The exact optimum, checked against a solution that shares none of its numerics."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pspo.core.errors import UserError
from pspo.envs import liquidation_optimum as optimum
from pspo.envs.liquidation import OPTIMAL_RETURN

STATES = st.tuples(st.integers(0, 19), st.floats(0.1, 100), st.floats(0, 5)).map(np.array)


def solve_by_gauss_hermite(prices: np.ndarray) -> list[np.ndarray]:
    """Continuation values on `prices`, with the noise integrated by quadrature and no matrix of hat functions."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    weights = weights / weights.sum()
    landing = np.clip(0.95 * prices[:, None] + 0.075 + 0.2 * nodes, 0, 5)
    continuation = [np.zeros_like(prices)]
    for _ in range(19):
        # max after interpolating, so that the kink between selling and holding stays sharp
        next_value = np.maximum(landing, np.interp(landing, prices, continuation[0]))
        continuation.insert(0, next_value @ weights)
    return continuation


def test_the_mean_return_is_the_known_one() -> None:
    assert optimum.solve().mean_return == pytest.approx(137.48, abs=0.05)
    assert pytest.approx(optimum.solve().mean_return, abs=1e-3) == OPTIMAL_RETURN


def test_an_independent_quadrature_agrees() -> None:
    prices = np.linspace(0, 5, 601)
    independent = solve_by_gauss_hermite(prices)
    exact = optimum.solve()
    for t in range(20):
        ours = np.interp(prices, exact.prices, exact.continuation[t])
        np.testing.assert_allclose(ours, independent[t], atol=2e-3, err_msg=f"t = {t}")
    starts, weights = np.polynomial.hermite_e.hermegauss(16)
    start_value = np.interp(1 + 0.05 * starts, prices, independent[0]) @ weights / weights.sum()
    assert exact.mean_return == pytest.approx(100 * start_value, abs=0.05)


def test_the_solution_has_converged_and_is_quick() -> None:
    coarse, fine = optimum.solve(501), optimum.solve(1001)
    assert abs(fine.mean_return - optimum.solve().mean_return) < 1e-3
    # Halving the grid spacing divides the error by about four, as it should for linear interpolation.
    errors = [abs(each.mean_return - optimum.solve().mean_return) for each in (coarse, fine)]
    assert errors[1] < 0.4 * errors[0]
    optimum.solve.cache_clear()
    optimum._price_transitions.cache_clear()
    begin = time.perf_counter()
    optimum.solve()
    assert time.perf_counter() - begin < 2


def test_transition_weights_are_probabilities_with_the_right_moments() -> None:
    prices, transition = optimum._price_transitions(2001)
    assert transition.min() > -1e-10
    np.testing.assert_allclose(transition.sum(axis=1), 1, atol=1e-10)
    far_from_the_ends = (prices > 1.2) & (prices < 3.8)
    mean = transition[far_from_the_ends] @ prices
    np.testing.assert_allclose(mean, 0.95 * prices[far_from_the_ends] + 0.075, atol=1e-8)
    variance = transition[far_from_the_ends] @ prices**2 - mean**2
    np.testing.assert_allclose(variance, 0.04, atol=1e-5)


def test_thresholds_are_the_known_ones_and_fall_with_time() -> None:
    threshold = optimum.solve().threshold
    assert threshold.shape == (20,)
    np.testing.assert_allclose(threshold[[0, 8, 14, 18]], [1.925, 1.80, 1.665, 1.50], atol=0.005)
    assert np.all(np.diff(threshold) < 0)
    # One step before the last, waiting pays exactly below the long-run mean price; at the last, never.
    assert threshold[18] == pytest.approx(1.5, abs=1e-6)
    assert threshold[19] == 0


def test_values_have_the_shape_theory_gives_them() -> None:
    exact = optimum.solve()
    assert exact.value.shape == exact.continuation.shape == (21, 2001)
    assert np.all(exact.value[20] == 0)
    assert np.all(exact.continuation[19:] == 0)
    assert np.all(np.diff(exact.value[:20], axis=1) >= -1e-12), "a higher price is worth more"
    assert np.all(np.diff(exact.value, axis=0) <= 1e-12), "more time is worth more"
    np.testing.assert_array_equal(exact.value[:20], np.maximum(exact.prices, exact.continuation[:20]))


@given(obs=STATES, action=st.floats(-1, 1))
def test_no_action_beats_the_optimal_one(obs: np.ndarray, action: float) -> None:
    value, best = optimum.v_value(obs), optimum.optimal_action(obs)
    assert optimum.q_value(obs, np.array([action])) <= value + 1e-9
    assert optimum.q_value(obs, best) == pytest.approx(value)


@given(obs=STATES)
def test_the_optimal_action_is_a_threshold_in_the_price(obs: np.ndarray) -> None:
    threshold = optimum.solve().threshold[int(obs[0])]
    if abs(obs[2] - threshold) > 1e-4:
        assert optimum.optimal_action(obs)[0] == (1.0 if obs[2] > threshold else -1.0)


def test_a_remainder_too_small_to_sell_is_lost() -> None:
    obs = np.array([0, 100, 2.0])
    assert optimum.q_value(obs, np.array([0.9995])) == pytest.approx(99.95 * 2)
    assert optimum.q_value(obs, np.array([0.9985])) > 99.85 * 2 + 0.15 * 1.9
    over = np.array([[20, 100, 2.0], [3, 0.05, 2.0]])
    assert np.all(optimum.v_value(over) == 0)
    assert np.all(optimum.q_value(over, np.ones((2, 1))) == 0)


@pytest.mark.parametrize(
    ("gamma", "normalised"), [(1.0, 101.83), (0.999, 101.82), (0.995, 101.40), (0.99, 100.16), (0.98, 95.78)]
)
def test_the_price_of_discounting(gamma: float, normalised: float) -> None:
    assert optimum.value_of_discount(gamma) / 1.35 == pytest.approx(normalised, abs=0.02)


def test_a_discount_of_one_costs_nothing_and_one_out_of_range_is_refused() -> None:
    assert optimum.value_of_discount(1.0) == pytest.approx(optimum.solve().mean_return, abs=1e-9)
    with pytest.raises(UserError, match="between 0 and 1"):
        optimum.value_of_discount(1.5)
    with pytest.raises(UserError, match="between 0 and 1"):
        optimum.value_of_discount(float("nan"))
