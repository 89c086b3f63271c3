"""Warnings of estimates: exactly where they should be."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pspo.data.normalise import fit_normaliser
from pspo.evaluation.ope import estimate_warnings, fitted_q
from pspo.evaluation.ope.estimate_warnings import fraction_of_new_actions, general_warnings
from pspo.evaluation.ope.registry import ESTIMATORS
from pspo.evaluation.ope.return_estimate import ReturnEstimate
from pspo.nets.actors import LinearGaussian
from tests.evaluation.ope.ope_cases import constant, linear, made_dataset, made_problem

FINE: dict[str, dict[str, float]] = {
    "posterior models": {"effective_models": 2.6, "fraction_outside": 0.002, "truncated_weight": 0.05}
    | {"return_of_dataset": 0.81},
    "fitted Q": {"standard_error": 3.0, "bellman_residual": -1.0},  # half an interval
    "importance sampling": {
        "effective_episodes": 50.0,
        "episodes": 80.0,
        "mean_weight": 1.9,
        "fraction_at_bounds": 0.01,
    },
    "doubly robust": {"effective_episodes": 51.0, "episodes": 80.0, "mean_weight": 0.51, "critics_alone": 1.0},
}


def warnings_of(
    method: str,
    horizon: int = 100,
    gamma: float = 1.0,
    new: float = 0.1,
    on_training_data: bool = False,
    **changes: Any,
):
    problem: Any = SimpleNamespace(
        horizon=horizon,
        gamma=gamma,
        on_training_data=on_training_data,
    )
    fields = {"value": 1.0, "low": 0.0, "high": 2.0} | {k: v for k, v in changes.items() if k in ("value", "low")}
    numbers = FINE[method] | {k: v for k, v in changes.items() if k not in fields}
    found = general_warnings(ReturnEstimate(method, **fields, actions="mode", numbers=numbers), new)
    info = next(info for info in ESTIMATORS.values() if info.title == method)
    return found + info.load().warnings(problem)


@pytest.mark.parametrize("method", FINE)
def test_no_warnings_up_to_the_thresholds(method) -> None:
    assert warnings_of(method) == []


@pytest.mark.parametrize("method", FINE)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"new": 0.11}, "in 11 % of the dataset's states the policy's action is unlike any in the data"),
        ({"new": np.nan}, "in nan % of the dataset's states"),
        ({"low": -np.inf}, "it has no interval"),
        ({"value": np.nan}, "it is not a number"),
    ],
)
def test_warnings_of_any_method(method, changes, words) -> None:
    (sentence,) = warnings_of(method, **changes)
    assert words in sentence


@pytest.mark.parametrize(
    ("method", "changes", "words"),
    [
        ("posterior models", {"effective_models": 2.4}, "only 2.4 models are effective"),
        ("posterior models", {"effective_models": np.nan}, "only nan models are effective"),
        ("posterior models", {"fraction_outside": 0.003}, "0.3 % of model steps leave the range of the data"),
        ("posterior models", {"truncated_weight": 0.3}, "left out, and would count with a weight of 30 %"),
        ("posterior models", {"return_of_dataset": 0.3}, "return 0.30 times what the dataset's do"),
        ("posterior models", {"return_of_dataset": 0.3}, "20 of 24 policies that collapsed were below 0.81"),
        (
            "importance sampling",
            {"effective_episodes": 49.9},
            "the importance weights leave 49.9 effective episodes of 80",
        ),
        ("importance sampling", {"effective_episodes": np.nan}, "the importance weights leave nan effective episodes"),
        ("importance sampling", {"mean_weight": 2.1}, "the mean importance weight is 2.1 instead of 1"),
        ("importance sampling", {"mean_weight": 0.1}, "the mean importance weight is 0.1 instead of 1"),
        ("importance sampling", {"fraction_at_bounds": 0.2}, "20 % of the dataset's actions lie at a bound"),
        ("importance sampling", {"truncated_weight": 0.06}, "would count with a weight of 6 %"),
        ("importance sampling", {"horizon": 200}, "products of ratios over 200 steps"),
        ("doubly robust", {"horizon": 200}, "products of ratios over 200 steps"),
        ("doubly robust", {"effective_episodes": 3.0}, "the importance weights leave 3.0 effective episodes"),
        ("fitted Q", {"horizon": 150}, "critic errors accumulate over 150 steps"),
        ("fitted Q", {"horizon": 1000, "gamma": 0.995}, "accumulate over 200 steps"),
        ("fitted Q", {"on_training_data": True}, "the policy was trained on these data, and fitted Q flatters it"),
        ("fitted Q", {"bellman_residual": -1.01}, "their Bellman residual is -1.01 per episode"),
    ],
)
def test_each_warning_is_one_sentence(method, changes, words) -> None:
    (sentence,) = warnings_of(method, **changes)
    assert words in sentence


def test_a_discount_bounds_the_errors_of_critics() -> None:
    assert warnings_of("fitted Q", horizon=1000, gamma=0.99) == []


def test_the_warning_about_training_data_quotes_the_study() -> None:
    study = json.loads(Path("benchmarks/results/ope.json").read_text())["summary"]
    held = {row["logs"]: row["coverage"] for row in study if row["method"] == "fitted Q"}
    assert held["training"] == pytest.approx(fitted_q.HELD_ON_TRAINING_DATA, abs=0.005)
    assert held["fresh"] == pytest.approx(fitted_q.HELD_ON_NEW_DATA, abs=0.005)


def test_the_warning_about_a_collapse_quotes_the_study() -> None:
    sign = json.loads(Path("benchmarks/results/ope-locomotion.json").read_text())["sign"]
    found = (estimate_warnings.COLLAPSED_BELOW, estimate_warnings.OTHERS_BELOW)
    assert sign["limit"] == estimate_warnings.COLLAPSE
    assert (sign["collapsed"], sign["others"]) == tuple(map(list, found))


def by_hand(problem, count: int) -> float:
    """Nearest neighbours by all distances, each pair compared with the other half of the dataset."""
    data, norm = problem.dataset, problem.norm
    order = np.random.default_rng(0).permutation(data.size)[: 2 * count]
    known, asked = order[: len(order) // 2], order[len(order) // 2 :]
    z = (data.obs - norm.obs_mean) / norm.obs_std
    pairs = np.concatenate([z, data.action], axis=1)
    own = np.concatenate([z, np.asarray(problem.act(data.obs))], axis=1)
    near = lambda points: np.sqrt(np.square(points[:, None] - pairs[known][None]).sum(-1)).min(1)  # noqa: E731
    return float((near(own[asked]) > np.quantile(near(pairs[asked]), 0.99)).mean())


def test_new_actions_are_farther_than_those_of_the_dataset(monkeypatch) -> None:
    monkeypatch.setattr(estimate_warnings, "SEARCHED", 70)
    problem = made_problem(made_dataset([10] * 20, [True] * 20))
    found = fraction_of_new_actions(problem)
    assert found == by_hand(problem, 70)
    steep = LinearGaussian(linear([[2.0], [-1.0]], [0.0]), problem.network.log_std)
    steep = problem._replace(network=steep)
    assert fraction_of_new_actions(steep) == by_hand(steep, 70)
    assert fraction_of_new_actions(steep) > found


def test_actions_on_the_other_side_of_the_range_are_new() -> None:
    data = made_dataset([10] * 30, [True] * 30, action=np.random.default_rng(0).uniform(-1, -0.5, size=(300, 1)))
    norm = fit_normaliser(data, 1.0)
    assert fraction_of_new_actions(made_problem(data, constant(norm, 0.99))) > 0.5
    assert fraction_of_new_actions(made_problem(data, constant(norm, -0.75))) < 0.1


def test_three_transitions_are_too_few_to_tell() -> None:
    assert np.isnan(fraction_of_new_actions(made_problem(made_dataset([3], [True]))))
