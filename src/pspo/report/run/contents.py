"""What a run directory holds, read for the report: what is missing or not finite is said, never guessed."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pspo.algorithms import ALGORITHMS
from pspo.core.errors import UserError
from pspo.core.files import Corrupt, one_line, read_arrays
from pspo.envs.task import Task, get_task
from pspo.runs.directory import Run, open_run
from pspo.runs.schema import metrics_row

Series = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Contents:
    """The files of a run; one that is not there is an empty dictionary or list."""

    run: Run
    facts: dict[str, Any]
    """config.json: algorithm, dataset, task, preset, seed, settings."""
    manifest: dict[str, Any]
    result: dict[str, Any]
    models: dict[str, Any]
    metrics: list[dict[str, Any]]
    diagnostics: dict[str, np.ndarray]
    task: Task | None
    notes: list[str]
    """One sentence for everything that is missing or was left out."""

    @property
    def weighs_models(self) -> bool:
        """Whether there should be a posterior over models to show."""
        return _weighs_models(self.facts, self.manifest)

    @property
    def settings(self) -> dict[str, Any]:
        return self.facts.get("settings") or {}

    def series(self, name: str) -> Series | None:
        """Iterations and values of one metric, at the iterations where it was logged; None where it never was."""
        found = [(row["step"], row[name]) for row in self.metrics if name in row]
        return (np.array([s for s, _ in found]), np.array([v for _, v in found], float)) if found else None

    def scaled(self, series: Series | None) -> Series | None:
        """Returns on the scale of the task's score; as they are where there is no task."""
        return (series[0], self.task.normalised(series[1])) if series and self.task else series


@contextlib.contextmanager
def drawing(place: Path) -> Iterator[None]:
    """Figures take numbers for what they are. Where a file was edited by hand they may be something else."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
        said = f"{type(problem).__name__}: {one_line(problem)}"
        raise UserError(
            f"{place} cannot be shown, as its files hold what no run writes ({said}): restore them."
        ) from problem


def read_contents(path: Path) -> Contents:
    """Only config.json is required: without it this is no run directory."""
    run, notes = open_run(path), []
    facts = run.read("config")
    manifest = _json(run, "manifest", "versions and timings are unknown", notes)
    return Contents(
        run=run,
        facts=facts,
        manifest=manifest,
        result=_json(run, "result", "the run is not finished, or its final judgement was lost", notes),
        models=_json(run, "models", "nothing is known about the quality of models and reference policy", notes),
        metrics=_metrics(run, notes),
        diagnostics=_diagnostics(run, notes) if _weighs_models(facts, manifest) else {},
        task=_task(facts.get("task"), notes),
        notes=notes,
    )


def _weighs_models(facts: dict[str, Any], manifest: dict[str, Any]) -> bool:
    """Algorithms without diagnostics have no posterior; one of pspo's that this version does not know may have."""
    is_ours = "algorithm" not in manifest  # where others' came from is said there
    return is_ours and (facts.get("algo") not in ALGORITHMS or bool(ALGORITHMS[facts["algo"]].diagnostics))


def _json(run: Run, name: str, meaning: str, notes: list[str]) -> dict[str, Any]:
    if not (run.path / f"{name}.json").exists():
        notes.append(f"There is no {name}.json: {meaning}.")
        return {}
    try:
        value = run.read(name)
    except UserError as problem:
        notes.append(f"{problem}")
        return {}
    return _finite(value, f"{name}.json", notes)


def _finite(facts: dict[str, Any], place: str, notes: list[str]) -> dict[str, Any]:
    """Without numbers that are none, each named in a note."""
    kept = {}
    for name, value in facts.items():
        if isinstance(value, dict):
            kept[name] = _finite(value, place, notes)
        elif _is_finite(value):
            kept[name] = value
        else:
            notes.append(f"'{name}' in {place} is not finite and was left out.")
    return kept


def _is_finite(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _metrics(run: Run, notes: list[str]) -> list[dict[str, Any]]:
    path = run.path / "metrics.jsonl"
    if not path.exists():
        notes.append("There is no metrics.jsonl: the course of training is unknown.")
        return []
    rows = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
        row = metrics_row(line)
        if row is None:
            notes.append(f"Line {number} of metrics.jsonl cannot be read; it and what follows were left out.")
            break
        rows.append(_finite(row, f"line {number} of metrics.jsonl", notes))
    return rows


def _diagnostics(run: Run, notes: list[str]) -> dict[str, np.ndarray]:
    try:
        arrays, _ = read_arrays(run.path / "diagnostics.safetensors")
    except FileNotFoundError:
        notes.append("There is no diagnostics.safetensors: the posterior’s weights and doubts are unknown.")
        return {}
    except Corrupt as problem:
        notes.append(f"The posterior’s weights and doubts are unknown: {problem}")
        return {}
    return arrays


def _task(name: str | None, notes: list[str]) -> Task | None:
    if not name:
        notes.append("The data name no task with a simulator: there is no true score, only what the models promise.")
        return None
    try:
        return get_task(name)
    except UserError as problem:
        notes.append(f"No true score can be scaled: {problem}")
        return None
