"""The section that compares methods over all datasets and seeds: interquartile means, intervals, tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pspo.core.errors import UserError
from pspo.report import statistics as stats
from pspo.report.canvas import svg
from pspo.report.markup import figure, number, percent
from pspo.report.records import Results
from pspo.report.summary.method_charts import MethodScore, intervals, profiles
from pspo.report.summary.queries import comparable, label, usable_scores
from pspo.report.summary.section import EMPTY, Cell, Column, ReportTable, Section, counted, mark_best

THRESHOLDS = 101  # of a performance profile
DECIMALS = 1


def comparison_section(results: Results) -> Section | None:
    """None where there is nothing to compare."""
    methods, datasets = comparable(results)
    if len(methods) < 2 or not datasets:
        return None
    scores = {method: [usable_scores(results, dataset, method) for dataset in datasets] for method in methods}
    drawn = len(datasets) >= 2 or len(methods) >= 3
    return Section(
        "comparison",
        "Comparison",
        sentences=[_coverage(results, methods, datasets)],
        figures=[_figure(results, scores)] if drawn else [],
        tables=[_table(results, scores)],
    )


def _coverage(results: Results, methods: list[str], datasets: list[str]) -> str:
    """What the numbers are computed from."""
    runs = sum(len(usable_scores(results, dataset, method)) for dataset in datasets for method in methods)
    words = f"Over {counted(runs, 'run')} of {counted(len(methods), 'method')} on {counted(len(datasets), 'dataset')}."
    left_out = [dataset for dataset in results.datasets if dataset not in datasets]
    unscored = [label(results, method) for method in results.methods if method not in methods]
    if left_out:
        words += f" Left out, because not all methods have a score there: {', '.join(left_out)}."
    if unscored:
        words += f" Without any score: {', '.join(unscored)}."
    return words


def _table(results: Results, scores: dict[str, list[np.ndarray]]) -> ReportTable:
    first = results.first if results.first in scores else ""
    several = len(next(iter(scores.values()))) >= 2
    iqm = mark_best([_aggregate(stats.interquartile_mean, of_method) for of_method in scores.values()], DECIMALS)
    average = mark_best([_aggregate(stats.average, of_method) for of_method in scores.values()], DECIMALS)
    rows = []
    for i, method in enumerate(scores):
        row = [Cell(label(results, method)), iqm[i], average[i]]
        if first:
            row.append(EMPTY if method == first else _improvement(scores[first], scores[method]))
        if first and several:
            row += [EMPTY] * 2 if method == first else _test(scores[first], scores[method])
        rows.append(row)
    columns = [Column("Method", "text"), Column("IQM"), Column("Average")]
    caption = "IQM: mean of the middle half of all runs. Average: of the datasets’ means."
    known = any(cell.beside for cell in (*iqm, *average))
    beside = "95 % intervals from a bootstrap over seeds, stratified by dataset" if known else ""
    caption += "" if known else " There is no interval for a single seed."
    if first:
        name = label(results, first)
        columns.append(Column(f"{name} better"))
        caption += f" {name} better: probability that a run of {name} scores higher than one of the other method."
    if first and several:
        columns += [Column("t"), Column("p")]
        caption += (
            f" t and p: paired t-test over {len(scores[first])} datasets, one-sided; a small p favours "
            f"{label(results, first)}."
        )
    return ReportTable("comparison", "Comparison", columns, rows, [], caption, beside)


def _aggregate(statistic: Callable[[stats.Scores], float], scores: stats.Scores) -> Cell:
    value, interval = statistic(scores), stats.bootstrap_interval(statistic, scores)
    between = _between(interval, lambda end: number(end, DECIMALS))
    return Cell(number(value, DECIMALS), value, between, target="section-runs")


def _improvement(first: stats.Scores, other: stats.Scores) -> Cell:
    improvement = stats.probability_of_improvement(first, other)
    between = _between(improvement.interval, lambda end: number(100 * end, 0))
    return Cell(percent(improvement.probability, 0), improvement.probability, between)


def _between(interval: stats.Interval | None, shown: Callable[[float], str]) -> str:
    return f"{shown(interval.low)} to {shown(interval.high)}" if interval else ""


def _test(first: stats.Scores, other: stats.Scores) -> list[Cell]:
    try:
        test = stats.paired_t_test(first, other)
    except UserError:  # the difference is the same on every dataset
        return [EMPTY, EMPTY]
    return [Cell(number(test.t, 2), test.t), Cell(_p_value(test.p), test.p)]


def _p_value(p: float) -> str:
    return number(p, 3) if p >= 0.001 else "< 0.001"


def _figure(results: Results, scores: dict[str, list[np.ndarray]]) -> str:
    estimates = []
    for method, of_method in scores.items():
        interval = stats.bootstrap_interval(stats.interquartile_mean, of_method)
        value = stats.interquartile_mean(of_method)
        estimates.append(MethodScore(label(results, method), value, interval, method == results.first))
    every = np.concatenate([task for of_method in scores.values() for task in of_method])
    span = float(np.ptp(every)) or 1.0
    thresholds = np.linspace(every.min() - 0.03 * span, every.max() + 0.03 * span, THRESHOLDS)
    lines = [
        (label(results, method), stats.performance_profile(of_method, thresholds), method == results.first)
        for method, of_method in scores.items()
    ]
    panels = [
        svg(intervals(estimates), "comparison-iqm", "Interquartile mean of each method with its interval."),
        svg(profiles(lines), "comparison-profiles", "Share of runs above each score, for each method."),
    ]
    caption = "Performance profiles: the share of runs that score above a threshold; higher is better."
    if any(estimate.interval for estimate in estimates):
        caption += " Bars and bands: 95 % intervals."
    return figure(panels, caption)
