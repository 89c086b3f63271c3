"""The cells of a grid: one run each, in a directory whose name says what it holds.

    ROOT/runs/DATASET/METHOD-PRESET/seed-S      (and the minutes of a budget, and a short hash of the settings, where
                                                 some were changed by hand)

Experiments under one root share their runs: PSPO in the ablations is the PSPO of the other tables.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pspo.algorithms import get_algorithm, preset
from pspo.core.config import build, flatten, without_version
from pspo.core.errors import UserError
from pspo.data.load import BUILT_IN, readable_suffixes
from pspo.data.readers.d4rl import d4rl_name
from pspo.envs.task import get_task, known_tasks
from pspo.experiments.declarations import get_method
from pspo.experiments.jobs import Job
from pspo.runs.directory import Run
from pspo.training.request import TrainRequest


@dataclass(frozen=True)
class Source:
    """A dataset of a grid: its name in tables, and the name or path that `train` takes."""

    name: str
    dataset: str
    task: str

    @property
    def is_file(self) -> bool:
        return self.dataset not in BUILT_IN and d4rl_name(self.dataset) is None

    @property
    def task_option(self) -> str | None:
        """The task that must be given with the dataset; built-in data and D4RL's know theirs."""
        return self.task if self.is_file else None

    def absolute(self) -> Source:
        """For workers that run in other folders."""
        return replace(self, dataset=str(Path(self.dataset).resolve())) if self.is_file else self


@dataclass(frozen=True)
class GridCell:
    """One run of a grid."""

    source: Source
    method: str
    preset: str
    seed: int
    settings: dict[str, Any]
    """On top of the preset: those of the method, then those of the request."""
    episodes: int | None
    threads: int
    run: Path

    @property
    def algo(self) -> str:
        return get_method(self.method).algo

    @property
    def name(self) -> str:
        return f"{self.source.name} {self.method} seed {self.seed}"

    @property
    def finished(self) -> bool:
        return Run(self.run).finished

    def config(self) -> Any:
        values = preset(self.algo, self.preset, self.source.task, self.source.name)
        return build(get_algorithm(self.algo).Config, values, self.settings, algo=self.algo)

    def request(self) -> TrainRequest:
        return TrainRequest(
            self.source.dataset,
            self.algo,
            self.preset,
            self.seed,
            self.settings,
            task=self.source.task_option,
            episodes=self.episodes,
        )

    def job(self) -> Job:
        models = models_key(self.source.name, self.config(), self.seed)
        return Job(self.name, self.request(), self.run, self.threads, models=models)


def models_key(dataset: str, config: Any, seed: int) -> str:
    """The same for cells that use the same dynamics models; empty for algorithms that fit none."""
    recipe = getattr(config, "model", None)
    if recipe is None:
        return ""
    models_seed = seed if recipe.seed == -1 else recipe.seed
    return json.dumps([dataset, flatten(recipe), config.gamma, models_seed], sort_keys=True)


def expand(
    root: Path,
    *,
    sources: Sequence[Source],
    methods: Sequence[str],
    seeds: Sequence[int],
    preset: str,
    settings: dict[str, Any],
    episodes: int | None = None,
    minutes: float | None = None,
    threads: int = 1,
) -> list[GridCell]:
    """All cells, seed by seed: a grid that is stopped early has every method once before it has any twice."""
    changed = {method: get_method(method).settings | settings for method in methods}
    return [
        GridCell(source, method, preset, seed, changed[method], episodes, threads, run)
        for seed in seeds
        for source in sources
        for method in methods
        for folder in [_folder(f"{method}-{preset}", settings, episodes, minutes)]
        for run in [root / "runs" / source.name / folder / f"seed-{seed}"]
    ]


def _folder(name: str, settings: dict[str, Any], episodes: int | None, minutes: float | None) -> str:
    if minutes is not None:
        name += f"-{minutes:g}min"
    changed = settings | ({} if episodes is None else {"episodes": episodes})
    if not changed:
        return name
    digest = hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()
    return f"{name}-{digest[:8]}"


def resolve(dataset: str, folder: Path | None) -> Source:
    """A built-in name, a D4RL name (from `folder` where that has the file), or the path of a file TASK-LEVEL.hdf5."""
    if dataset in BUILT_IN:
        return Source(dataset, dataset, dataset)
    path = Path(dataset)
    if path.suffix.lower() in readable_suffixes():
        return _resolve_file(path)
    full = d4rl_name(dataset)
    if full is None:
        raise UserError(
            f"unknown dataset '{dataset}': give {', '.join(BUILT_IN)}, a D4RL name such as hopper-medium, or a file."
        )
    name = without_version(full)
    if folder is None:
        return Source(name, full, name.split("-")[0])
    names = [f"{stem}.hdf5" for base in (name, full) for stem in (base, base.replace("-", "_"))]
    names.append(f"{name.replace('-', '_')}-v2.hdf5")  # as D4RL calls them
    for file in names:
        if (folder / file).exists():
            return Source(name, str(folder / file), name.split("-")[0])
    raise UserError(f"{folder} has no {name}.hdf5: put it there, or leave the dataset out with --datasets.")


def _resolve_file(path: Path) -> Source:
    task = next((task for task in known_tasks() if path.stem.replace("_", "-").split("-")[0] == task), None)
    if task is None:
        raise UserError(
            f"'{path}' does not say which task it was recorded on: call the file TASK-LEVEL{path.suffix}, "
            f"with a task of {', '.join(known_tasks())}."
        )
    if not path.exists():
        raise UserError(f"there is no file '{path}': name one that exists.")
    return Source(without_version(path.stem.replace("_", "-")), str(path), task)


def require_same_config(cell: GridCell) -> None:
    """An existing run must have the configuration of the cell: presets may have changed since."""
    if not (cell.run / "config.json").exists():
        return
    existing, wanted = Run(cell.run).read("config"), flatten(cell.config())
    origin = {"algo": cell.algo, "preset": cell.preset, "seed": cell.seed, "task": cell.source.task}
    episodes = get_task(cell.source.task).default_episodes if cell.episodes is None else cell.episodes
    for name, value in (origin | {"episodes": episodes}).items():
        _require_equal(cell.run, name, existing.get(name), value)
    for name in sorted(wanted.keys() | existing.get("settings", {}).keys()):
        _require_equal(cell.run, name, existing.get("settings", {}).get(name), wanted.get(name))


def _require_equal(run: Path, name: str, existing: Any, wanted: Any) -> None:
    if existing != wanted:
        raise UserError(
            f"{run} holds a run with {name}={str(existing)[:80]} where this grid has {name}={wanted}: "
            "move it away, or choose another --out."
        )


def by_method(cells: Sequence[GridCell]) -> Iterator[list[GridCell]]:
    """The cells of each dataset and method: they differ in their seeds only."""
    groups: dict[tuple[str, str], list[GridCell]] = {}
    for cell in cells:
        groups.setdefault((cell.source.name, cell.method), []).append(cell)
    yield from groups.values()
