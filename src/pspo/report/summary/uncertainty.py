"""The section with the paper's figure on uncertainty: disagreement of the models against the TD target."""

from __future__ import annotations

from typing import Any

import numpy as np

from pspo.report import statistics as stats
from pspo.report.canvas import plain, svg
from pspo.report.charts import scatter
from pspo.report.markup import figure, number, with_error
from pspo.report.records import Record, Results
from pspo.report.summary.queries import group_anchor, label, main_method, printed, result_values
from pspo.report.summary.section import Cell, Column, ReportTable, Section, counted

COEFFICIENT = "uncertainty_td_spearman"
FEWEST = 3  # points that make a figure


def uncertainty_section(results: Results) -> Section:
    title, method = "Uncertainty against the TD target", main_method(results)
    panels = [_panel(results, dataset, method, i) for i, dataset in enumerate(results.datasets)]
    caption = (
        f"Runs of {label(results, method)}, one seed each. Each point is a state of the dataset with an action of the "
        "policy: the log of the models’ disagreement on the next state, weighted by the posterior, and the value they "
        "back up, both in normalised units. The frames show 99 % of the points; the coefficients use all of them."
    )
    known = {d: result_values(results.of(d, method), COEFFICIENT) for d in results.datasets}
    rows = [_row(results, dataset, method, values) for dataset, values in known.items() if values]
    tables = [_table(results, rows)] if rows else []
    unknown = [
        dataset for dataset, drawn in zip(results.datasets, panels, strict=True) if not drawn and not known[dataset]
    ]
    notices = [f"No uncertainty was recorded: {', '.join(unknown)}."] if unknown else []
    return Section("uncertainty", title, [_signs(known)], [figure(panels, caption)], tables, notices)


def _panel(results: Results, dataset: str, method: str, index: int) -> str | None:
    for record in results.of(dataset, method):
        points = _points(record)
        if points is None:
            continue
        title = f"{plain(dataset)}, seed {record.seed}"
        coefficient = record.result.get(COEFFICIENT)
        if isinstance(coefficient, int | float):
            title += f": ρ = {number(coefficient, 2)}"
        drawn, _ = scatter(*points, title, "log of the models’ disagreement", "TD target")
        return svg(drawn, f"uncertainty-{index}", f"Scatter plot of uncertainty and TD target on {dataset}.")
    return None


def _points(record: Record) -> tuple[np.ndarray, np.ndarray] | None:
    uncertainty, target = (np.array(record.uncertainty.get(name, []), float) for name in ("uncertainty", "td_target"))
    if len(uncertainty) < FEWEST or uncertainty.shape != target.shape or not np.isfinite([uncertainty, target]).all():
        return None
    return uncertainty, target


def _row(results: Results, dataset: str, method: str, values: list[float]) -> list[Cell]:
    mean, std = stats.mean_and_std(values)
    each = ", ".join(number(value, 3) for value in values)
    target = group_anchor(results, dataset, method)
    return [Cell(dataset), Cell(with_error(mean, std, 3), mean, target=target), Cell(each, target=target)]


def _table(results: Results, rows: list[list[Cell]]) -> ReportTable:
    columns = [Column("Dataset", "text"), Column("Spearman’s coefficient"), Column("Each seed", "fixed")]
    paper: Any = printed(results, "spearman")
    foot = []
    if isinstance(paper, int | float):
        foot = [[Cell("The paper"), Cell(number(paper, 4), float(paper)), Cell("")]]
    caption = "Rank correlation of uncertainty and TD target: mean ± sample standard deviation over seeds."
    return ReportTable("uncertainty", "Uncertainty and TD target", columns, rows, foot, caption)


def _signs(known: dict[str, list[float]]) -> str:
    """In how many runs the coefficient has the paper's sign."""
    every = [value for values in known.values() for value in values]
    if not every:
        return ""
    below = sum(value < 0 for value in every)
    return (
        f"The coefficient is negative in {below} of {counted(len(every), 'run')}; negative means that the value is "
        "lower where the models disagree more."
    )
