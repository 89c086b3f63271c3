"""The policy beside the dataset: what counts as better, and where actions differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pspo.evaluation.action_differences import action_differences, by_state
from pspo.evaluation.ope.estimate_run import RunEstimates
from pspo.evaluation.ope.return_estimate import MODE, ReturnEstimate
from pspo.evaluation.run_verdict import (
    MeanReturn,
    dataset_interval,
    verdict_by_estimates,
    verdict_by_simulator,
    verdict_without_estimate,
)
from tests.core.core_cases import small_dataset

LOGGED = MeanReturn(10.0, 9.0, 11.0)


def estimated(*intervals: tuple[float, float], warnings: list[str] | None = None) -> RunEstimates:
    names = ("posterior models", "fitted Q")
    estimates = [
        ReturnEstimate(name, (low + high) / 2, low, high, MODE, warnings=warnings or [])
        for name, (low, high) in zip(names, intervals, strict=False)
    ]
    return RunEstimates(
        run=Path("run"),
        data="log",
        gamma=1.0,
        confidence=0.9,
        horizon=5,
        estimates=estimates,
        unavailable={},
        dataset_return=10.0,
        simulator_return=None,
    )


@pytest.mark.parametrize(
    ("intervals", "verdict"),
    [
        ([(11.5, 13.0)], "better"),
        ([(10.5, 13.0)], "not shown to be better"),  # above the mean, but the dataset's mean is not known exactly
        ([(6.0, 8.0)], "worse"),
        ([(6.0, 13.0)], "not shown to be better"),
        ([(11.5, 13.0), (11.2, 12.0)], "better"),
        ([(11.5, 13.0), (10.0, 12.0)], "not shown to be better"),
        ([(11.5, 13.0), (20.0, 22.0)], "not shown to be better"),  # they contradict each other
        ([], "not shown to be better"),
    ],
)
def test_better_means_that_all_estimates_lie_above_the_dataset(intervals: Any, verdict: str) -> None:
    result = verdict_by_estimates(estimated(*intervals), LOGGED, on_training_data=False)
    assert result.verdict == verdict
    assert "return 10 (90 % interval 9 to 11)" in result.reasons[-1]
    assert verdict in result.headline.lower()


def test_an_estimate_with_a_warning_shows_nothing() -> None:
    result = verdict_by_estimates(estimated((20.0, 21.0), warnings=["it is far off."]), LOGGED, True)
    assert result.verdict == "not shown to be better"
    assert result.reasons[0] == "Posterior models: it is far off."
    assert result.policy == MeanReturn(20.5, 20.0, 21.0)


def test_an_estimate_without_an_interval_shows_nothing() -> None:
    result = verdict_by_estimates(estimated((20.0, float("inf"))), LOGGED, True)
    assert result.verdict == "not shown to be better"


def test_the_training_data_confirm_nothing() -> None:
    held_out = verdict_by_estimates(estimated((20.0, 21.0)), LOGGED, on_training_data=False)
    trained = verdict_by_estimates(estimated((20.0, 21.0)), LOGGED, on_training_data=True)
    assert held_out.headline == "Estimated to be better than the dataset, on held-out data."
    assert trained.headline.endswith("not confirmed yet.")
    assert "held-out episodes before you deploy" in trained.reasons[-1]
    assert "deploy" not in " ".join(held_out.reasons)


def test_the_interval_of_the_dataset_is_that_of_its_episodes() -> None:
    data = small_dataset(rows=50)  # ten episodes of five steps
    by_hand = (data.reward.reshape(10, 5)[:, :3] * 0.5 ** np.arange(3)).astype(np.float64).sum(1)
    interval = dataset_interval(data, gamma=0.5, horizon=3)
    assert interval.value == pytest.approx(by_hand.mean(), rel=1e-6)
    half = 1.8331129 * by_hand.std(ddof=1) / 10**0.5  # the 95th percentile of Student's t with nine degrees of freedom
    assert interval.high - interval.value == pytest.approx(half, rel=1e-6)
    cut = replace(data, timeout=np.append(data.timeout[:-1], False))
    assert dataset_interval(cut, 0.5, 3).value == pytest.approx(by_hand[:-1].mean(), rel=1e-6)


def test_the_simulator_decides_where_there_is_one() -> None:
    data = small_dataset(rows=50)
    mean = dataset_interval(data).value
    for shift, verdict in ((50.0, "better"), (0.0, "not shown to be better"), (-50.0, "worse")):
        result = {"return_mean": mean + shift, "return_stderr": 0.1, "episodes": 1000}
        assert verdict_by_simulator(result, data).verdict == verdict
    assert verdict_without_estimate(data, "runs/a").reasons == [
        "Its return was not estimated yet: `pspo ope runs/a` does that, from the dataset alone."
    ]


def test_differences_are_those_of_the_actions_in_the_same_states() -> None:
    data = small_dataset(rows=40)
    own = np.array(data.action, np.float64)
    own[:, 0] += np.where(data.obs[:, 1] >= 3, 0.4, 0.0)  # the second column explains it all
    policy: Any = SimpleNamespace(act_encoded=lambda obs: own)
    result = action_differences(policy, data)
    first, second = result["actions"]
    assert first["mean_difference"] == pytest.approx(0.4 * 16 / 40)
    assert first["share_of_range"] == pytest.approx(0.4 * 16 / 40 / 4.0)
    assert (first["higher"], first["lower"]) == (pytest.approx(16 / 40), 0.0)
    assert second["mean_difference"] == pytest.approx(0.0, abs=1e-6)
    (part,) = result["by_state"]  # the first column is noise
    assert (part["action"], part["column"], part["explained"]) == ("action[0]", "obs[1]", pytest.approx(1.0))
    assert sum(group["share"] for group in part["groups"] if group["low"] >= 3) == pytest.approx(1.0)
    assert len(result["rows"]) == 5
    assert len({entry["row"] // 5 for entry in result["rows"]}) == 5  # one of each episode
    assert all(data.obs[entry["row"], 1] >= 3 for entry in result["rows"])


def test_equal_actions_differ_nowhere() -> None:
    data = small_dataset(rows=40)
    policy: Any = SimpleNamespace(act_encoded=lambda obs: data.action)
    result = action_differences(policy, data)
    assert (result["by_state"], result["rows"]) == ([], [])
    assert by_state("a", ["b"], data.obs[:, :1], np.zeros(40), np.zeros(40)) == []
