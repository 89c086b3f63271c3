"""The top of the summary page: what was compared, how many runs are finished, and how to run it again."""

from __future__ import annotations

from typing import Any

from pspo.report.markup import number, paragraph, text
from pspo.report.records import Results
from pspo.report.summary.queries import label, result_values
from pspo.report.summary.rendering import html_command
from pspo.report.summary.section import counted


def summary_header(results: Results) -> str:
    kicker = f"pspo experiment {results.name}" if results.name else "pspo report"
    details = [_presets(results), machine_words(results.machine)]
    lines = "".join(f'<p class="details">{text(line)}</p>' for line in details if line)
    command = f"<h3>Run it again</h3>{html_command(results.command)}" if results.command else ""
    notes = "".join(paragraph(note) for note in results.notes)
    return (
        f'<header><p class="kicker">{text(kicker)}</p><h1>{text(results.title)}</h1>{lines}'
        f"{_cards(results)}{notes}{command}</header>"
    )


def _presets(results: Results) -> str:
    names = list(dict.fromkeys(record.preset for record in results.records if record.preset))
    return f"preset{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""


def machine_words(machine: dict[str, Any]) -> str:
    """Versions and machine in one line; empty where they are not known."""
    libraries = machine.get("libraries")
    jax = libraries.get("jax") if isinstance(libraries, dict) else None
    words = [
        f"pspo {machine['pspo']}" if "pspo" in machine else "",
        f"Python {machine['python']}" if "python" in machine else "",
        f"JAX {jax}" if jax else "",
        str(machine.get("platform", "")),
        counted(machine["cores"], "core") if isinstance(machine.get("cores"), int) else "",
    ]
    return " · ".join(filter(None, words))


def _cards(results: Results) -> str:
    if not results.records:
        return ""
    finished = sum(record.status == "finished" for record in results.records)
    hours = sum(result_values(results.records, "seconds")) / 3600
    spent = ("Hours", number(hours, 1)) if hours >= 1 else ("Minutes", number(60 * hours, 1))
    seeds = len({record.seed for record in results.records})
    missing = f'<a href="#section-missing">{text(number(len(results.records) - finished))} missing</a>'
    several = len(results.methods) > 1 and results.first in results.methods
    against = f"compared with {label(results, results.first)}" if several else ""
    cards = [
        ("Datasets", number(len(results.datasets)), text(counted(seeds, "seed"))),
        ("Methods", number(len(results.methods)), text(against)),
        ("Runs finished", number(finished), missing if finished < len(results.records) else "all of them"),
        (*spent, "total over all runs"),
    ]
    drawn = [
        f'<div class="card"><dt>{text(name)}</dt><dd>{text(value)}</dd><p class="hint">{hint}</p></div>'
        for name, value, hint in cards
    ]
    return f'<dl class="cards">{"".join(drawn)}</dl>'
