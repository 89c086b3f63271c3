"""Many runs as one table of records: what a page over several runs is made of, and the small JSON that is kept of them.

A record holds everything that tables and figures need, so that a page can be drawn long after the run directories
are gone. What is missing is a record too: a cell without a result says why.
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
from pspo.report.run.contents import Contents, read_contents
from pspo.report.run.reproduce import changed_settings, command

FILE_NAME = "results.json"
Status = Literal["finished", "unfinished", "failed", "missing"]
LOOKED_AT = ("score", "score_by_regret", "imagined_return", "return_mean")
"""What a learning curve needs of the metrics."""
DOUBTED_POINTS = 400  # of the scatter of doubt and value: enough to see it, small enough to keep
DIGITS = 6  # significant ones of curves and scatters; results keep all of theirs


@dataclass(frozen=True)
class Record:
    """One run, or the place where one should be."""

    dataset: str
    method: str
    seed: int
    algo: str = ""
    preset: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    """Those that differ from the preset."""
    status: Status = "missing"
    said: str = ""
    """Why there is no result, in one sentence."""
    run: str = ""
    """Its directory, as seen from the folder that the results are kept in."""
    command: str = ""
    """What runs it again."""
    result: dict[str, Any] = field(default_factory=dict)
    curve: list[dict[str, float]] = field(default_factory=list)
    """The looks during training."""
    doubt: dict[str, list[float]] = field(default_factory=dict)
    """A sample of the models' disagreement and of the TD target, where the algorithm has them."""

    @property
    def score(self) -> float | None:
        """By exact regret where an optimum is known: the same with less noise."""
        return self.result.get("score_by_regret", self.result.get("score"))


@dataclass(frozen=True)
class Results:
    """All records of an experiment, or of runs that somebody gathered."""

    title: str
    datasets: list[str]
    methods: dict[str, str]
    """Names and what a table calls them, in the order of the table."""
    records: list[Record]
    name: str = ""
    """Of the experiment; empty for gathered runs."""
    shows: list[str] = field(default_factory=lambda: ["scores"])
    """Tables and figures of the page, in order: scores, ablation, pessimism, uncertainty, overhead."""
    first: str = ""
    """The method that the others are compared with."""
    command: str = ""
    published: dict[str, Any] = field(default_factory=dict)
    """What the paper prints, by dataset and method: [mean, standard deviation] or an ablation's drop and fold."""
    notes: list[str] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)
    costs: dict[str, Any] = field(default_factory=dict)
    """Of the overhead table: milliseconds by method."""

    def of(self, dataset: str, method: str) -> list[Record]:
        return [record for record in self.records if (record.dataset, record.method) == (dataset, method)]

    def scores(self, dataset: str, method: str) -> np.ndarray:
        """Final scores of the finished runs, one per seed."""
        found = [record.score for record in self.of(dataset, method) if record.status == "finished"]
        return np.array([score for score in found if score is not None], float)

    def missing(self) -> list[Record]:
        return [record for record in self.records if record.status != "finished"]


def save(results: Results, folder: Path) -> Path:
    """Whole or not at all; a line for every number of a scatter would be no small file."""
    text = json.dumps(dataclasses.asdict(results), indent=1, allow_nan=False)
    text = re.sub(r"\[\s+([-+\d.eE,\s]+?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    write_atomic(folder / FILE_NAME, text + "\n")
    return folder / FILE_NAME


def load(path: Path) -> Results:
    """Of a folder or of the file itself."""
    place = path / FILE_NAME if path.is_dir() else path
    found = read_json(place)
    try:
        return Results(**found | {"records": [Record(**record) for record in found["records"]]})
    except (TypeError, KeyError, AttributeError):
        raise UserError(f"{place} does not hold results of this version: run the experiment again.") from None


def from_run(path: Path, seen_from: Path, dataset: str = "", method: str = "", said: str = "") -> Record:
    """The record of a run directory, finished or not; names default to its own."""
    contents = read_contents(path)
    facts = contents.facts
    done = bool(contents.result)
    changed = changed_settings(contents)
    return Record(
        dataset=dataset or without_version(str(facts.get("name") or Path(str(facts.get("dataset", "unknown"))).stem)),
        method=method or _own_name(contents, changed),
        seed=int(facts.get("seed", 0)),
        algo=str(facts.get("algo", "")),
        preset=str(facts.get("preset", "")),
        settings=changed,
        status="finished" if done else "failed" if said else "unfinished",
        said=said if said or done else _how_far(contents),
        run=_relative(path, seen_from),
        command=" ".join(command(contents)),
        result=contents.result,
        curve=_curve(contents),
        doubt=_doubt(contents.diagnostics),
    )


def _own_name(contents: Contents, changed: Mapping[str, Any]) -> str:
    """Runs of one algorithm with the same settings belong together, whatever their seeds."""
    name, preset = str(contents.facts.get("algo", "unknown")), contents.facts.get("preset", "laptop")
    words = [preset] if preset != "laptop" else []
    words += [setting_word(key, value) for key, value in changed.items()]
    return f"{name} ({', '.join(words)})" if words else name


def _how_far(contents: Contents) -> str:
    steps = contents.settings.get("steps")
    at = contents.metrics[-1]["step"] if contents.metrics else 0
    of = f" of {steps:,}" if isinstance(steps, int) else ""
    return f"stopped or running at iteration {at:,}{of}; `pspo resume {shlex.quote(str(contents.run.path))}` goes on."


def _relative(path: Path, seen_from: Path) -> str:
    return Path(os.path.relpath(path, seen_from)).as_posix()


def _curve(contents: Contents) -> list[dict[str, float]]:
    looks = [row for row in contents.metrics if any(name in row for name in LOOKED_AT)]
    return [{"step": row["step"]} | {n: _short(row[n]) for n in LOOKED_AT if n in row} for row in looks]


def _doubt(arrays: Mapping[str, np.ndarray]) -> dict[str, list[float]]:
    if not {"uncertainty", "td_target"} <= arrays.keys():
        return {}
    every = max(1, -(-len(arrays["uncertainty"]) // DOUBTED_POINTS))
    kept = {name: arrays[name][::every] for name in ("uncertainty", "td_target")}
    finite = np.isfinite(kept["uncertainty"]) & np.isfinite(kept["td_target"])
    return {name: [_short(float(value)) for value in values[finite]] for name, values in kept.items()}


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def gather(paths: Iterable[Path], seen_from: Path) -> Results:
    """Every run under the given folders, side by side: datasets and methods as they are met."""
    runs = sorted({place.parent for path in paths for place in path.rglob("config.json")})
    if not runs:
        raise UserError("there is no run in the given folders: a run directory holds a config.json.")
    records = [from_run(run, seen_from) for run in runs]
    records.sort(key=lambda record: (record.dataset, record.method, record.seed))
    methods = {record.method: record.method for record in records}
    datasets = list(dict.fromkeys(record.dataset for record in records))
    return Results("Runs side by side", datasets, methods, records, first="pspo" if "pspo" in methods else "")
