"""The problem, its configuration, and methods that a policy does not allow."""

from __future__ import annotations

import numpy as np
import pytest

from pspo.core.errors import UserError
from pspo.data.normalise import fit_normaliser
from pspo.evaluation.config import evaluation_config
from pspo.evaluation.ope.estimate import estimate
from pspo.evaluation.ope.estimator import EstimatorInputs
from pspo.evaluation.problem import default_gamma, make_problem
from pspo.policies.policy import from_network
from tests.evaluation.ope.ope_cases import METADATA, constant, gaussian, made_dataset, made_problem


def test_importance_weights_are_unavailable_for_a_deterministic_policy() -> None:
    data = made_dataset([5] * 8, [True] * 8)
    problem = made_problem(data, constant(fit_normaliser(data, 1.0), 0.3))
    found = estimate(EstimatorInputs(problem, evaluation_config(data, "smoke")), ["importance", "doubly-robust"])
    assert found.estimates == []
    assert found.unavailable == dict.fromkeys(
        ["importance sampling", "doubly robust"], "the policy is deterministic and has no density."
    )


def test_estimates_have_warnings() -> None:
    data = made_dataset([5] * 8, [True] * 8)
    flat = lambda obs, unit: 0.0 * unit[:, 0]  # noqa: E731
    inputs = EstimatorInputs(made_problem(data), evaluation_config(data, "smoke"), behaviour=flat)
    (found,) = estimate(inputs, ["importance"]).estimates
    assert "effective episodes of 8" in " ".join(found.warnings)
    assert found.numbers["fraction_at_bounds"] == 0.0


@pytest.mark.parametrize(("methods", "confidence"), [(["magic"], 0.9), (["models"], 1.0), (["models"], np.nan)])
def test_bad_arguments_are_refused_before_any_work(methods, confidence) -> None:
    data = made_dataset([5], [True])
    with pytest.raises(UserError, match=r"unknown method 'magic'|confidence=.* is out of range"):
        estimate(EstimatorInputs(made_problem(data), None, confidence=confidence), methods)  # pyright: ignore


@pytest.mark.parametrize(("ended", "gamma"), [(99, 1.0), (98, 0.95)])
def test_returns_are_discounted_unless_episodes_are_terminal(ended, gamma) -> None:
    data = made_dataset([2] * 100, np.arange(100) < ended)
    assert default_gamma(data, 0.95) == gamma
    norm = fit_normaliser(data)
    policy = from_network(gaussian(norm), norm, METADATA)
    assert make_problem(policy, data, None, 0.95).gamma == gamma
    assert make_problem(policy, data, 0.5, 0.95).gamma == 0.5


def test_the_unit_of_rewards_does_not_depend_on_the_estimated_return() -> None:
    """So that all policies are evaluated on the same models."""
    data = made_dataset([5] * 8, [True] * 8)
    norm = fit_normaliser(data, 0.9)
    policy = from_network(gaussian(norm), norm, METADATA)
    one, other = (
        make_problem(policy, data, 1.0, 0.99, reward_gamma=0.9),
        make_problem(policy, data, 0.5, 0.8, reward_gamma=0.9),
    )
    assert one.norm.reward_scale == other.norm.reward_scale == norm.reward_scale
    np.testing.assert_allclose(one.device_data.transitions.reward, data.reward / norm.reward_scale, rtol=1e-6)


def test_smoke_runs_get_a_small_pool_and_all_others_the_laptop_pool() -> None:
    data = made_dataset([5], [True])
    smoke, laptop, paper = (evaluation_config(data, name) for name in ("smoke", "laptop", "paper"))
    assert smoke.pspo.model.steps < 100 < laptop.pspo.model.steps
    assert smoke.fitted_q.steps < 1000 < laptop.fitted_q.steps
    assert paper == laptop
