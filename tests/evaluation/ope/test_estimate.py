"""The problem, its configuration, and methods that a policy does not allow."""

from __future__ import annotations

import numpy as np
import pytest

from pspo.core.errors import UserError
from pspo.data.normalise import fit_normaliser
from pspo.evaluation.config import evaluation_config
from pspo.evaluation.ope.estimate import estimate
from pspo.evaluation.ope.estimator import EstimatorInputs
from pspo.evaluation.problem import cut_at_one_length, make_problem, return_to_evaluate, return_without_limit
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


SAME, VARIED = [4] * 100, [4, 3] * 50


@pytest.mark.parametrize(
    ("lengths", "ended", "given", "expected"),
    [
        (VARIED, 99, {}, (1.0, 4, False)),  # terminal: the plain sum until the episode ends
        (VARIED, 99, {"gamma": 0.5}, (0.5, 4, False)),
        (SAME, 0, {}, (1.0, 4, True)),  # cut at one length: the plain sum over it
        (SAME, 50, {}, (1.0, 4, True)),
        (SAME, 0, {"gamma": 0.9}, (0.9, 4, True)),
        (SAME, 0, {"gamma": 0.4}, (0.4, 4, False)),  # the discount leaves 3 % after the cut
        (VARIED, 0, {}, (0.95, 4, True)),  # cut anywhere: as in training, over the longest
        (VARIED, 99, {"horizon": 3}, (1.0, 3, True)),
        (VARIED, 0, {"horizon": 9}, (1.0, 9, True)),
        (VARIED, 0, {"horizon": 9, "gamma": 0.9}, (0.9, 9, True)),
    ],
)
def test_the_return_follows_from_how_episodes_end(lengths, ended, given, expected) -> None:
    data = made_dataset(lengths, np.arange(100) < ended)
    assert tuple(return_to_evaluate(data, 0.95, **given)) == expected
    norm = fit_normaliser(data)
    policy = from_network(gaussian(norm), norm, METADATA)
    assert tuple(make_problem(policy, data, return_to_evaluate(data, 0.95, **given), 0.95).evaluated) == expected


def test_on_long_tasks_the_discount_of_training_stays() -> None:
    """As on MuJoCo: 0.99^1000 leaves nothing, and the plain sum over 1000 steps is beyond critics."""
    data = made_dataset([1000, 1000, 700], [False] * 3)
    assert tuple(return_to_evaluate(data, 0.99)) == (0.99, 1000, False)
    assert tuple(return_to_evaluate(data, 0.999)) == (1.0, 1000, True)


@pytest.mark.parametrize(
    ("lengths", "ended", "expected"),
    [
        ([3, 3, 3], [0, 0, 0], True),
        ([3, 3, 2], [0, 0, 0], True),  # the data end before the last one does
        ([3, 2, 3], [0, 0, 0], False),
        ([3, 2, 3], [0, 1, 0], True),
        ([3, 4, 3], [0, 1, 0], False),  # nothing cuts at three
        ([3, 3], [1, 1], False),
        ([5], [0], True),
    ],
)
def test_cut_at_one_length(lengths, ended, expected) -> None:
    assert cut_at_one_length(made_dataset(lengths, np.array(ended, bool))) is expected


def test_the_return_without_a_limit() -> None:
    assert tuple(return_without_limit(made_dataset(SAME, np.zeros(100, bool)), 0.95)) == (0.95, 4, False)
    assert tuple(return_without_limit(made_dataset(SAME, np.ones(100, bool)), 0.95)) == (1.0, 4, False)


def test_the_return_in_words() -> None:
    data = made_dataset(SAME, np.zeros(100, bool))
    assert return_to_evaluate(data, 0.95).words == "sum of rewards over 4 steps"
    assert return_to_evaluate(data, 0.95, gamma=0.9).words == "sum of rewards over 4 steps, discounted by 0.9"
    assert return_without_limit(data, 0.95).words == "sum of rewards until the episode ends, discounted by 0.95"


def test_the_unit_of_rewards_does_not_depend_on_the_estimated_return() -> None:
    """So that all policies are evaluated on the same models."""
    data = made_dataset([5] * 8, [True] * 8)
    norm = fit_normaliser(data, 0.9)
    policy = from_network(gaussian(norm), norm, METADATA)
    one, other = (make_problem(policy, data, return_to_evaluate(data, 0.99, gamma), 0.9) for gamma in (1.0, 0.5))
    assert one.norm.reward_scale == other.norm.reward_scale == norm.reward_scale
    np.testing.assert_allclose(one.device_data.transitions.reward, data.reward / norm.reward_scale, rtol=1e-6)


def test_smoke_runs_get_a_small_pool_and_all_others_the_laptop_pool() -> None:
    data = made_dataset([5], [True])
    smoke, laptop, paper = (evaluation_config(data, name) for name in ("smoke", "laptop", "paper"))
    assert smoke.pspo.model.steps < 100 < laptop.pspo.model.steps
    assert smoke.fitted_q.steps < 1000 < laptop.fitted_q.steps
    assert paper == laptop
