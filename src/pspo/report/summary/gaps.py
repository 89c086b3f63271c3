"""Which results are missing, and why."""

from __future__ import annotations

from dataclasses import dataclass

from pspo.report.records import Results
from pspo.report.summary.places import group_place, label
from pspo.report.summary.tables import Cell, Column, Part, Table, counted


@dataclass(frozen=True)
class _Gap:
    """Why some seeds of a method have no result."""

    method: str
    seeds: tuple[int, ...]
    status: str
    why: str


def missing_part(results: Results) -> Part | None:
    """Every place without a result, together where the reason is the same; None where nothing is missing."""
    gaps: dict[_Gap, list[str]] = {}
    for dataset in results.datasets:
        for method in results.methods:
            for gap in _gaps(results, dataset, method):
                gaps.setdefault(gap, []).append(dataset)
    if not gaps:
        return None
    rows = [_gap_row(results, gap, datasets) for gap, datasets in gaps.items()]
    columns = [Column(title, "text") for title in ("Method", "Dataset", "Seeds", "Status", "Why")]
    table = Table("missing", "What is missing", columns, rows)
    return Part("missing", "What is missing", [_count(results)], tables=[table])


def _gaps(results: Results, dataset: str, method: str) -> list[_Gap]:
    records = results.of(dataset, method)
    if not records:
        return [_Gap(method, (), "missing", "No such run was found.")]
    seeds: dict[tuple[str, str], list[int]] = {}
    for record in records:
        if record.status != "finished":
            seeds.setdefault((record.status, record.said or _usual_reason(record.status)), []).append(record.seed)
    return [_Gap(method, tuple(found), *why) for why, found in seeds.items()]


def _gap_row(results: Results, gap: _Gap, datasets: list[str]) -> list[Cell]:
    every = len(datasets) == len(results.datasets) > 1
    return [
        Cell(label(results, gap.method)),
        Cell("every dataset" if every else ", ".join(datasets), target=group_place(results, datasets[0], gap.method)),
        Cell(", ".join(map(str, gap.seeds)) or "all"),
        Cell(gap.status),
        Cell(gap.why),
    ]


def _usual_reason(status: str) -> str:
    return {"missing": "It was never started.", "unfinished": "It has no result yet."}.get(
        status, "It did not say why."
    )


def _count(results: Results) -> str:
    lost, all_of_them = len(results.missing()), counted(len(results.records), "run")
    if not lost:
        return "Some methods have no run on some of the datasets."
    verb = "has" if lost == 1 else "have"
    return f"{lost} of {all_of_them} {verb} no result. Tables and figures are made of the others."
