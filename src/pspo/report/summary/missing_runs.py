"""The section on runs without a result, and why they have none."""

from __future__ import annotations

from dataclasses import dataclass

from pspo.report.records import Results
from pspo.report.summary.queries import group_anchor, label
from pspo.report.summary.section import Cell, Column, ReportTable, Section, counted


@dataclass(frozen=True)
class _Missing:
    """Why some seeds of a method have no result."""

    method: str
    seeds: tuple[int, ...]
    status: str
    why: str


def missing_runs_section(results: Results) -> Section | None:
    """Runs without a result, grouped by reason; None where all have one."""
    groups: dict[_Missing, list[str]] = {}
    for dataset in results.datasets:
        for method in results.methods:
            for group in _missing(results, dataset, method):
                groups.setdefault(group, []).append(dataset)
    if not groups:
        return None
    rows = [_row(results, group, datasets) for group, datasets in groups.items()]
    columns = [Column(title, "text") for title in ("Method", "Dataset", "Seeds", "Status", "Why")]
    table = ReportTable("missing", "Missing runs", columns, rows)
    return Section("missing", "Missing runs", [_count(results)], tables=[table])


def _missing(results: Results, dataset: str, method: str) -> list[_Missing]:
    records = results.of(dataset, method)
    if not records:
        return [_Missing(method, (), "missing", "No such run was found.")]
    seeds: dict[tuple[str, str], list[int]] = {}
    for record in records:
        if record.status != "finished":
            seeds.setdefault((record.status, record.message or _usual_reason(record.status)), []).append(record.seed)
    return [_Missing(method, tuple(numbers), *why) for why, numbers in seeds.items()]


def _row(results: Results, group: _Missing, datasets: list[str]) -> list[Cell]:
    every = len(datasets) == len(results.datasets) > 1
    return [
        Cell(label(results, group.method)),
        Cell(
            "every dataset" if every else ", ".join(datasets), target=group_anchor(results, datasets[0], group.method)
        ),
        Cell(", ".join(map(str, group.seeds)) or "all"),
        Cell(group.status),
        Cell(group.why),
    ]


def _usual_reason(status: str) -> str:
    return {"missing": "It was never started.", "unfinished": "It has no result yet."}.get(
        status, "No reason was recorded."
    )


def _count(results: Results) -> str:
    missing, runs = len(results.missing()), counted(len(results.records), "run")
    if not missing:
        return "Some methods have no run on some of the datasets."
    verb = "has" if missing == 1 else "have"
    return f"{missing} of {runs} {verb} no result. Tables and figures use the others."
