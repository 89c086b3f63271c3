"""Every warning of the verdict on both sides of its threshold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pspo.evaluation.inspect.action import ActionColumn, PolicyAction
from pspo.evaluation.inspect.action_values import BEST, POLICY, ActionValues, MarkedAction, QCurve
from pspo.evaluation.inspect.coverage import CoverageColumn, StateCoverage
from pspo.evaluation.inspect.dataset_value import Convergence
from pspo.evaluation.inspect.disagreement import Disagreement
from pspo.evaluation.inspect.model_predictions import ModelPrediction, ModelPredictions, PredictedColumn
from pspo.evaluation.inspect.verdict import NO_WARNING, verdict

GRID = np.linspace(0.0, 2.0, 5)
CURVE = QCurve("dose", GRID, GRID**2, GRID**2, np.ones(5), np.zeros(5), None, (1.0, 1.2))
PARTS: dict[str, Any] = {
    "coverage": StateCoverage([CoverageColumn("x", 1.0, 50.0, 0.0, 2.0)], 0.5, 0.4, 60.0, 8, 100, [1, 2]),
    "action": PolicyAction(
        [ActionColumn("dose", 1.0, 0.0, 2.0, 0.1, (0.9, 1.1), 1.1, (0.5, 1.5), (0.0, 0.0))], -1.0, -2.0, 1.0, 40.0
    ),
    "values": ActionValues(
        0.9,
        2,
        "mean",
        [CURVE],
        [MarkedAction(POLICY, [1.0], 1.0, 0.1, 0.0, 0.0), MarkedAction(BEST, [2.0], 1.5, 0.1, 0.5, 0.3)],
    ),
    "models": ModelPredictions(
        3.0,
        0.9,
        [ModelPrediction(3, 0.6, [1.0], 0.5, 0.0, 1.0), ModelPrediction(1, 0.4, [1.1], 0.4, 0.0, 0.9)],
        [
            PredictedColumn("x", 1.0, 1.1, 0.1, 0.2, 1.2, 1.0, 0.1),
            PredictedColumn("reward", None, 0.5, 0.1, 0.1, 0.4, 0.5, 0.1),
        ],
        0.0,
    ),
    "disagreement": Disagreement(0.1, 0.1, 50.0, 0.2, 0.2, 50.0, 2000),
    "convergence": Convergence(-0.02, -2.0, 2.0),
}


def warnings(**changes: Any) -> list[str]:
    return verdict(**(PARTS | changes))


def changed(name: str, **fields: Any) -> dict[str, Any]:
    return {name: PARTS[name]._replace(**fields)}


def with_best(gain: float, std: float) -> dict[str, Any]:
    marks = PARTS["values"].marks
    return changed("values", marks=[marks[0], marks[1]._replace(gain=gain, gain_std=std)])


def with_curve(**fields: Any) -> dict[str, Any]:
    return changed("values", curves=[CURVE._replace(**fields)])


def with_outcome(value: float | None) -> dict[str, Any]:
    first, second = PARTS["models"].columns
    return changed("models", columns=[first._replace(observed=value), second])


def column(value: float) -> dict[str, Any]:
    return changed("coverage", columns=[CoverageColumn("x", value, 50.0, 0.0, 2.0)])


def effective(number: float) -> dict[str, Any]:
    return changed("models", effective_models=number)


def test_no_warning() -> None:
    assert warnings() == [NO_WARNING]


@pytest.mark.parametrize(
    ("says", "warned", "not_warned"),
    [
        ("outside the range of the data: x is 2.1 (data: 0 to 2)", column(2.1), column(2.0)),
        (
            "few states like this",
            changed("coverage", distance_percentile=99.1),
            changed("coverage", distance_percentile=99.0),
        ),
        ("is rare in the data here", changed("action", percentile=0.9), changed("action", percentile=1.0)),
        (
            "cannot distinguish these actions from the policy's: dose from 0.9 to 1.5",
            with_curve(indistinguishable=(0.9, 1.5)),
            with_curve(indistinguishable=(1.0, 1.49)),
        ),
        ("prefer another action, 2", with_best(0.61, 0.3), with_best(0.6, 0.3)),
        ("prefer another action, 2", with_best(0.41, 0.1), with_best(0.4, 0.1)),  # a tenth of the range of Q
        ("only one critic", changed("values", critics=1), changed("values", critics=2)),
        ("Only 2.4 of 2 models are effective here, with 60 % of the weight on model 3", effective(2.4), effective(2.5)),
        (
            "models disagree about the next state",
            changed("disagreement", models_percentile=95.1),
            changed("disagreement", models_percentile=95.0),
        ),
        (
            "critics disagree about Q",
            changed("disagreement", critics_percentile=95.1),
            changed("disagreement", critics_percentile=95.0),
        ),
        (
            "have not converged: their backups differ from Q by -0.02 at each step on average, which adds up to -2.01, "
            "more than Q varies between states (2).",
            changed("convergence", shift=-2.01),
            changed("convergence", shift=2.0),
        ),
        ("critics have not converged", changed("convergence", shift=float("nan")), {}),
        ("not what the models predict: next x 1.41 (predicted 1 ± 0.1)", with_outcome(1.41), with_outcome(1.39)),
        ("not what the models predict: next x 0.59", with_outcome(0.59), with_outcome(None)),
    ],
)
def test_each_warning_appears_beyond_its_threshold_and_not_before(says, warned, not_warned) -> None:
    found = warnings(**warned)
    assert len(found) == 1
    assert says in found[0]
    assert warnings(**not_warned) == [NO_WARNING]


def test_warnings_add_up() -> None:
    found = warnings(**column(-1.0), **changed("action", percentile=0.0))
    assert [sentence.split(":")[0] for sentence in found] == [
        "The state lies outside the range of the data",
        "The policy's action is rare in the data here",
    ]


def test_many_columns_are_not_all_named() -> None:
    columns = [CoverageColumn(f"x{i}", 9.0, 100.0, 0.0, 2.0) for i in range(5)]
    (sentence,) = warnings(**changed("coverage", columns=columns))
    assert "x2 is 9 (data: 0 to 2) and 2 more." in sentence


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (with_curve(q=GRID * np.nan), "Q"),
        (changed("action", reference_log_density=float("nan")), "mu's density"),
        (changed("disagreement", models=float("inf")), "the models' predictions"),
    ],
)
def test_nan_is_reported(changes, what) -> None:
    assert warnings(**changes)[0].startswith(f"Not finite: {what}.")


def test_an_outcome_is_surprising_in_any_unit() -> None:
    unit = 1e-9
    first, reward = PARTS["models"].columns
    small = first._replace(observed=1.5 * unit, expected_after_logged=1.0 * unit, std_after_logged=0.1 * unit)
    coverage = changed("coverage", columns=[CoverageColumn("x", unit, 50.0, 0.0, 2.0 * unit)])
    (sentence,) = warnings(**coverage, **changed("models", columns=[small, reward]))
    assert "next x 1.5e-09 (predicted 1e-09" in sentence
    small_reward = reward._replace(observed=1.5 * unit, expected_after_logged=1.0 * unit, std_after_logged=0.1 * unit)
    (sentence,) = warnings(**changed("models", columns=[first, small_reward]))
    assert "reward 1.5e-09" in sentence
