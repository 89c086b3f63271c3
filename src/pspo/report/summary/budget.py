"""The section on a budget of equal minutes: what it bought each method."""

from __future__ import annotations

from typing import Any

from pspo.report.records import Results
from pspo.report.summary.queries import label
from pspo.report.summary.section import Cell, Column, ReportTable, Section, measured


def budget_section(results: Results) -> Section | None:
    """None where runs have the iterations of their presets."""
    if not results.budget:
        return None
    rows: dict[tuple[Any, ...], list[str]] = {}
    for run in results.budget["runs"]:
        key = run["method"], run["iteration_seconds"], run["start_seconds"], run["steps"]
        rows.setdefault(key, []).append(run["dataset"])
    titles = ("Milliseconds an iteration", "Seconds at the start", "Iterations")
    columns = [Column("Method", "text"), Column("Dataset", "text"), *map(Column, titles)]
    made = [
        [
            Cell(label(results, method)),
            Cell(_datasets(results, datasets)),
            measured(1e3 * iteration, 2),
            measured(start, 1),
            Cell(f"{steps:,}", float(steps)),
        ]
        for (method, iteration, start, steps), datasets in rows.items()
    ]
    return Section("budget", "Budget", tables=[ReportTable("budget", "Budget", columns, made, caption=_words(results))])


def _datasets(results: Results, datasets: list[str]) -> str:
    every = len(datasets) == len(results.datasets) > 1
    return "every dataset" if every else ", ".join(datasets)


def _words(results: Results) -> str:
    minutes = results.budget["minutes"]
    return (
        f"Every run has {minutes:g} minutes of one core, beyond the models that runs share"
        " and without its evaluations. The iterations were fixed before the runs, from these costs, measured in "
        "seconds of processor time."
    )
