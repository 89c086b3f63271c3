"""What a run directory holds, read for the report. What is missing or not usable becomes a note on the page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pspo.algorithms import ALGORITHMS
from pspo.core.errors import UserError
from pspo.core.files import Corrupt, one_line, read_arrays
from pspo.core.renamed import new_metrics
from pspo.envs.task import Task, get_task
from pspo.runs.directory import Run, open_run
from pspo.runs.schema import metrics_row

Series = tuple[np.ndarray, np.ndarray]
"""Iterations and values of one metric."""

LARGEST = 1e30  # in a figure: no run computes with more, and axes overflow


@dataclass(frozen=True)
class Contents:
    """The files of a run; one that does not exist is an empty dictionary or list."""

    run: Run
    config: dict[str, Any]
    """config.json: algorithm, dataset, task, preset, seed, settings."""
    manifest: dict[str, Any]
    result: dict[str, Any]
    models: dict[str, Any]
    metrics: list[dict[str, Any]]
    diagnostics: dict[str, np.ndarray]
    task: Task | None
    notes: list[str]
    """One sentence for everything that is missing or was left out."""
    comparison: dict[str, Any] = field(default_factory=dict)
    """comparison.json: the policy beside the dataset; runs of version 0.1 have none."""

    @property
    def has_posterior(self) -> bool:
        """Whether the algorithm keeps a posterior over models, which the page should show."""
        return _has_posterior(self.config, self.manifest)

    @property
    def settings(self) -> dict[str, Any]:
        return self.config.get("settings") or {}

    def setting(self, name: str) -> float | None:
        """A setting that is a number; None where there is none of that name."""
        value = self.settings.get(name)
        return value if isinstance(value, int | float) and _is_usable(value) else None

    def series(self, name: str) -> Series | None:
        """Iterations and values of one metric, at the iterations where it was logged; None where it never was."""
        points = [(row["step"], row[name]) for row in self.metrics if name in row]
        return (np.array([s for s, _ in points]), np.array([v for _, v in points], float)) if points else None

    def scaled(self, series: Series | None) -> Series | None:
        """Returns on the scale of the task's score; unchanged where there is no task."""
        return (series[0], self.task.normalised(series[1])) if series and self.task else series


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """A file that cannot be read becomes one sentence. Its content is checked by runs/schema.py, which says so itself:
    any other exception is a bug, and must be seen.
    """
    try:
        yield
    except OSError as problem:
        raise UserError(
            f"{path} cannot be shown, because a file cannot be read ({one_line(problem)}): restore it."
        ) from problem


def read_contents(path: Path) -> Contents:
    """Read a run directory. Only config.json is required."""
    run, notes = open_run(path), []
    with reading(path):
        config = run.read("config")
        manifest = _json(run, "manifest", "versions and timings are unknown", notes)
        return Contents(
            run=run,
            config=config,
            manifest=manifest,
            result=_json(run, "result", "the run is not finished, or its final evaluation was lost", notes),
            models=_json(run, "models", "the quality of the models and the reference policy is unknown", notes),
            metrics=_metrics(run, notes),
            diagnostics=_diagnostics(run, notes) if _has_posterior(config, manifest) else {},
            task=_task(config.get("task"), notes),
            notes=notes,
            comparison=_json(run, "comparison", "", notes) if (run.path / "comparison.json").exists() else {},
        )


def _has_posterior(config: dict[str, Any], manifest: dict[str, Any]) -> bool:
    """Algorithms without diagnostics have no posterior; an algorithm of pspo that this version does not know may."""
    is_ours = "algorithm" not in manifest  # which names the package of any other
    return is_ours and (config.get("algo") not in ALGORITHMS or bool(ALGORITHMS[config["algo"]].diagnostics))


def _json(run: Run, name: str, meaning: str, notes: list[str]) -> dict[str, Any]:
    if not (run.path / f"{name}.json").exists():
        notes.append(f"There is no {name}.json: {meaning}.")
        return {}
    try:
        value = run.read(name)
    except UserError as problem:
        notes.append(f"{problem}")
        return {}
    return _usable(value, f"{name}.json", notes)


def _usable(content: dict[str, Any], file: str, notes: list[str]) -> dict[str, Any]:
    """Without numbers that are not finite, each named in a note, and without nulls."""
    kept = {}
    for name, value in content.items():
        if isinstance(value, dict):
            kept[name] = _usable(value, file, notes)
        elif not _is_usable(value):
            notes.append(f"'{name}' in {file} is not finite and was left out.")
        elif value is not None:
            kept[name] = value
    return kept


def _is_usable(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_usable, value))
    return not isinstance(value, int | float) or abs(value) <= LARGEST


def _metrics(run: Run, notes: list[str]) -> list[dict[str, Any]]:
    path = run.path / "metrics.jsonl"
    if not path.exists():
        notes.append("There is no metrics.jsonl: the course of training is unknown.")
        return []
    rows = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
        row = metrics_row(line)
        if row is None:
            notes.append(f"Line {number} of metrics.jsonl cannot be read; it and all later lines were left out.")
            break
        rows.append(_usable(new_metrics(row), f"line {number} of metrics.jsonl", notes))
    return rows


def _diagnostics(run: Run, notes: list[str]) -> dict[str, np.ndarray]:
    try:
        arrays, _ = read_arrays(run.path / "diagnostics.safetensors")
    except FileNotFoundError:
        notes.append("There is no diagnostics.safetensors: posterior weights and uncertainty are unknown.")
        return {}
    except Corrupt as problem:
        notes.append(f"Posterior weights and uncertainty are unknown: {problem}")
        return {}
    return {name: array for name, array in arrays.items() if array.ndim == 1 and array.size}


def _task(name: str | None, notes: list[str]) -> Task | None:
    if not name:
        notes.append("The dataset has no task with a simulator: there is no true score, only model-estimated returns.")
        return None
    try:
        return get_task(name)
    except UserError as problem:
        notes.append(f"No true score can be shown: {problem}")
        return None
