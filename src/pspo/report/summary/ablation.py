"""The section with the paper's ablation table: change of the mean in per cent, of the standard deviation in folds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pspo.report import statistics as stats
from pspo.report.markup import JOINED, number
from pspo.report.records import Results
from pspo.report.summary.queries import group_anchor, label, printed, usable_scores
from pspo.report.summary.score_table import score_cell
from pspo.report.summary.section import EMPTY, Cell, Column, ReportTable, Section


def ablation_section(results: Results) -> Section:
    others = [method for method in results.methods if method != results.first]
    if results.first not in results.methods or not others:
        why = "There is nothing to compare: an ablation needs a full method and at least one variant."
        return Section("ablation", "Ablations", notices=[why])
    return Section("ablation", "Ablations", tables=[_table(results, others)])


def _table(results: Results, others: list[str]) -> ReportTable:
    first, rows = label(results, results.first), []
    pairs = [(dataset, method) for dataset in results.datasets for method in others]
    with_paper = any(_printed_change(results, *pair) != EMPTY for pair in pairs)
    for dataset, method in pairs:
        mine, theirs = (usable_scores(results, dataset, name) for name in (results.first, method))
        row = [Cell(dataset), Cell(label(results, method)), _without_paper(results, dataset, results.first)]
        row += [_without_paper(results, dataset, method)]
        row += [_change(mine, theirs, group_anchor(results, dataset, method))]
        rows.append(row + ([_printed_change(results, dataset, method)] if with_paper else []))
    columns = [Column("Dataset", "text"), Column("Ablation", "text"), Column(f"Score of {first}"), Column("Score")]
    columns += [Column("Change"), *([Column("The paper")] if with_paper else [])]
    caption = (
        f"Change of the mean score against {first} on the same dataset, in per cent, and in parentheses the "
        f"standard deviation over seeds as a multiple of {first}’s: below 1 the seeds vary less."
    )
    return ReportTable("ablation", "Ablations", columns, rows, caption=caption)


def _without_paper(results: Results, dataset: str, method: str) -> Cell:
    cell = score_cell(results, dataset, method, 1)
    return Cell(cell.shown, cell.value, incomplete=cell.incomplete, target=cell.target)


def _change(first: np.ndarray, other: np.ndarray, target: str) -> Cell:
    if not len(first) or not len(other):
        return Cell("missing", target=target)
    (mean, std), (new_mean, new_std) = stats.mean_and_std(first), stats.mean_and_std(other)
    if mean == 0:
        return Cell("not defined: the full method scores 0", target=target)
    rise = 100 * (new_mean - mean) / abs(mean)
    if std is None or new_std is None:
        change = "one seed"
    elif std == 0 or new_std == 0:
        change = "std 0"
    else:
        change = _fold(new_std / std)
    return Cell(_percent(rise) + f"{JOINED}({change})", rise, target=target)


def _percent(rise: float) -> str:
    shown = number(abs(rise), 1)
    arrow = "" if float(shown.replace(",", "")) == 0 else "↑" if rise > 0 else "↓"
    return f"{arrow}{shown}{JOINED}%"


def _fold(ratio: float) -> str:
    """An arrow for more or less, and the factor: half is ↓0.5x."""
    shown = f"{ratio:.1f}" if ratio >= 0.1 else f"{ratio:.1g}"
    shown = shown.removesuffix(".0")
    return ("" if shown == "1" else "↑" if ratio > 1 else "↓") + f"{shown}x"


def _printed_change(results: Results, dataset: str, method: str) -> Cell:
    """The change that the paper prints."""
    paper: Any = printed(results, dataset, method)
    if not isinstance(paper, Mapping) or not isinstance(paper.get("drop"), int | float):
        return EMPTY
    drop, fold = float(paper["drop"]), paper.get("fold")
    arrow = {"up": "↑", "down": "↓"}.get(str(paper.get("arrow")), "")
    change = f"{JOINED}({arrow}{fold:g}x)" if isinstance(fold, int | float) else ""
    return Cell(_percent(-drop) + change, -drop)
