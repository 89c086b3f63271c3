"""Tables of the summary page: every number against an independent computation, every missing run listed."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_rel

from pspo.envs.task import get_task
from pspo.report.records import Record, Results
from pspo.report.summary.ablation import ablation_section
from pspo.report.summary.budget import budget_section
from pspo.report.summary.comparison import comparison_section
from pspo.report.summary.missing_runs import missing_runs_section
from pspo.report.summary.overhead_table import overhead_section
from pspo.report.summary.pessimism import compared, pessimism_section, training_curves
from pspo.report.summary.score_table import scores_section
from pspo.report.summary.section import Cell, ReportTable
from pspo.report.summary.uncertainty import uncertainty_section
from tests.report import summary_cases as cases


def plain(words: str) -> str:
    return " ".join(words.split())


def shown(table: ReportTable) -> list[list[str]]:
    return [[plain(cell.shown) for cell in row] for row in [*table.rows, *table.foot]]


def scores(results: Results) -> ReportTable:
    (table,) = scores_section(results).tables
    return table


def cell(table: ReportTable, row: str, column: str, name_column: int = 0) -> Cell:
    titles = [c.title for c in table.columns]
    (found,) = [r for r in [*table.rows, *table.foot] if r[name_column].shown == row]
    return found[titles.index(column)]


def test_scores_are_mean_and_sample_deviation():
    table = scores(cases.made_up())
    for (dataset, method), found in cases.SCORES.items():
        known = [score for score in found if score is not None]
        here = cell(table, dataset, cases.METHODS[method])
        if not known:
            assert (here.shown, here.value) == ("missing", None)
            continue
        assert here.value == pytest.approx(statistics.mean(known))
        assert plain(here.shown) == f"{statistics.mean(known):.1f} ± {statistics.stdev(known):.1f}"
        assert here.incomplete == ("" if len(known) == 4 else "2 of 4 seeds")
        assert here.target.startswith("runs-")


def test_the_best_of_a_row_and_ties_are_marked():
    table = scores(cases.made_up())
    best = {
        row[0].shown: [column.title for column, c in zip(table.columns, row, strict=True) if c.best]
        for row in table.rows
    }
    assert best == {
        "hopper-medium": ["PSPO", cases.AWKWARD],  # 102.00 and 102.01
        "walker2d-medium": ["PSPO"],
        "liquidation": ["PSPO"],  # the optimum is no method
    }
    alone = scores(cases.made_up({pair: row for pair, row in cases.SCORES.items() if pair[1] == "pspo"}))
    assert not any(c.best for row in alone.rows for c in row)


def test_the_average_is_over_datasets_that_all_methods_have():
    table = scores(cases.made_up())
    expected = np.mean([np.mean(cases.SCORES[d, "pspo"]) for d in ("hopper-medium", "walker2d-medium")])
    assert table.foot[0][0].shown == "Average of 2"
    assert cell(table, "Average of 2", "PSPO").value == pytest.approx(expected)
    assert cell(table, "Average of 2", "PSPO").beside == "95.7"  # of 103.2 and 88.1; the paper's 102.3 is left out too
    assert cell(table, "Average of 2", cases.HOSTILE).beside == ""
    assert "leaves out datasets that some method lacks: liquidation." in table.caption
    whole = scores(cases.made_up({pair: [1.0, 2.0] for pair in cases.SCORES}))
    assert whole.foot[0][0].shown == "Average"
    assert "leaves out" not in whole.caption
    one = {
        pair: (row if pair[0] == "hopper-medium" or pair[1] == "pspo" else [None]) for pair, row in cases.SCORES.items()
    }
    assert scores(cases.made_up(one)).foot == []
    assert "There is no average" in scores(cases.made_up(one)).caption


def test_a_method_without_scores_leaves_the_average_of_the_others():
    found = {pair: ([None] if pair[1] == "awkward" else row) for pair, row in cases.SCORES.items()}
    table = scores(cases.made_up(found))
    assert table.foot[0][0].shown == "Average"
    assert cell(table, "Average", cases.AWKWARD).shown == "missing"
    assert cell(table, "Average", "PSPO").value is not None


def test_printed_scores_and_the_optimum_are_shown():
    table = scores(cases.made_up())
    assert plain(cell(table, "hopper-medium", "PSPO").beside) == "103.2 ± 1.5"
    assert plain(cell(table, "hopper-medium", cases.HOSTILE).beside) == "68.00 ± 20.25"
    assert cell(table, "hopper-medium", cases.AWKWARD).beside == ""
    assert cell(table, "liquidation", "Optimum").value == pytest.approx(get_task("liquidation").optimal_score)
    assert cell(table, "hopper-medium", "Optimum").shown == "–"
    locomotion = {pair: row for pair, row in cases.SCORES.items() if pair[0] != "liquidation"}
    bare = scores(cases.made_up(locomotion, published={}))
    assert [column.title for column in bare.columns] == ["Dataset", *cases.METHODS.values()]
    assert bare.beside == ""


def test_one_seed_has_no_standard_deviation():
    table = scores(cases.made_up({("a", "pspo"): [12.34], ("b", "pspo"): [5.0]}))
    assert shown(table)[0] == ["a", "12.3"]


def test_one_dataset_shows_each_seed():
    found = {("liquidation", "pspo"): [101.61, 101.48], ("liquidation", "hostile"): [89.0, None]}
    table = scores(cases.made_up(found))
    titles = ["Method", "Score", "The paper", "Seed 0", "Seed 1", "Worst tenth", "Minutes"]
    assert [column.title for column in table.columns] == titles
    assert shown(table) == [
        ["PSPO", "101.55 ± 0.09", "102.3 ± 1.5", "101.61", "101.48", "50.77", "1.5"],
        [cases.HOSTILE, "89.00", "–", "89.00", "failed", "44.50", "1.5"],
        ["Optimum", "101.83", "", "", "", "", ""],
    ]
    assert [c.target for c in table.rows[0][3:5]] == ["run-0", "run-1"]
    assert table.rows[1][1].incomplete == "1 of 2 seeds"
    assert [row[1].best for row in table.rows] == [True, False]


def test_runs_without_a_simulator_with_no_number_or_twice():
    unscored = Record("own", "pspo", 0, status="finished", result={"seconds": 1.0})
    strange = Record("own", "b", 0, status="finished", result={"score": float("nan")})
    twice = [Record("own", "c", 0, status="finished", result={"score": value}) for value in (1.0, 3.0)]
    results = Results("t", ["own"], {"pspo": "P", "b": "B", "c": "C"}, [unscored, strange, *twice], first="pspo")
    table = scores(results)
    assert [row[:3] for row in shown(table)] == [
        ["P", "no simulator", "no simulator"],
        ["B", "not a number", "not a number"],
        ["C", "2.00 ± 1.41", "1.00"],
    ]
    assert table.rows[2][2].incomplete == "first of 2"
    assert comparison_section(results) is None  # one method with a score
    assert [row[1].value for row in table.rows] == [None, None, pytest.approx(2.0)]


ABLATION = {
    ("hopper-medium", "pspo"): [100.0, 104.0],  # mean 102, std 2 sqrt(2)
    ("hopper-medium", "no"): [45.0, 39.0],  # mean 42, std 3 sqrt(2)
    ("walker2d-medium", "pspo"): [50.0, 60.0],
    ("walker2d-medium", "no"): [70.0, 73.0],
    ("a", "pspo"): [8.0],
    ("a", "no"): [4.0],
    ("b", "pspo"): [8.0, 8.0],
    ("b", "no"): [7.9999, 8.0001],
    ("c", "pspo"): [-10.0, -20.0],
    ("c", "no"): [-5.0, -4.0],
    ("d", "pspo"): [8.0],
    ("d", "no"): [None],
}


def test_ablations_by_hand():
    paper = {
        "hopper-medium": {"no": {"drop": 68.1, "fold": 0.96, "arrow": "down"}},
        "walker2d-medium": {"no": {"drop": -2.0, "fold": 9, "arrow": "up"}},
    }
    (table,) = ablation_section(cases.made_up(ABLATION, published=paper)).tables
    assert [column.title for column in table.columns] == [
        *("Dataset", "Ablation", "Score of PSPO", "Score", "Change", "The paper"),
    ]
    assert shown(table) == [
        ["hopper-medium", "no", "102.0 ± 2.8", "42.0 ± 4.2", "↓58.8 % (↑1.5x)", "↓68.1 % (↓0.96x)"],
        ["walker2d-medium", "no", "55.0 ± 7.1", "71.5 ± 2.1", "↑30.0 % (↓0.3x)", "↑2.0 % (↑9x)"],
        ["a", "no", "8.0", "4.0", "↓50.0 % (one seed)", "–"],
        ["b", "no", "8.0 ± 0.0", "8.0 ± 0.0", "0.0 % (std 0)", "–"],
        ["c", "no", "−15.0 ± 7.1", "−4.5 ± 0.7", "↑70.0 % (↓0.1x)", "–"],
        ["d", "no", "8.0", "missing", "missing", "–"],
    ]
    assert table.rows[0][4].value == pytest.approx(-100 * 60 / 102)
    assert table.rows[0][5].value == -68.1


def test_an_ablation_without_variants_has_a_notice():
    alone = ablation_section(cases.made_up({("a", "pspo"): [1.0]}))
    assert alone.tables == []
    assert "nothing to compare" in alone.notices[0]


def test_comparison_by_counting():
    section = comparison_section(cases.made_up())
    assert section
    (table,) = section.tables
    shared = ("hopper-medium", "walker2d-medium")
    every = {m: [[s for s in cases.SCORES[d, m] if s is not None] for d in shared] for m in cases.METHODS}
    for method, found in every.items():
        pooled = sorted(itertools.chain(*found))
        middle = pooled[len(pooled) // 4 : len(pooled) - len(pooled) // 4]
        assert cell(table, cases.METHODS[method], "IQM").value == pytest.approx(np.mean(middle))
        average = cell(table, cases.METHODS[method], "Average")
        assert average.value == pytest.approx(np.mean([np.mean(task) for task in found]))
        low, high = map(float, average.beside.split(" to "))
        assert low <= average.value <= high
    for method in ("hostile", "awkward"):
        wins = [
            np.mean([(x > y) + 0.5 * (x == y) for x, y in itertools.product(mine, theirs)])
            for mine, theirs in zip(every["pspo"], every[method], strict=True)
        ]
        name = cases.METHODS[method]
        assert cell(table, name, "PSPO better").value == pytest.approx(np.mean(wins))
        means = ([np.mean(task) for task in every[m]] for m in ("pspo", method))
        t, p = ttest_rel(*means, alternative="greater")
        assert cell(table, name, "t").value == pytest.approx(t)
        assert cell(table, name, "p").value == pytest.approx(p)
    assert section.sentences == [
        "Over 22 runs of 3 methods on 2 datasets. Left out, because not all methods have a score there: liquidation."
    ]


def test_comparisons_need_something_to_compare():
    two = {("a", "pspo"): [1.0, 2.0], ("a", "no"): [1.5, 0.5]}
    small = comparison_section(cases.made_up(two))
    assert small
    assert small.figures == []  # two dots are no figure
    titles = [column.title for column in small.tables[0].columns]
    assert titles == ["Method", "IQM", "Average", "PSPO better"]  # no test over one dataset
    without_first = comparison_section(cases.made_up(two, first=""))
    assert without_first
    assert [column.title for column in without_first.tables[0].columns] == ["Method", "IQM", "Average"]
    single = comparison_section(cases.made_up({pair: [float(len(pair[0]))] for pair in cases.SCORES}))
    assert single
    assert "There is no interval for a single seed" in single.tables[0].caption
    assert all(c.beside == "" for row in single.tables[0].rows for c in row)
    assert [c.shown for c in single.tables[0].rows[1][4:]] == ["–", "–"]  # the same difference everywhere: no t
    assert comparison_section(cases.made_up({("a", "pspo"): [1.0]})) is None
    assert comparison_section(cases.made_up({("a", "pspo"): [1.0], ("b", "no"): [1.0]})) is None


def test_pessimism_from_the_evaluations():
    """Every seed: below at two evaluations, above at two; the gap at the end is 10 + seed, the drop 1 + seed."""
    section = pessimism_section(cases.made_up())
    (table,) = section.tables
    assert shown(table) == [["hopper-medium", "90.0", "101.5", "11.5 ± 1.3", "8 of 16", "4.0"]]
    assert section.notices == ["No evaluation has both an estimate and a true score: walker2d-medium, liquidation."]
    words = plain(section.figures[0])
    assert "above the true score at 8 of 16 evaluations (4 seeds); at the end it is 11.50 ± 1.29 points above." in words
    assert "The largest drop of the true score between two evaluations is 4.00 points (seed 3)." in words


def test_unfinished_curves_count_only_without_finished_ones():
    results = cases.made_up()
    cut = [replace(r, status="unfinished") if r.seed else r for r in results.records]
    (table,) = pessimism_section(replace(results, records=cut)).tables
    assert shown(table) == [["hopper-medium", "90.0", "100.0", "10.0", "2 of 4", "1.0"]]


def test_a_curve_that_never_falls_is_described():
    results = cases.made_up({("hopper-medium", "pspo"): [1.0]})
    rising = [row | {"score": float(row["step"]), "model_return": 0.0} for row in cases.curve(0)]
    results = replace(results, records=[replace(results.records[0], curve=rising)])
    words = compared(training_curves(results, "hopper-medium", "pspo"))
    assert "above the true score at 0 of 4 evaluations (1 seed)" in words
    assert "points below. The true score never fell" in words


def test_spearman_of_each_seed_beside_the_papers():
    section = uncertainty_section(cases.made_up(published={"spearman": -0.2995}))
    (table,) = section.tables
    each = [-0.30, -0.29, -0.28, -0.27]
    expected = f"−{-statistics.mean(each):.3f} ± {statistics.stdev(each):.3f}"
    assert shown(table)[0] == ["hopper-medium", expected, "−0.300, −0.290, −0.280, −0.270"]
    assert shown(table)[-1] == ["The paper", "−0.2995", ""]
    assert "negative in 12 of 12 runs" in section.sentences[0]
    assert section.figures[0].count("<svg") == 3
    nothing = uncertainty_section(cases.made_up({("a", "pspo"): [None]}))
    assert nothing.notices == ["No uncertainty was recorded: a."]


def test_overhead_compares_by_ratios():
    costs = {
        "pspo": {"iteration_milliseconds": {"median": 64.0, "low": 63.0, "high": 68.0}},
        "pmdb": {"iteration_milliseconds": {"median": 640.0, "low": 600.0, "high": 700.0}},
    }
    paper = {"pspo": {"train": [112.078, 0.619]}, "pmdb": {"train": [80.853, 0.408]}}
    methods = {"pspo": "PSPO", "pmdb": "PMDB", "adm": "ADM"}
    results = Results("Overhead", [], methods, [], first="pspo", costs=costs, published=paper, command="pspo ...")
    section = overhead_section(results)
    assert shown(section.tables[0]) == [
        ["PSPO", "64.0", "1.00×", "112.078 ± 0.619", "1.00×"],
        ["PMDB", "640", "10.0×", "80.853 ± 0.408", "0.721×"],
        ["ADM", "missing", "–", "–", "–"],
    ]
    assert section.tables[0].rows[1][1].beside == "600 to 700"
    assert section.notices == ["Not measured: ADM."]
    assert overhead_section(replace(results, costs={})).notices == ["No milliseconds were measured."]


def test_missing_runs_are_listed_with_their_reason():
    results = cases.made_up()
    results = replace(results, methods=results.methods | {"never": "Never"})
    section = missing_runs_section(results)
    assert section
    failed = ["failed", "the run diverged at iteration 3: lower the learning rate."]
    missing = ["missing", "It was never started."]
    assert shown(section.tables[0]) == [
        ["Never", "every dataset", "all", "missing", "No such run was found."],
        [cases.HOSTILE, "walker2d-medium", "1", *failed],
        [cases.HOSTILE, "walker2d-medium", "3", *missing],
        [cases.AWKWARD, "liquidation", "0, 2, 3", *missing],
        [cases.AWKWARD, "liquidation", "1", *failed],
    ]
    assert section.sentences == ["6 of 36 runs have no result. Tables and figures use the others."]
    assert missing_runs_section(cases.made_up({pair: [1.0] for pair in cases.SCORES})) is None


def test_a_budget_is_shown_with_what_it_bought():
    shared = {"method": "pspo", "iteration_seconds": 0.005, "start_seconds": 3.25, "steps": 95_000}
    other = {"method": "hostile", "iteration_seconds": 0.05, "start_seconds": 0.0, "steps": 9600}
    runs = [shared | {"dataset": dataset} for dataset in cases.DATASETS]
    runs.append(other | {"dataset": "hopper-medium"})
    results = cases.made_up(budget={"minutes": 8.0, "runs": runs})
    section = budget_section(results)
    assert section is not None
    (table,) = section.tables
    assert shown(table) == [
        ["PSPO", "every dataset", "5.00", "3.2", "95,000"],
        [cases.HOSTILE, "hopper-medium", "50.00", "0.0", "9,600"],
    ]
    assert table.caption.startswith("Every run has 8 minutes of one core")
    assert "share and without its evaluations" in table.caption
    assert budget_section(cases.made_up()) is None
