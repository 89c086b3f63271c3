"""The table of estimators: a module and a row are all that a new one needs."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

import pspo
from pspo.cli.main import main
from pspo.evaluation.config import evaluation_config
from pspo.evaluation.ope import ESTIMATORS, EstimatorInfo, estimate_run
from pspo.evaluation.ope.estimate import estimate
from pspo.evaluation.ope.estimate_run import RunEstimates
from pspo.evaluation.ope.estimator import EstimatorInputs
from pspo.evaluation.ope.return_estimate import MODE, ReturnEstimate
from tests.evaluation.ope.ope_cases import made_dataset, made_problem


@pytest.mark.parametrize("slug", ESTIMATORS)
def test_every_row_is_filed_under_its_slug_and_names_a_module(slug) -> None:
    info = ESTIMATORS[slug]
    module = info.load()
    assert info.slug == slug
    assert callable(module.estimate)
    assert module.warnings(made_problem(made_dataset([5] * 8, [True] * 8))) == []


def test_a_new_estimator_is_a_module_and_a_row(monkeypatch) -> None:
    module = ModuleType("mean_reward")
    module.estimate = lambda inputs: ReturnEstimate("mean reward", inputs.problem.dataset.reward.mean(), 0.0, 9.0, MODE)  # pyright: ignore
    module.warnings = lambda problem: [f"it ignores the policy over {problem.horizon} steps."]  # pyright: ignore
    monkeypatch.setitem(sys.modules, "mean_reward", module)
    monkeypatch.setitem(ESTIMATORS, "mean", EstimatorInfo("mean", "mean reward", "mean_reward"))
    dataset = made_dataset([5] * 8, [True] * 8)
    inputs = EstimatorInputs(made_problem(dataset), evaluation_config(dataset, "smoke"))
    (found,) = estimate(inputs, ["mean"]).estimates
    assert found.value == dataset.reward.mean()
    assert found.warnings[-1] == "it ignores the policy over 5 steps."


@pytest.mark.parametrize("command", ["ope", "select"])
def test_help_lists_all_estimators(command, capsys) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = capsys.readouterr().out
    for slug in ESTIMATORS:
        assert slug in text


def test_names_of_version_0_1_work_with_a_warning(monkeypatch) -> None:
    found = RunEstimates(Path("run"), "data", 1.0, 0.9, 20, [], {"fitted Q": "no."}, 1.5, 2.5)
    given: dict = {}
    monkeypatch.setattr(estimate_run, "estimate_return", lambda *words, **options: given.update(options) or found)
    with pytest.warns(DeprecationWarning, match="estimate_return"):
        assert pspo.judge_run("run", None, 0.5, 0.8, recipe="settings") is found
    assert given == {"gamma": 0.5, "confidence": 0.8, "config": "settings"}
    for old, value in {"lacking": {"fitted Q": "no."}, "logged": 1.5, "truth": 2.5}.items():
        with pytest.warns(DeprecationWarning, match=f"{old} is now called"):
            assert getattr(found, old) == value
    with pytest.raises(AttributeError):
        found.nothing  # noqa: B018
