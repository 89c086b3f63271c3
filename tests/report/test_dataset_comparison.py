"""The practitioner's part of a run's page, from comparison.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pspo.core.errors import UserError
from pspo.core.files import read_json, write_json
from pspo.evaluation.run_comparison import compare_run
from pspo.report.run.page import write_report
from pspo.runs.directory import Run
from tests.core.core_cases import small_dataset, small_norm

COMPARISON: dict[str, Any] = {
    "verdict": "worse",
    "basis": "training data",
    "headline": "Estimated to be worse than <the> dataset.",
    "quantity": "sum of rewards over 29 steps",
    "dataset": {"value": 509.25, "low": 500.0, "high": 518.5},
    "policy": {"value": 401.0, "low": 390.0, "high": 412.0},
    "reasons": ["By posterior models it returns less."],
    "compared_rows": 1234,
    "actions": [
        {
            "name": "order",
            "dataset_mean": 8.0,
            "policy_mean": 3.0,
            "mean_difference": 5.0,
            "share_of_range": 0.25,
            "higher": 0.1,
            "lower": 0.8,
        }
    ],
    "by_state": [
        {
            "action": "order",
            "column": "stock",
            "explained": 0.5,
            "groups": [
                {"low": 0.0, "high": 2.0, "dataset": 8.0, "policy": 2.0, "share": 0.7},
                {"low": 2.0, "high": 9.0, "dataset": 8.0, "policy": 7.0, "share": 0.3},
            ],
        }
    ],
    "rows": [{"row": 1714, "obs": [20.5], "dataset": [20.25], "policy": [2.5]}],
    "obs_names": ["stock"],
    "new_actions": 0.2,
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The least that a page needs."""
    write_json(
        tmp_path / "config.json",
        {"algo": "bc", "dataset": "log.csv", "preset": "smoke", "seed": 0, "settings": {"gamma": 0.99}},
    )
    return tmp_path


def page(run: Path, **changes: Any) -> str:
    write_json(run / "comparison.json", COMPARISON | changes)
    return write_report(run).read_text()


def test_the_verdict_stands_above_everything_with_both_returns_in_one_unit(run: Path) -> None:
    html = page(run)
    assert '<div class="verdict worse">' in html
    assert html.index("Estimated to be worse than &lt;the&gt; dataset.") < html.index("Run it again")
    assert "sum of rewards over 29 steps" in html
    assert html.index("509.2") < html.index("401")
    assert html.index("Where the policy differs from the dataset") < html.index("<h2>Settings")


def test_differences_rows_and_coverage_are_shown(run: Path) -> None:
    html = page(run)
    for words in ("order by stock", "stock is", "1,714", "20.25", "--caution high"):
        assert words.replace("stock is", "depends on stock") in html
    assert "--caution high" not in page(run, new_actions=0.05)
    assert "too few rows" in page(run, new_actions=None)


def test_categories_and_what_is_missing_are_named(run: Path) -> None:
    groups = [
        {"label": "<south>", "dataset": 8.0, "policy": 2.0, "share": 0.9},
        {"label": "north", "dataset": 8.0, "policy": 7.0, "share": 0.1},
    ]
    rows = [{"row": 7, "obs": [None, "<south>"], "dataset": [20.25], "policy": [2.5]}]
    part = {"action": "order", "column": "shop", "explained": 0.5, "groups": groups}
    html = page(run, by_state=[part], rows=rows, obs_names=["stock", "shop"])
    assert "depends on shop: 90\N{NO-BREAK SPACE}% of it lies where that is &lt;south&gt;" in html
    assert '<th scope="row">north</th><td>8</td><td>7</td>' in html
    assert "<td>missing</td><td>&lt;south&gt;</td>" in html


def test_large_numbers_have_the_digits_in_which_they_differ(run: Path) -> None:
    means = {"dataset": 8.0, "policy": 2.0}
    groups = [
        {"low": 6378137.01, "high": 6378137.02, "share": 0.9, **means},
        {"low": 6378137.03, "high": 6378137.05, "share": 0.1, **means},
    ]
    part = {"action": "order", "column": "radius", "explained": 0.5, "groups": groups}
    assert "where that is 6,378,137.0100 to 6,378,137.0200" in page(run, by_state=[part])


def test_an_open_verdict_without_an_estimate_says_so(run: Path) -> None:
    html = page(run, verdict="not shown to be better", policy=None)
    assert '<div class="verdict open">' in html
    assert "not estimated" in html


def test_a_run_without_a_comparison_has_a_page(run: Path) -> None:
    html = write_report(run).read_text()
    assert 'class="verdict' not in html
    assert "differs from the dataset" not in html


@pytest.mark.parametrize(
    "damage", [{"reasons": "x"}, {"actions": [{"name": "order"}]}, {"by_state": [{"column": 3}]}, {"new_actions": "?"}]
)
def test_an_edited_file_is_a_note_on_the_page_not_a_traceback(run: Path, damage: dict[str, Any]) -> None:
    html = page(run, **damage)
    assert "comparison.json cannot be" in html
    assert 'class="verdict' not in html
    with pytest.raises(UserError, match="restore it or train again"):
        Run(run).read("comparison")


def test_a_trained_policy_is_compared_and_the_file_fits_its_own_shape(run: Path) -> None:
    from pspo.policies.policy import FILE_NAME, from_network
    from tests.core.core_cases import lively_network

    norm, data = small_norm(), small_dataset()
    from_network(lively_network(norm), norm, {"task": None}).save(run / FILE_NAME)
    write_json(run / "result.json", {"algo": "bc", "dataset": "log.csv", "preset": "smoke", "seed": 0})
    compare_run(Run(run), data)
    comparison = Run(run).read("comparison")
    assert comparison["verdict"] == "not shown to be better"
    assert comparison["basis"] == "nothing"
    assert 0.0 <= comparison["new_actions"] <= 1.0
    assert len(comparison["actions"]) == 2
    assert read_json(run / "comparison.json") == comparison
    assert "Its return was not estimated yet" in write_report(run).read_text()
