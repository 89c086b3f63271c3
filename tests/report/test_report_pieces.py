"""Elements of the run page: formatted numbers, labels that do not overlap, the map of the policy."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pspo.core.errors import UserError
from pspo.envs import liquidation_optimum
from pspo.report.canvas import pushed_apart
from pspo.report.charts import padded
from pspo.report.markup import figure, number, table, text
from pspo.report.run.contents import read_contents
from pspo.report.run.liquidation_policy import _learned_threshold, _price_distribution, policy_map, save_policy_png
from pspo.report.run.model_quality import model_quality_section
from pspo.report.run.reproduce import caveat
from pspo.report.statistics import rank_correlation
from tests.report import made_up_run as made_up


@pytest.mark.parametrize(
    ("value", "decimals", "shown"),
    [
        (10_000, None, "10,000"),
        (-0.29951, 4, "−0.2995"),
        (-0.001, 2, "0.00"),
        (1234.5, 1, "1,234.5"),
        (0.000123456, None, "0.0001235"),
        (float("nan"), 2, "not a number"),
        (math.inf, None, "not a number"),
    ],
)
def test_number(value: float, decimals: int | None, shown: str):
    assert number(value, decimals) == shown


def test_markup_escapes_text_and_attributes():
    assert text('<a href="x">&') == "&lt;a href=&quot;x&quot;&gt;&amp;"
    assert "<b>" not in table(["<b>"], [("<b>", "<b>")]) + figure(["svg"], "<b>")
    assert figure([None, ""], "nothing to see") == ""


@given(st.lists(st.floats(0, 1), max_size=6))
def test_labels_keep_order_and_distance(heights: list[float]):
    placed = pushed_apart(heights, 0.1)
    order = np.argsort(heights, kind="stable")
    assert (np.diff(np.array(placed)[order]) >= 0.1 - 1e-9).all()
    if len(heights) < 2 or np.diff(np.sort(heights)).min() >= 0.1:
        assert placed == pytest.approx(heights)  # nothing moves unless it has to


def test_limits_of_nearly_constant_values_are_not_zoomed_in():
    low, high = padded([[0.99999, 1.0]], least=0.01)
    assert low < 0.995
    assert high > 1.0
    low, high = padded([[3.0]])
    assert low < 3.0 < high


def test_rank_correlation_that_is_not_defined_is_none():
    assert rank_correlation(np.ones(5), np.arange(5)) is None
    assert rank_correlation(np.arange(2), np.arange(2)) is None
    assert rank_correlation(np.arange(5), -np.arange(5)) == pytest.approx(-1)


def test_policy_map_of_a_known_policy():
    found = policy_map(made_up.threshold_policy())
    assert found.learned.shape == found.optimal.shape == found.lost.shape == (20, 251)
    sells = found.prices > made_up.SELLS_ABOVE + 0.005
    np.testing.assert_allclose(found.learned[:, sells], 1.0)
    np.testing.assert_allclose(found.learned[:, found.prices < made_up.SELLS_ABOVE - 0.005], 0.0)
    np.testing.assert_array_equal(found.optimal > 0, found.prices >= liquidation_optimum.solve().threshold[:, None])
    agrees = (found.learned > 0.99) & (found.optimal > 0.5) | (found.learned < 0.01) & (found.optimal < 0.5)
    assert found.lost[agrees].max() < 1e-6
    assert found.lost[-1, 0] == pytest.approx(1.0)  # holding in the last step loses everything
    assert _learned_threshold(found.learned[0], found.prices) == pytest.approx(made_up.SELLS_ABOVE, abs=0.011)


def test_likely_prices_match_the_simulated_ones():
    random = np.random.default_rng(0)
    price = random.normal(1.0, 0.05, 40_000)
    for _ in range(10):
        price = np.clip(price + 0.05 * (1.5 - price) + random.normal(0, 0.2, price.shape), 0, 5)
    expected = _price_distribution(np.array(10)).ppf([0.1, 0.5, 0.9, 0.99])
    np.testing.assert_allclose(np.percentile(price, [10, 50, 90, 99]), expected, atol=0.03)


def test_threshold_of_a_policy_that_never_or_always_sells():
    prices = np.linspace(0, 1, 5)
    assert math.isnan(_learned_threshold(np.zeros(5), prices))
    assert math.isnan(_learned_threshold(np.ones(5), prices))
    assert _learned_threshold(np.array([0, 1, 0, 1, 1]), prices) in (0.25, 0.75)  # one state wrong either way


def test_policy_png_for_the_readme(tmp_path: Path):
    made_up.threshold_policy().save(tmp_path / "policy.safetensors")
    picture = save_policy_png(tmp_path, tmp_path / "policy.png")
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) < 150_000
    with pytest.raises(UserError, match="no policy at"):
        save_policy_png(tmp_path / "nowhere", tmp_path / "policy.png")


def test_no_notice_where_an_algorithm_has_no_reference_or_calibration(tmp_path: Path):
    """MOPO has no reference policy, and ADM one model without a calibration: neither is missing."""
    pool = made_up.models()["pool"]
    one = {"holdout_log_likelihood": [1.5], "k_step_error": [0.1], "k_step_error_of_no_change": [0.4]}
    for algo, models, words in (
        ("mopo", {"pool": pool}, "4 models: hold-out log-likelihood 2.250 nats per transition and target on average"),
        ("adm", {"any_step": one}, "One model: hold-out log-likelihood 1.500 nats per transition and target."),
    ):
        run = made_up.write_run(tmp_path / algo, config=made_up.config(algo=algo), models=models, diagnostics=None)
        section = model_quality_section(read_contents(run))
        assert words in section
        assert "not recorded" not in section
        assert ("Calibration:" in section) == (algo == "mopo")
    run = made_up.write_run(tmp_path / "pspo", models={"pool": one})
    section = model_quality_section(read_contents(run))
    for notice in ("The calibration of the models was not recorded", "The reference policy’s fit was not recorded"):
        assert notice in section


@pytest.mark.parametrize("source", ["gone.csv", "gone.arrow", "gone.feather", "logs/*.arrow", "hopper-medium-v2"])
def test_a_dataset_with_a_name_can_be_named_again(source: str, tmp_path: Path) -> None:
    contents = read_contents(made_up.write_run(tmp_path / "run", config=made_up.config(dataset=source)))
    assert caveat(contents) == ""


def test_a_dataset_from_memory_has_to_be_saved_first(tmp_path: Path) -> None:
    contents = read_contents(made_up.write_run(tmp_path / "run", config=made_up.config(dataset="my-frame")))
    assert "passed from memory under the name “my-frame”" in caveat(contents)
