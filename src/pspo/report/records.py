"""Many runs as one table of records: what the summary page is made from, kept as results.json.

A record holds everything that tables and figures need, so that a page can be drawn after the run directories are gone.
A run without a result is a record too, with the reason.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pspo.core.config import setting_word, without_version
from pspo.core.errors import UserError
from pspo.core.files import read_json, write_atomic
from pspo.report.results_schema import require_results, with_new_names
from pspo.report.run.contents import Contents, read_contents
from pspo.report.run.reproduce import changed_settings, command

FILE_NAME = "results.json"
Status = Literal["finished", "unfinished", "failed", "missing"]
CURVE_METRICS = ("score", "score_by_regret", "model_return", "return_mean")
SCATTER_POINTS = 400  # of uncertainty and value: enough to see it, and a small file
DIGITS = 6  # significant digits of curves and scatter plots; results keep all


@dataclass(frozen=True)
class Record:
    """One run, or one that is missing."""

    dataset: str
    method: str
    seed: int
    algo: str = ""
    preset: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    """Those that differ from the preset."""
    status: Status = "missing"
    message: str = ""
    """Why there is no result, in one sentence."""
    run: str = ""
    """Its directory, relative to the folder of the results."""
    command: str = ""
    """The command that runs it again."""
    result: dict[str, Any] = field(default_factory=dict)
    curve: list[dict[str, float]] = field(default_factory=list)
    """The evaluations during training."""
    uncertainty: dict[str, list[float]] = field(default_factory=dict)
    """A sample of the models' disagreement and of the TD target, where the algorithm has them."""

    @property
    def score(self) -> float | None:
        """By exact regret where the optimum is known, which has less noise."""
        return self.result.get("score_by_regret", self.result.get("score"))


@dataclass(frozen=True)
class Results:
    """All records of an experiment, or of any folders with runs."""

    title: str
    datasets: list[str]
    methods: dict[str, str]
    """Names and their labels, in the order of tables."""
    records: list[Record]
    name: str = ""
    """Of the experiment; empty for other runs."""
    shows: list[str] = field(default_factory=lambda: ["scores"])
    """Sections of the page, in order: keys of report.summary.page.SECTIONS."""
    first: str = ""
    """The method that the others are compared with."""
    command: str = ""
    published: dict[str, Any] = field(default_factory=dict)
    """What the paper prints, by dataset and method: [mean, standard deviation] or an ablation's drop and fold."""
    notes: list[str] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)
    costs: dict[str, Any] = field(default_factory=dict)
    """For the overhead table: milliseconds by method."""
    budget: dict[str, Any] = field(default_factory=dict)
    """Where all runs had equal time: the minutes, and the iterations that they bought each method on each dataset."""

    def of(self, dataset: str, method: str) -> list[Record]:
        """The runs of a method on a dataset, one per seed."""
        return [record for record in self.records if (record.dataset, record.method) == (dataset, method)]

    def scores(self, dataset: str, method: str) -> np.ndarray:
        """Final scores of the finished runs, one per seed."""
        scores = [record.score for record in self.of(dataset, method) if record.status == "finished"]
        return np.array([score for score in scores if score is not None], float)

    def missing(self) -> list[Record]:
        """Runs without a result."""
        return [record for record in self.records if record.status != "finished"]


def save(results: Results, folder: Path) -> Path:
    """Write results.json, with lists of numbers on one line each."""
    text = json.dumps(dataclasses.asdict(results), indent=1, allow_nan=False)
    text = re.sub(r"\[\s+([-+\d.eE,\s]+?)\s+\]", lambda match: f"[{' '.join(match[1].split())}]", text)
    write_atomic(folder / FILE_NAME, text + "\n")
    return folder / FILE_NAME


def load(path: Path) -> Results:
    """Read results.json, of this version or the one before; `path` is its folder or the file itself."""
    file = path / FILE_NAME if path.is_dir() else path
    content = with_new_names(read_json(file))
    require_results(file, content)
    try:
        return Results(**content | {"records": [Record(**record) for record in content["records"]]})
    except TypeError:  # a key that neither version has, or one that is missing
        raise UserError(f"{file} does not hold results of this version: run the experiment again.") from None


def from_run(path: Path, relative_to: Path, dataset: str = "", method: str = "", message: str = "") -> Record:
    """The record of a run directory, finished or not; `message` says why it failed."""
    contents = read_contents(path)
    config = contents.config
    done = bool(contents.result)
    changed = changed_settings(contents)
    return Record(
        dataset=dataset or without_version(str(config.get("name") or Path(str(config.get("dataset", "unknown"))).stem)),
        method=method or _method_name(contents, changed),
        seed=int(config.get("seed", 0)),
        algo=str(config.get("algo", "")),
        preset=str(config.get("preset", "")),
        settings=changed,
        status="finished" if done else "failed" if message else "unfinished",
        message=message if message or done else _progress(contents),
        run=_relative(path, relative_to),
        command=" ".join(command(contents)),
        result=contents.result,
        curve=_curve(contents),
        uncertainty=_uncertainty(contents.diagnostics),
    )


def _method_name(contents: Contents, changed: Mapping[str, Any]) -> str:
    """The algorithm and what differs from its usual settings: runs of different seeds share it."""
    name, preset = str(contents.config.get("algo", "unknown")), contents.config.get("preset", "laptop")
    words = [preset] if preset != "laptop" else []
    words += [setting_word(key, value) for key, value in changed.items()]
    return f"{name} ({', '.join(words)})" if words else name


def _progress(contents: Contents) -> str:
    steps = contents.settings.get("steps")
    at = contents.metrics[-1]["step"] if contents.metrics else 0
    of = f" of {steps:,}" if isinstance(steps, int) else ""
    return (
        f"stopped or running at iteration {at:,}{of}; `pspo resume {shlex.quote(str(contents.run.path))}` continues it."
    )


def _relative(path: Path, relative_to: Path) -> str:
    return Path(os.path.relpath(path, relative_to)).as_posix()


def _curve(contents: Contents) -> list[dict[str, float]]:
    rows = [row for row in contents.metrics if any(name in row for name in CURVE_METRICS)]
    return [{"step": row["step"]} | {n: _rounded(row[n]) for n in CURVE_METRICS if n in row} for row in rows]


def _uncertainty(arrays: Mapping[str, np.ndarray]) -> dict[str, list[float]]:
    if not {"uncertainty", "td_target"} <= arrays.keys() or arrays["uncertainty"].shape != arrays["td_target"].shape:
        return {}
    every = max(1, -(-len(arrays["uncertainty"]) // SCATTER_POINTS))
    kept = {name: arrays[name][::every] for name in ("uncertainty", "td_target")}
    finite = np.isfinite(kept["uncertainty"]) & np.isfinite(kept["td_target"])
    return {name: [_rounded(float(value)) for value in values[finite]] for name, values in kept.items()}


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def gather(paths: Iterable[Path], relative_to: Path) -> Results:
    """Every run under the given folders."""
    runs = sorted({file.parent for path in paths for file in path.rglob("config.json")})
    if not runs:
        raise UserError("there is no run in the given folders: a run directory holds a config.json.")
    records = [from_run(run, relative_to) for run in runs]
    records.sort(key=lambda record: (record.dataset, record.method, record.seed))
    methods = {record.method: record.method for record in records}
    datasets = list(dict.fromkeys(record.dataset for record in records))
    return Results("Runs side by side", datasets, methods, records, first="pspo" if "pspo" in methods else "")
