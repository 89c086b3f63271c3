"""One self-contained HTML page per run: no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path

from pspo.core.files import write_atomic
from pspo.report.markup import text
from pspo.report.run.contents import Contents, read_contents
from pspo.report.run.dataset_comparison import comparison_section
from pspo.report.run.learning_curve import learning_curve_section
from pspo.report.run.liquidation_policy import liquidation_policy_section
from pspo.report.run.model_posterior import model_posterior_section
from pspo.report.run.model_quality import model_quality_section
from pspo.report.run.provenance import provenance_section
from pspo.report.run.run_header import headline, run_header
from pspo.report.run.settings_table import settings_section
from pspo.report.run.training_metrics import training_metrics_section
from pspo.report.run.value_uncertainty import value_uncertainty_section

FILE_NAME = "report.html"

SECTIONS: tuple[Callable[[Contents], str], ...] = (
    comparison_section,
    learning_curve_section,
    liquidation_policy_section,
    model_posterior_section,
    value_uncertainty_section,
    model_quality_section,
    training_metrics_section,
    settings_section,
    provenance_section,
)
"""The page from top to bottom. A section returns HTML, or an empty string for a run that it does not apply to."""


def write_report(path: Path) -> Path:
    """Write the page of a run directory, finished or not; returns the page's path."""
    contents = read_contents(Path(path))
    path = contents.run.path / FILE_NAME
    write_atomic(path, page(contents))
    return path


def page(contents: Contents) -> str:
    """The whole page as text."""
    sections = [make(contents) for make in SECTIONS]
    style = resources.files("pspo.report").joinpath("style.css").read_text()
    return (
        '<!DOCTYPE html>\n<html lang="en-GB">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(headline(contents))}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"{run_header(contents)}\n" + "\n".join(filter(None, sections)) + "\n</main>\n</body>\n</html>\n"
    )
