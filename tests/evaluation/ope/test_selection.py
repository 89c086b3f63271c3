"""Ranking runs by their estimates, and how well that went."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pspo.core.errors import UserError
from pspo.evaluation.ope.estimate_run import RunEstimates
from pspo.evaluation.ope.print_estimates import print_estimates, print_ranking
from pspo.evaluation.ope.return_estimate import ReturnEstimate
from pspo.evaluation.ope.selection import rank

VALUE, LOW, TRUTH = [3.0, 5.0, 1.0, 4.0], [2.5, 0.0, 0.5, 3.0], [30.0, 20.0, 10.0, 40.0]


def estimated(
    value: float, low: float, truth: float | None, gamma: float = 1.0, name: str = "run", horizon: int = 20
) -> RunEstimates:
    estimate = ReturnEstimate("fitted Q", value, low, 2 * value - low, "mode", {}, [] if value > 2 else ["it is low."])
    unavailable = {"doubly robust": "no noise."}
    return RunEstimates(Path(name), "made up", gamma, 0.9, horizon, [estimate], unavailable, 1.0, truth)


def all_estimated(truth=TRUTH) -> list[RunEstimates]:
    rows = zip(VALUE, LOW, truth, strict=True)
    return [estimated(v, low, t, name=f"run-{i}") for i, (v, low, t) in enumerate(rows)]


def test_the_best_estimate_comes_first_and_regret_is_what_it_loses() -> None:
    found = rank(all_estimated(), "fitted Q")
    assert found.order == [1, 3, 0, 2]
    assert found.regret == 40.0 - 20.0
    assert found.regret_of_random == 40.0 - 25.0
    places, true_places = [2, 4, 1, 3], [3, 2, 1, 4]
    assert found.rank_correlation == pytest.approx(np.corrcoef(places, true_places)[0, 1])


def test_cautious_ranks_by_lower_ends() -> None:
    found = rank(all_estimated(), "fitted Q", cautious=True)
    assert found.order == [3, 0, 2, 1]
    assert found.regret == 0.0
    places, true_places = [3, 1, 2, 4], [3, 2, 1, 4]
    assert found.rank_correlation == pytest.approx(np.corrcoef(places, true_places)[0, 1])


def test_without_a_simulator_there_is_no_regret() -> None:
    found = rank(all_estimated([1.0, 2.0, None, 3.0]), "fitted Q")
    assert found.order == [1, 3, 0, 2]
    assert (found.rank_correlation, found.regret, found.regret_of_random) == (None, None, None)


def test_two_policies_have_a_regret_and_no_correlation() -> None:
    found = rank(all_estimated()[:2], "fitted Q")
    assert found.regret == 10.0
    assert found.rank_correlation is None


def test_nan_comes_last() -> None:
    runs = [estimated(np.nan, np.nan, 50.0), *all_estimated()]
    found = rank(runs, "fitted Q")
    assert found.order == [2, 4, 1, 3, 0]
    assert found.rank_correlation is None


@pytest.mark.parametrize(
    ("runs", "method", "says"),
    [
        ([estimated(1.0, 0.0, None), estimated(1.0, 0.0, None, gamma=0.9)], "fitted Q", "not the same.*--gamma"),
        ([estimated(1.0, 0.0, None), estimated(1.0, 0.0, None, horizon=9)], "fitted Q", "not the same.*--horizon"),
        ([estimated(1.0, 0.0, None)], "doubly robust", "run has no estimate by doubly robust: no noise."),
    ],
)
def test_runs_that_do_not_compare_are_refused(runs, method, says) -> None:
    with pytest.raises(UserError, match=says):
        rank(runs, method)


def test_the_tables_show_all_numbers_and_warnings(capsys) -> None:
    runs = all_estimated()
    print_ranking(runs, rank(runs, "fitted Q", cautious=True))
    printed = capsys.readouterr()
    for words in ("by the lower ends", "run-3 │ 4.00 │ 3.00 │ 40.00", "loses 0.00", "15.00"):
        assert words in " ".join(printed.out.split())
    assert "pspo: warning: run-2: it is low.\n" in printed.err
    print_estimates(runs[2])
    printed = capsys.readouterr()
    for words in ("1.00 │ 0.50 to 1.50", "90 % interval", "returns 10.00"):
        assert words in " ".join(printed.out.split())
    assert "pspo: warning: fitted Q: it is low.\n" in printed.err
    assert "pspo: note: no doubly robust: no" in printed.err
    assert "it is low" not in printed.out


def test_contradictions_are_named(capsys) -> None:
    """Touching and open intervals overlap; sampled actions do not compare with the mode; warnings exclude."""
    made = [("a", 1.0, 2.0, "mode"), ("b", 2.0, 3.0, "mode"), ("c", 2.1, 2.5, "mode"), ("d", 5.0, 6.0, "sampled")]
    made += [("e", -np.inf, np.inf, "sampled"), ("f", np.nan, np.nan, "mode"), ("g", 6.5, 7.0, "sampled")]
    estimates = [ReturnEstimate(name, 0.5 * (low + high), low, high, actions) for name, low, high, actions in made]
    warned = ReturnEstimate("h", 9.0, 9.0, 9.0, "sampled", {}, ["no."])
    found = replace(estimated(3.0, 2.0, None), estimates=[*estimates, warned])
    assert found.contradictions == [("a", "c"), ("d", "g")]
    assert found.as_dict()["contradictions"] == [["a", "c"], ["d", "g"]]
    print_estimates(found)
    assert "pspo: warning: d and g contradict each other" in capsys.readouterr().err
