"""Every run with its command and its own page: where each number on the page leads."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from pspo.report.markup import missing, section, text
from pspo.report.records import Record, Results
from pspo.report.run.page import FILE_NAME
from pspo.report.summary.places import group_place, label, run_place
from pspo.report.summary.rendering import html_cell, html_command, html_head
from pspo.report.summary.tables import NOTHING, Cell, Column, measured

COLUMNS = [
    Column("Dataset", "text"),
    Column("Method", "text"),
    Column("Seed"),
    Column("Status", "text"),
    Column("Score"),
    Column("Minutes"),
    Column("Command and page", "fixed"),
]


def runs_section(results: Results, folder: Path | None) -> str:
    """All of them; links to their own pages where these exist, as seen from `folder`."""
    if not results.records:
        return ""
    met: set[str] = set()
    rows = []
    for index, record in enumerate(results.records):
        place = group_place(results, record.dataset, record.method)
        rows.append(_row(results, index, record, place, place not in met, folder))
        met.add(place)
    table = f'<table class="sortable" id="table-runs">{html_head(COLUMNS)}<tbody>{"".join(rows)}</tbody></table>'
    scroll = f'<div class="scroll" tabindex="0" role="region" aria-label="All runs">{table}</div>'
    return section("runs", "Runs", scroll)


def _row(results: Results, index: int, record: Record, place: str, first: bool, folder: Path | None) -> str:
    anchor = f'<span id="{place}" data-group="{place}"></span>' if first else ""
    seconds = record.result.get("seconds")
    minutes = measured(seconds / 60, 1) if isinstance(seconds, int | float) else NOTHING
    score = measured(record.score, 2) if record.score is not None else NOTHING
    cells = [
        Cell(label(results, record.method)),
        Cell(str(record.seed), float(record.seed)),
        Cell(record.status),
        score,
        minutes,
    ]
    shown = "".join(html_cell(column, cell) for column, cell in zip(COLUMNS[1:], cells, strict=False))
    return (
        f'<tr id="{run_place(index)}" data-group="{place}" data-status="{text(record.status)}">'
        f'<th scope="row" class="text">{anchor}{text(record.dataset)}</th>{shown}'
        f'<td class="fixed">{_details(record, folder)}</td></tr>'
    )


def _details(record: Record, folder: Path | None) -> str:
    """What to type to run it again, where it lies, and what it said if it has no result."""
    page = _page(record, folder)
    parts = [
        missing(record.said) if record.said else "",
        html_command(record.command) if record.command else "",
        f'<p class="where">in {text(record.run)}</p>' if record.run else "",
        f'<p><a class="page" href="{text(page)}">Page of this run</a></p>' if page else "",
    ]
    inside = "".join(parts)
    return f"<details><summary>show</summary>{inside}</details>" if inside else ""


def _page(record: Record, folder: Path | None) -> str:
    """Address of the run's own page; empty where there is none."""
    if folder is None or not record.run or not os.path.isfile(folder / record.run / FILE_NAME):
        return ""
    # A path, whatever it looks like: never a scheme or the name of a host.
    path = quote(f"{record.run}/{FILE_NAME}")
    return "/" + path.lstrip("/") if path.startswith("/") else f"./{path}"
