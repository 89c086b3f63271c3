"""One self-contained HTML page per run: no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path

from pspo.core.files import write_atomic
from pspo.report.markup import text
from pspo.report.run import liquidation
from pspo.report.run.contents import Contents, drawing, read_contents
from pspo.report.run.header import header, headline
from pspo.report.run.learning import learning_section, signals_section
from pspo.report.run.model_quality import model_section
from pspo.report.run.posterior import doubt_section, posterior_section
from pspo.report.run.setting_tables import provenance_section, settings_section

FILE_NAME = "report.html"

TASK_SECTIONS: dict[str, Callable[[Contents], str]] = {"liquidation": liquidation.policy_section}
"""What a task can show beyond the figures that every run has."""


def write_report(path: Path) -> Path:
    """Write the page of a run directory, finished or not; returns the page's path."""
    contents = read_contents(Path(path))
    place = contents.run.path / FILE_NAME
    with drawing(contents.run.path):
        html = page(contents)
    write_atomic(place, html)
    return place


def page(contents: Contents) -> str:
    """The whole page as text."""
    of_task = TASK_SECTIONS.get(contents.task.name) if contents.task else None
    sections = [
        learning_section(contents),
        of_task(contents) if of_task else "",
        posterior_section(contents) if contents.weighs_models else "",
        doubt_section(contents) if contents.weighs_models else "",
        model_section(contents) if contents.weighs_models or contents.models else "",
        signals_section(contents),
        settings_section(contents),
        provenance_section(contents),
    ]
    style = resources.files("pspo.report").joinpath("style.css").read_text()
    return (
        '<!DOCTYPE html>\n<html lang="en-GB">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(headline(contents))}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"{header(contents)}\n" + "\n".join(filter(None, sections)) + "\n</main>\n</body>\n</html>\n"
    )
