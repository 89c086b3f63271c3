"""The section that lists every run with its command and a link to its page."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from pspo.report.markup import missing, section, text
from pspo.report.records import Record, Results
from pspo.report.run.page import FILE_NAME
from pspo.report.summary.queries import group_anchor, label, run_anchor
from pspo.report.summary.rendering import html_cell, html_command, html_head
from pspo.report.summary.section import EMPTY, Cell, Column, measured

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
    """All runs; their pages are linked where they exist, relative to `folder`."""
    if not results.records:
        return ""
    seen: set[str] = set()
    rows = []
    for index, record in enumerate(results.records):
        group = group_anchor(results, record.dataset, record.method)
        rows.append(_row(results, index, record, group, group not in seen, folder))
        seen.add(group)
    table = f'<table class="sortable" id="table-runs">{html_head(COLUMNS)}<tbody>{"".join(rows)}</tbody></table>'
    scroll = f'<div class="scroll" tabindex="0" role="region" aria-label="All runs">{table}</div>'
    return section("runs", "Runs", scroll)


def _row(results: Results, index: int, record: Record, group: str, first: bool, folder: Path | None) -> str:
    anchor = f'<span id="{group}" data-group="{group}"></span>' if first else ""
    seconds = record.result.get("seconds")
    minutes = measured(seconds / 60, 1) if isinstance(seconds, int | float) else EMPTY
    score = measured(record.score, 2) if record.score is not None else EMPTY
    cells = [
        Cell(label(results, record.method)),
        Cell(str(record.seed), float(record.seed)),
        Cell(record.status),
        score,
        minutes,
    ]
    shown = "".join(html_cell(column, cell) for column, cell in zip(COLUMNS[1:], cells, strict=False))
    return (
        f'<tr id="{run_anchor(index)}" data-group="{group}" data-status="{text(record.status)}">'
        f'<th scope="row" class="text">{anchor}{text(record.dataset)}</th>{shown}'
        f'<td class="fixed">{_details(record, folder)}</td></tr>'
    )


def _details(record: Record, folder: Path | None) -> str:
    """The command to run it again, its directory, and the reason if it has no result."""
    page = _page(record, folder)
    content = [
        missing(record.message) if record.message else "",
        html_command(record.command) if record.command else "",
        f'<p class="where">in {text(record.run)}</p>' if record.run else "",
        f'<p><a class="page" href="{text(page)}">Page of this run</a></p>' if page else "",
    ]
    inside = "".join(content)
    return f"<details><summary>show</summary>{inside}</details>" if inside else ""


def _page(record: Record, folder: Path | None) -> str:
    """Relative address of the run's page; empty where there is none."""
    if folder is None or not record.run or not os.path.isfile(folder / record.run / FILE_NAME):
        return ""
    # Always a path: never a scheme or a host name.
    path = quote(f"{record.run}/{FILE_NAME}")
    return "/" + path.lstrip("/") if path.startswith("/") else f"./{path}"
