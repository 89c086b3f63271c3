"""The paper's figure on uncertainty: the models' disagreement against the TD target, with Spearman's coefficient."""

from __future__ import annotations

from typing import Any

import numpy as np

from pspo.report import statistics as stats
from pspo.report.canvas import svg
from pspo.report.figures import cloud
from pspo.report.markup import figure, number, with_error
from pspo.report.records import Record, Results
from pspo.report.summary.figures import plain
from pspo.report.summary.places import group_place, label, main_method, of_runs, printed
from pspo.report.summary.tables import Cell, Column, Part, Table, counted

COEFFICIENT = "uncertainty_td_spearman"
FEWEST = 3  # points that make a picture


def uncertainty_part(results: Results) -> Part:
    title, method = "Uncertainty against the TD target", main_method(results)
    panels = [_panel(results, dataset, method, i) for i, dataset in enumerate(results.datasets)]
    caption = (
        f"Runs of {label(results, method)}, one seed each. Each point is a logged state with an action of the policy: "
        "the log of the models’ disagreement on the next state, as the posterior weighs them, and the value they back "
        "up, both in normalised units. Frames leave out one point in a hundred; coefficients do not."
    )
    known = {d: of_runs(results.of(d, method), COEFFICIENT) for d in results.datasets}
    rows = [_row(results, dataset, method, found) for dataset, found in known.items() if found]
    tables = [_table(results, rows)] if rows else []
    lost = [
        dataset for dataset, drawn in zip(results.datasets, panels, strict=True) if not drawn and not known[dataset]
    ]
    lacking = [f"No uncertainty was recorded: {', '.join(lost)}."] if lost else []
    return Part("uncertainty", title, [_verdict(known)], [figure(panels, caption)], tables, lacking)


def _panel(results: Results, dataset: str, method: str, index: int) -> str | None:
    for record in results.of(dataset, method):
        points = _points(record)
        if points is None:
            continue
        title = f"{plain(dataset)}, seed {record.seed}"
        found = record.result.get(COEFFICIENT)
        if isinstance(found, int | float):
            title += f": ρ = {number(found, 2)}"
        drawn, _ = cloud(*points, title, "log of the models’ disagreement", "TD target")
        return svg(drawn, f"uncertainty-{index}", f"Scatter of uncertainty and TD target on {dataset}.")
    return None


def _points(record: Record) -> tuple[np.ndarray, np.ndarray] | None:
    doubt, target = (np.array(record.doubt.get(name, []), float) for name in ("uncertainty", "td_target"))
    if len(doubt) < FEWEST or doubt.shape != target.shape or not np.isfinite([doubt, target]).all():
        return None
    return doubt, target


def _row(results: Results, dataset: str, method: str, found: list[float]) -> list[Cell]:
    mean, std = stats.mean_and_std(found)
    each = ", ".join(number(value, 3) for value in found)
    target = group_place(results, dataset, method)
    return [Cell(dataset), Cell(with_error(mean, std, 3), mean, target=target), Cell(each, target=target)]


def _table(results: Results, rows: list[list[Cell]]) -> Table:
    columns = [Column("Dataset", "text"), Column("Spearman’s coefficient"), Column("Each seed", "fixed")]
    paper: Any = printed(results, "spearman")
    foot = []
    if isinstance(paper, int | float):
        foot = [[Cell("The paper"), Cell(number(paper, 4), float(paper)), Cell("")]]
    caption = "Rank correlation of uncertainty and TD target: mean ± sample standard deviation over seeds."
    return Table("uncertainty", "Uncertainty and TD target", columns, rows, foot, caption)


def _verdict(known: dict[str, list[float]]) -> str:
    every = [value for found in known.values() for value in found]
    if not every:
        return ""
    below = sum(value < 0 for value in every)
    meaning = (
        "where it is, the value is lower where the models disagree more" if below else "the value is not lower there"
    )
    return f"The coefficient is negative in {below} of {counted(len(every), 'run')}; {meaning}."
