"""The policy beside the dataset: what counts as better, and where actions differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pspo.data.dataset import Dataset
from pspo.data.encoder import EncodedColumn, Encoder
from pspo.data.holdout import hold_out
from pspo.evaluation.action_differences import action_differences, by_state
from pspo.evaluation.ope.estimate_run import RunEstimates
from pspo.evaluation.ope.return_estimate import MODE, ReturnEstimate
from pspo.evaluation.raw_columns import raw_columns
from pspo.evaluation.run_verdict import MeanReturn, verdict_by_estimates, verdict_by_simulator
from tests.core.core_cases import small_dataset


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
        dataset_low=9.0,
        dataset_high=11.0,
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
    result = verdict_by_estimates(estimated(*intervals), on_training_data=False)
    assert result.verdict == verdict
    assert "return 10 (90 % interval 9 to 11)" in result.reasons[-1]
    assert verdict in result.headline.lower()


def test_an_estimate_with_a_warning_shows_nothing() -> None:
    result = verdict_by_estimates(estimated((20.0, 21.0), warnings=["it is far off."]), True)
    assert result.verdict == "not shown to be better"
    assert result.reasons[0] == "Posterior models: it is far off."
    assert result.policy == MeanReturn(20.5, 20.0, 21.0)


def test_an_estimate_without_an_interval_shows_nothing() -> None:
    result = verdict_by_estimates(estimated((20.0, float("inf"))), True)
    assert result.verdict == "not shown to be better"


def test_the_training_data_confirm_nothing() -> None:
    held_out = verdict_by_estimates(estimated((20.0, 21.0)), on_training_data=False)
    trained = verdict_by_estimates(estimated((20.0, 21.0)), on_training_data=True)
    assert held_out.headline == "Estimated to be better than the dataset, on held-out data."
    assert trained.headline.endswith("not confirmed yet.")
    assert "held-out episodes before you deploy" in trained.reasons[-1]
    assert "deploy" not in " ".join(held_out.reasons)


def test_a_dataset_with_an_unknown_return_shows_nothing() -> None:
    unknown = replace(
        estimated((20.0, 21.0)), dataset_return=float("nan"), dataset_low=float("nan"), dataset_high=float("nan")
    )
    result = verdict_by_estimates(unknown, on_training_data=False)
    assert result.verdict == "not shown to be better"
    assert result.reasons == [
        "By posterior models it returns 20.5 (90 % interval 20 to 21).",
        "The dataset's own return is unknown: its episodes were cut before that many steps.",
    ]


def test_the_simulator_decides_where_there_is_one() -> None:
    data = small_dataset(rows=50)
    mean = data.episode_returns().mean()
    for shift, verdict in ((50.0, "better"), (0.0, "not shown to be better"), (-50.0, "worse")):
        result = {"return_mean": mean + shift, "return_stderr": 0.1, "episodes": 1000}
        found = verdict_by_simulator(result, data)
        assert found.verdict == verdict
        assert found.dataset.value == pytest.approx(mean, rel=1e-6)


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
    assert by_state("a", raw_columns(data, data.obs), np.zeros(40), np.zeros(40)) == []


def test_rows_are_those_of_the_file_after_a_hold_out_and_dropped_rows() -> None:
    """Each is found again by what `pspo inspect --row` calls."""
    rows = np.setdiff1d(np.arange(2, 62), [10, 27])  # of the file, in another order than they are read
    whole = replace(small_dataset(rows=58), source_rows=np.random.default_rng(0).permutation(rows))
    data, _, _ = hold_out(whole, 0.3)
    own = np.array(data.action) + np.where(data.obs[:, 1:] >= 3, 0.4, 0.0)
    policy: Any = SimpleNamespace(act_encoded=lambda obs: own)
    entries = action_differences(policy, data)["rows"]
    assert len(entries) == 5
    for entry in entries:
        index = data.index_of_row(entry["row"])
        np.testing.assert_allclose(entry["obs"], data.obs[index])
        np.testing.assert_allclose(entry["dataset"], data.action[index], rtol=1e-6)


def encoded_dataset() -> Dataset:
    """A large number, a category with missing and unknown values, a number with gaps, and an hour."""
    columns = (
        EncodedColumn("clock", offset=1.7e9),
        EncodedColumn("shop", "category", categories=("", "north", "south")),
        EncodedColumn("load", offset=5.0, fill=7.0),
        EncodedColumn("at", "time", cyclic=("hour_of_day",)),
    )
    encoder, n = Encoder(columns), 40
    shops = np.array(["north", "south", "", "east"], object)[np.arange(n) % 4]
    load = np.where(np.arange(n) % 5 == 0, np.nan, np.arange(n) / 8)
    obs = encoder.encode([1.7e9 + 60.0 * np.arange(n), shops, load, 3600.0 * (np.arange(n) % 24)])
    return replace(small_dataset(rows=n), obs=obs, next_obs=obs, obs_names=encoder.names, encoder=encoder)


def test_observations_are_shown_as_the_file_has_them() -> None:
    data = encoded_dataset()
    clock, shop, load, hour = raw_columns(data, data.obs)
    assert [c.name for c in (clock, shop, load, hour)] == ["clock", "shop", "load", "at hour_of_day (hours)"]
    np.testing.assert_array_equal(clock.values, 1.7e9 + 60.0 * np.arange(40))
    assert shop.values[:4].tolist() == ["north", "south", "missing", "other"]
    np.testing.assert_allclose(load.values, np.where(np.arange(40) % 5 == 0, np.nan, np.arange(40) / 8))
    np.testing.assert_allclose(np.round(hour.values, 4) % 24, np.arange(40) % 24)
    assert [column.plain(0) for column in (clock, shop, load)] == [1.7e9, "north", None]


def test_differences_by_state_are_in_raw_units_and_by_category() -> None:
    data = encoded_dataset()
    clock, shop, load, _ = raw_columns(data, data.obs)
    logged = np.zeros(40)
    (part,) = by_state("a", [clock, shop], logged, np.where(shop.values == "south", 1.0, 0.0))
    assert {g["label"]: g["share"] for g in part["groups"]} == {"missing": 0, "north": 0, "other": 0, "south": 1}
    parts = by_state("a", [clock], logged, np.where(clock.values >= 1.7e9 + 20 * 60, 1.0, 0.0))
    assert parts[0]["groups"][0]["low"] == 1.7e9
    assert parts[0]["groups"][-1]["high"] == 1.7e9 + 39 * 60
    (part,) = by_state("a", [load], logged, np.where(np.isnan(load.values), 1.0, 0.0))
    assert [group.get("label") for group in part["groups"]] == [None] * 8 + ["missing"]
    assert part["groups"][-1]["share"] == 1.0
