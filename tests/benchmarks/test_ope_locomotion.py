"""`python -m benchmarks.ope_locomotion`: its statistics against plain sums, and how policies are counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.policy_paths import _against, _nearest, _of_episodes

from benchmarks import ope_locomotion_summary as summary


def row(truth: float, estimate: float, ratio: float, dataset: str = "hopper-expert") -> dict[str, Any]:
    """The dataset returns 100."""
    way = {"return_1": [estimate, estimate], "return_0.99": [estimate], "return_inside": estimate, "left": 0.0}
    path = {"mean_ratio": ratio, "above": [0.0, 0.0, 0.0], "mean_difference": 0.0}
    names = ("disagreement", "own_noise", "distance", "state_distance", "surprise")
    names += tuple(f"logged_states_{name}" for name in names)
    return {"dataset": dataset, "policy": f"{truth:g}", "truth": truth, "dataset_return": 100.0} | {
        name: part for names, part in ((("noise", "mean", "switch"), way), (names, path)) for name in names
    }


ROWS = [row(10.0, 20.0, 9.0), row(40.0, 90.0, 3.0), row(60.0, 70.0, 1.5), row(90.0, 95.0, 1.0), row(110.0, 120.0, 1.1)]
ROWS += [row(20.0, 60.0, 2.0, "hopper-medium"), row(80.0, 95.0, 1.0, "hopper-medium")]
ESTIMATE = summary.STATISTICS["models, without noise"]


def test_policies_below_half_of_the_dataset_have_collapsed() -> None:
    assert [summary.collapsed(r) for r in ROWS] == [True, True, False, False, False, True, False]


def test_rank_correlation_and_regret_within_each_dataset() -> None:
    assert summary.rank_correlations(ROWS, ESTIMATE) == {"hopper-expert": pytest.approx(0.9)}  # two policies are few
    assert summary.regret(ROWS, ESTIMATE) == 0.0
    assert summary.regret(ROWS, lambda r: -r["truth"]) == pytest.approx((100 / 110 + 60 / 80) / 2)


def test_area_under_the_curve() -> None:
    assert summary.area([3.0, 2.0], [1.0, 0.0]) == 1.0
    assert summary.area([1.0, 1.0], [1.0]) == 0.5
    assert summary.area([1.0, 3.0], [2.0, 0.0]) == 0.75
    assert np.isnan(summary.area([1.0], []))


def test_limits_flag_at_most_a_twentieth_of_the_good_ones() -> None:
    good, bad = np.arange(40.0), np.array([-1.0, 1.5, 5.0])
    assert summary.limit(good) == 2.0
    assert summary.flagged(good, bad, 2.0) == (pytest.approx(2 / 3), pytest.approx(0.05))


def test_the_sign_has_a_limit_of_the_tuning_datasets_and_counts_of_all() -> None:
    assert summary.product_sign(ROWS) == {"limit": 0.7, "collapsed": [2, 3], "others": [0, 4]}


def test_errors_of_estimates_without_the_sign() -> None:
    assert summary.relative_errors(ROWS, 0.7) == pytest.approx([50 / 90, 10 / 70, 5 / 95, 10 / 120, 15 / 95])
    assert summary.interval_error(ROWS, 0.7) == {"error": 0.43, "held_out": 1, "holds": 1}


def test_worse_than_the_dataset() -> None:
    assert summary.worse_called(ROWS, ESTIMATE) == 1.0
    assert summary.worse_called([row(90.0, 110.0, 1.0), row(90.0, 80.0, 1.0)], ESTIMATE) == 0.5


def test_the_table_has_a_line_for_every_statistic() -> None:
    kept = {"policies": ROWS, "datasets": {name: {"mean_return": 100.0} for name in ("hopper-expert", "hopper-medium")}}
    text = summary.table(kept)
    assert all(f"| {name} |" in text for name in summary.STATISTICS)
    assert "'limit': 0.7" in text


def test_episodes_count_until_they_end() -> None:
    reward = np.array([1.0, 2.0, 4.0])[:, None, None] * np.ones((3, 2, 1))
    alive = np.array([[[True], [True]], [[True], [True]], [[True], [False]]])  # the second member ends after two steps
    left = np.zeros((3, 2, 1), bool)
    left[1, 0] = True
    found = _of_episodes(reward, alive, left)
    assert found["return_1"] == [7.0, 3.0]
    assert found["return_0.99"] == [pytest.approx(1 + 0.99 * 2 + 0.99**2 * 4, abs=0.01), pytest.approx(2.98)]
    assert found["length"] == [3.0, 2.0]
    assert (found["left"], found["ever_left"]) == (pytest.approx(1 / 5), 0.5)
    assert found["return_inside"] == pytest.approx((1.0 + 3.0) / 2)


def test_nearest_points_and_quantiles() -> None:
    rng = np.random.default_rng(0)
    these, known = rng.normal(size=(20, 4)), rng.normal(size=(50, 4))
    by_hand = np.sqrt(np.square(these[:, None] - known).sum(-1)).min(1)
    np.testing.assert_allclose(_nearest(these, known), by_hand, rtol=1e-6)
    found = _against(np.array([0.0, 5.0, 50.0, 200.0]), np.arange(101.0))
    assert found["dataset"] == [50.0, 90.0, 99.0]
    assert found["above"] == [0.25, 0.25, 0.25]
    assert found["mean_ratio"] == pytest.approx(63.75 / 50.0)
