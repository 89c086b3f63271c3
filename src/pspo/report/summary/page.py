"""One page over many runs, self-contained, and its tables as Markdown and LaTeX.

Every number leads to the runs it is made of, and these to their commands and their own pages. The page's only script
sorts tables; without it everything is there, in the order of the experiment.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from pspo.core.errors import unknown_name
from pspo.core.files import write_atomic
from pspo.report.markup import missing, paragraph, section, text
from pspo.report.records import Results
from pspo.report.run.page import FILE_NAME
from pspo.report.summary.ablation import ablation_part
from pspo.report.summary.comparison import comparison_part
from pspo.report.summary.curves import pessimism_part
from pspo.report.summary.doubt import uncertainty_part
from pspo.report.summary.gaps import missing_part
from pspo.report.summary.header import machine_words, summary_header
from pspo.report.summary.overhead import overhead_part
from pspo.report.summary.rendering import as_html, as_latex, as_markdown, latex_text, markdown_text
from pspo.report.summary.runs import runs_section
from pspo.report.summary.scores import scores_part
from pspo.report.summary.tables import Part

SHOWS: dict[str, Callable[[Results], Part]] = {
    "scores": scores_part,
    "ablation": ablation_part,
    "pessimism": pessimism_part,
    "uncertainty": uncertainty_part,
    "overhead": overhead_part,
}


def write_summary(results: Results, folder: Path) -> list[Path]:
    """Write page and tables into the folder that the records' runs are seen from; returns their paths."""
    folder = Path(folder)
    made = parts(results)
    contents = {
        FILE_NAME: _page(results, made, folder),
        "table.md": markdown(results, made),
        "table.tex": latex(results, made),
    }
    for name, content in contents.items():
        write_atomic(folder / name, content)
    return [folder / name for name in contents]


def summary(results: Results, folder: Path | None = None) -> str:
    """The whole page as text; it links to the pages of runs that exist as seen from `folder`."""
    return _page(results, parts(results), folder)


def parts(results: Results) -> list[Part]:
    """What the page shows, in order."""
    made = []
    for name in results.shows:
        if name not in SHOWS:
            raise unknown_name("part of a page", name, SHOWS)
        made.append(SHOWS[name](results))
        if name == "scores":
            made.append(comparison_part(results))
    return [part for part in [*made, missing_part(results)] if part is not None]


def _page(results: Results, made: list[Part], folder: Path | None) -> str:
    style, more, script = (
        resources.files("pspo.report").joinpath(name).read_text() for name in ("style.css", "summary.css", "summary.js")
    )
    allowed = base64.b64encode(hashlib.sha256(f"\n{script}".encode()).digest()).decode()
    # Nothing is loaded and no other script runs, whatever a name in the results may hold.
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    sections = [*map(_section, made), runs_section(results, folder)]
    return (
        '<!DOCTYPE html>\n<html lang="en-GB">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{text(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(results.title)}</title>\n<style>\n{style}{more}</style>\n</head>\n<body>\n<main>\n"
        f"{summary_header(results)}\n" + "\n".join(filter(None, sections)) + "\n</main>\n"
        f"<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _section(part: Part) -> str:
    words = [paragraph(*part.sentences)] if any(part.sentences) else []
    words += [missing(sentence) for sentence in part.lacking]
    return section(part.name, part.title, *words, *part.figures, *map(as_html, part.tables))


def markdown(results: Results, made: list[Part]) -> str:
    head = [f"# {markdown_text(results.title)}"]
    head += ["\n".join(f"    {line}" for line in results.command.splitlines())] if results.command else []
    head += [markdown_text(words) for words in (machine_words(results.machine), *results.notes) if words]
    for part in made:
        head += [markdown_text(words) for words in part.lacking]
        head += [as_markdown(table).rstrip("\n") for table in part.tables]
    return "\n\n".join(head) + "\n"


def latex(results: Results, made: list[Part]) -> str:
    said = [results.title, results.command, machine_words(results.machine), r"\usepackage{booktabs} is needed."]
    head = "".join(f"% {' '.join(words.split())}\n" for words in said if words)
    head += "".join(f"% {latex_text(words)}\n" for part in made for words in part.lacking)
    return head + "\n" + "\n".join(as_latex(table) for part in made for table in part.tables)
