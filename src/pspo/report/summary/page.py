"""One page over many runs, self-contained, and its tables as Markdown and LaTeX.

Every number links to the runs it comes from, and these to their commands and pages. The page's only script sorts
tables; without it everything is shown in the order of the experiment.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from pspo.core.errors import unknown_name
from pspo.core.files import write_atomic
from pspo.report.markup import missing, paragraph, text
from pspo.report.markup import section as html_section
from pspo.report.records import Results
from pspo.report.run.page import FILE_NAME
from pspo.report.summary.ablation import ablation_section
from pspo.report.summary.budget import budget_section
from pspo.report.summary.comparison import comparison_section
from pspo.report.summary.missing_runs import missing_runs_section
from pspo.report.summary.overhead_table import overhead_section
from pspo.report.summary.pessimism import pessimism_section
from pspo.report.summary.rendering import as_html, as_latex, as_markdown, latex_text, markdown_text
from pspo.report.summary.run_list import runs_section
from pspo.report.summary.score_table import scores_section
from pspo.report.summary.section import Section
from pspo.report.summary.summary_header import machine_words, summary_header
from pspo.report.summary.uncertainty import uncertainty_section

SECTIONS: dict[str, tuple[Callable[[Results], Section | None], ...]] = {
    "scores": (scores_section, comparison_section),
    "ablation": (ablation_section,),
    "pessimism": (pessimism_section,),
    "uncertainty": (uncertainty_section,),
    "overhead": (overhead_section,),
}
"""What `Results.shows` may name, and the sections it stands for. None: the section does not apply to these results."""

LAST: tuple[Callable[[Results], Section | None], ...] = (budget_section, missing_runs_section)
"""Sections that every page ends with, before the list of runs."""


def write_summary(results: Results, folder: Path) -> list[Path]:
    """Write page and tables into the folder that the runs' directories are relative to; returns their paths."""
    folder = Path(folder)
    made = sections(results)
    contents = {
        FILE_NAME: _page(results, made, folder),
        "table.md": markdown(results, made),
        "table.tex": latex(results, made),
    }
    for name, content in contents.items():
        write_atomic(folder / name, content)
    return [folder / name for name in contents]


def summary(results: Results, folder: Path | None = None) -> str:
    """The whole page as text; pages of runs are linked where they exist, relative to `folder`."""
    return _page(results, sections(results), folder)


def sections(results: Results) -> list[Section]:
    """What the page shows, in order."""
    makers = []
    for name in results.shows:
        if name not in SECTIONS:
            raise unknown_name("section of a page", name, SECTIONS)
        makers += SECTIONS[name]
    made = [make(results) for make in (*makers, *LAST)]
    return [section for section in made if section is not None]


def _page(results: Results, made: list[Section], folder: Path | None) -> str:
    style, more, script = (
        resources.files("pspo.report").joinpath(name).read_text() for name in ("style.css", "summary.css", "summary.js")
    )
    allowed = base64.b64encode(hashlib.sha256(f"\n{script}".encode()).digest()).decode()
    # Nothing is loaded and no other script runs, whatever a name in the results contains.
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    content = [*map(_as_html, made), runs_section(results, folder)]
    return (
        '<!DOCTYPE html>\n<html lang="en-GB">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{text(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(results.title)}</title>\n<style>\n{style}{more}</style>\n</head>\n<body>\n<main>\n"
        f"{summary_header(results)}\n" + "\n".join(filter(None, content)) + "\n</main>\n"
        f"<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _as_html(section: Section) -> str:
    words = [paragraph(*section.sentences)] if any(section.sentences) else []
    words += [missing(sentence) for sentence in section.notices]
    return html_section(section.name, section.title, *words, *section.figures, *map(as_html, section.tables))


def markdown(results: Results, made: list[Section]) -> str:
    """All tables as Markdown."""
    head = [f"# {markdown_text(results.title)}"]
    head += ["\n".join(f"    {line}" for line in results.command.splitlines())] if results.command else []
    head += [markdown_text(words) for words in (machine_words(results.machine), *results.notes) if words]
    for section in made:
        head += [markdown_text(words) for words in section.notices]
        head += [as_markdown(table).rstrip("\n") for table in section.tables]
    return "\n\n".join(head) + "\n"


def latex(results: Results, made: list[Section]) -> str:
    """All tables as LaTeX."""
    comments = [results.title, results.command, machine_words(results.machine), r"\usepackage{booktabs} is needed."]
    head = "".join(f"% {' '.join(words.split())}\n" for words in comments if words)
    head += "".join(f"% {latex_text(words)}\n" for section in made for words in section.notices)
    return head + "\n" + "\n".join(as_latex(table) for section in made for table in section.tables)
