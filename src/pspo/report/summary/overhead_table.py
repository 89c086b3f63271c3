"""The section with the overhead table: milliseconds here and in the paper, and both as multiples of one method's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pspo.report.markup import number, with_error
from pspo.report.records import Results
from pspo.report.summary.queries import label, printed, printed_decimals
from pspo.report.summary.section import EMPTY, Cell, Column, ReportTable, Section

PHASES = {"train": ("iteration_milliseconds", "Iteration"), "inference": ("inference_milliseconds", "Inference")}


def overhead_section(results: Results) -> Section:
    if not results.costs:
        return Section("overhead", "Overhead", notices=["No milliseconds were measured."])
    phases = [phase for phase in PHASES if any(_ours(results, m, phase) for m in results.methods)]
    with_paper = any(_papers(results, m, phase) for m in results.methods for phase in phases)
    first = label(results, results.first) if results.first in results.methods else ""
    columns = [Column("Method", "text")]
    for phase in phases:
        titles = [f"{PHASES[phase][1]}, ms", f"of {first}’s" if first else ""]
        titles += ["The paper, ms", f"of {first}’s" if first else ""] if with_paper else []
        columns += [Column(title) for title in titles if title]
    rows = [[Cell(label(results, m)), *_cells(results, m, phases, with_paper, bool(first))] for m in results.methods]
    caption = (
        "Median milliseconds of one training iteration and of one action. Milliseconds cannot be compared between "
        "machines; multiples of the same method’s can."
    )
    caption += " Measured by the command at the top." if results.command else ""
    unmeasured = [label(results, m) for m in results.methods if not any(_ours(results, m, phase) for phase in phases)]
    notices = [f"Not measured: {', '.join(unmeasured)}."] if unmeasured else []
    table = ReportTable("overhead", "Overhead", columns, rows, [], caption, "quartiles over the repetitions")
    return Section("overhead", "Overhead", tables=[table], notices=notices)


def _cells(results: Results, method: str, phases: list[str], with_paper: bool, with_ratio: bool) -> list[Cell]:
    cells = []
    for phase in phases:
        ours, paper = _ours(results, method, phase), _papers(results, method, phase)
        between = f"{_shown(ours['low'])} to {_shown(ours['high'])}" if {"low", "high"} <= ours.keys() else ""
        cells.append(Cell(_shown(ours["median"]), ours["median"], between) if ours else Cell("missing"))
        if with_ratio:
            cells.append(_ratio(ours.get("median"), _ours(results, results.first, phase).get("median")))
        if with_paper:
            cells.append(Cell(_as_printed(*paper[:2]), paper[0]) if paper else EMPTY)
            if with_ratio:
                base = _papers(results, results.first, phase)
                cells.append(_ratio(paper[0] if paper else None, base[0] if base else None))
    return cells


def _ours(results: Results, method: str, phase: str) -> dict[str, float]:
    costs = results.costs.get(method)
    quartiles = costs.get(PHASES[phase][0]) if isinstance(costs, Mapping) else None
    return dict(quartiles) if isinstance(quartiles, Mapping) and "median" in quartiles else {}


def _papers(results: Results, method: str, phase: str) -> list[float]:
    """Mean and, where it is printed, standard deviation."""
    values: Any = printed(results, method, phase)
    values = values if isinstance(values, list | tuple) else [values]
    return [float(value) for value in values if isinstance(value, int | float)]


def _as_printed(mean: float, std: float | None = None) -> str:
    return with_error(mean, std, printed_decimals(mean, std))


def _ratio(value: float | None, base: float | None) -> Cell:
    if value is None or not base:
        return EMPTY
    return Cell(f"{_shown(value / base)}×", value / base)


def _shown(value: float) -> str:
    """Three significant digits; whole numbers from 100."""
    if value == 0 or abs(value) >= 100:
        return number(value, 0)
    return f"{value:#.3g}".removesuffix(".")
