"""Remark 1: the sampled iteration converges to the fixed point of the exact operator."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.theory import (
    backup,
    evaluation_operator,
    fixed_point,
    optimality_operator,
    policy_value,
    robbins_monro,
    sampled_target,
    soft_value,
    step_size,
    target_variance,
)
from tests.theory.theory_cases import Case, cases, make_case, sup


def bernstein(variance: np.ndarray, width: float, draws: int) -> np.ndarray:
    log_odds = np.log(2e12)
    return np.sqrt(2.0 * variance * log_odds / draws) + 2.0 * width * log_odds / (3.0 * draws)


@given(cases(), st.booleans())
@settings(max_examples=8, deadline=None)
def test_the_sampled_target_has_the_mean_and_the_variance_of_the_exact_one(case: Case, draw_next_state: bool) -> None:
    e, draws = case.ensemble, 2_000
    value = case.rng.uniform(-1.0, 1.0, size=e.n_states)
    targets = np.array([sampled_target(case.rng, e, case.posterior, value, draw_next_state) for _ in range(draws)])
    mean = backup(e, case.posterior, value)
    variance = target_variance(e, case.posterior, value, draw_next_state)
    # Bernstein's inequality, failing once in 10^12: a rare model makes the errors far from normal.
    width = 2.0 * e.gamma  # targets of one pair lie within this of each other
    mean_error = bernstein(variance, width, draws)
    assert np.all(np.abs(targets.mean(axis=0) - mean) <= mean_error + 1e-9)
    square_error = bernstein(width**2 * variance, width**2, draws) + mean_error**2
    assert np.all(np.abs(targets.var(axis=0) - variance) <= square_error + 1e-9)


def test_step_sizes_satisfy_robbins_monro() -> None:
    sizes = np.array([step_size(t, 0.9) for t in range(200_000)])
    assert sizes[0] == 1.0
    assert np.all(np.diff(sizes) < 0.0)
    half = len(sizes) // 2
    # Like c/t: from t to 2t the sum gains c log 2 for ever, the sum of squares gains almost nothing.
    np.testing.assert_allclose(sizes[half:].sum(), 20.0 * np.log(2.0), rtol=1e-3)
    assert (sizes[half:] ** 2).sum() < 1e-2


@pytest.mark.parametrize("draw_next_state", [False, True])
@pytest.mark.parametrize("rule", ["mean", "soft"])
def test_remark_1_the_sampled_iteration_approaches_the_fixed_point(rule: str, draw_next_state: bool) -> None:
    case = make_case(seed=11, gamma=0.8, concentration=0.3)
    e = case.ensemble
    if rule == "mean":
        value_rule = partial(policy_value, policy=case.policy)
        exact = fixed_point(partial(evaluation_operator, e, case.posterior, case.policy), case.some_q())
    else:
        value_rule = partial(soft_value, reference=case.mu, temperature=case.alpha)
        exact = fixed_point(partial(optimality_operator, e, case.posterior, case.mu, case.alpha), case.some_q())
    start = exact + 5.0

    def error(seed: int, steps: int) -> float:
        rng = np.random.default_rng(seed)
        settings = {"value_rule": value_rule, "start": start, "steps": steps, "draw_next_state": draw_next_state}
        return sup(robbins_monro(rng, e, posterior=case.posterior, **settings) - exact)

    early, middle, late = (float(np.mean([error(seed, steps) for seed in range(3)])) for steps in (50, 800, 12_800))
    # Sixteen times the steps should cut the error by four; half of that is asked.
    assert middle < early / 2.0
    assert late < middle / 2.0
    assert late < 0.05
