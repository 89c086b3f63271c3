"""The cells of a grid: one run each, with a directory that says what it holds.

    ROOT/runs/DATASET/METHOD-PRESET/seed-S      (and a short hash of the settings, where some were changed by hand)

Experiments under one root share their runs: the ablations' own PSPO is that of the tables.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pspo.algorithms import get_algorithm
from pspo.algorithms.registry import preset
from pspo.core.config import build, flatten, setting_word, without_version
from pspo.core.errors import UserError
from pspo.data.load import BUILT_IN, READERS
from pspo.data.readers.d4rl import d4rl_name
from pspo.envs.task import get_task, known_tasks
from pspo.experiments.declarations import get_method
from pspo.experiments.jobs import Job
from pspo.runs.directory import Run


@dataclass(frozen=True)
class Source:
    """A dataset of a grid: what it is called, and what `pspo train` takes."""

    name: str
    given: str
    task: str

    @property
    def is_file(self) -> bool:
        return self.given not in BUILT_IN and d4rl_name(self.given) is None

    def absolute(self) -> Source:
        """For workers that stand in other folders."""
        return replace(self, given=str(Path(self.given).resolve())) if self.is_file else self


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    source: Source
    method: str
    preset: str
    seed: int
    settings: dict[str, Any]
    """On top of the preset: the method's own, then those of the command line."""
    episodes: int | None
    threads: int
    run: Path

    @property
    def algo(self) -> str:
        return get_method(self.method).algo

    @property
    def name(self) -> str:
        return f"{self.source.name} {self.method} seed {self.seed}"

    def config(self) -> Any:
        values = preset(self.algo, self.preset, self.source.task, self.source.name)
        return build(get_algorithm(self.algo).Config, values, self.settings)

    def words(self) -> list[str]:
        """Of `pspo train`."""
        words = ["train", self.source.given, "--algo", self.algo, "--preset", self.preset, "--seed", str(self.seed)]
        if self.source.is_file:
            words += ["--task", self.source.task]
        if self.episodes is not None:
            words += ["--episodes", str(self.episodes)]
        for key, value in self.settings.items():
            words += ["--set", setting_word(key, value)]
        return words

    def job(self) -> Job:
        models = models_of(self.source.name, self.config(), self.seed)
        return Job(self.name, self.run, self.words(), self.threads, models=models)


def models_of(dataset: str, config: Any, seed: int) -> str:
    """Cells with the same name here stand on the same models; empty for those that fit none."""
    recipe = getattr(config, "model", None)
    if recipe is None:
        return ""
    own_seed = seed if recipe.seed == -1 else recipe.seed
    return json.dumps([dataset, flatten(recipe), config.gamma, own_seed], sort_keys=True)


def expand(
    root: Path,
    sources: Sequence[Source],
    methods: Sequence[str],
    seeds: Sequence[int],
    preset_name: str,
    settings: dict[str, Any],
    episodes: int | None = None,
    threads: int = 1,
) -> list[Cell]:
    """All cells, seed by seed: a grid that is stopped early has every method before it has any twice."""
    changed = {method: get_method(method).settings | settings for method in methods}
    return [
        Cell(source, method, preset_name, seed, changed[method], episodes, threads, run)
        for seed in seeds
        for source in sources
        for method in methods
        for run in [root / "runs" / source.name / _folder(method, preset_name, settings, episodes) / f"seed-{seed}"]
    ]


def _folder(method: str, preset_name: str, settings: dict[str, Any], episodes: int | None) -> str:
    changed = settings | ({} if episodes is None else {"episodes": episodes})
    if not changed:
        return f"{method}-{preset_name}"
    digest = hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()
    return f"{method}-{preset_name}-{digest[:8]}"


def resolve(named: str, folder: Path | None) -> Source:
    """A built-in name, a D4RL name (from `folder` where it has that file), or the path of a file TASK-LEVEL.hdf5."""
    if named in BUILT_IN:
        return Source(named, named, named)
    path = Path(named)
    if path.suffix.lower() in READERS:
        task = next((task for task in known_tasks() if path.stem.replace("_", "-").split("-")[0] == task), None)
        if task is None:
            raise UserError(
                f"'{named}' does not say which task it was recorded on: call the file TASK-LEVEL{path.suffix}, "
                f"with a task of {', '.join(known_tasks())}."
            )
        if not path.exists():
            raise UserError(f"there is no file '{named}': name one that exists.")
        return Source(without_version(path.stem.replace("_", "-")), str(path), task)
    full = d4rl_name(named)
    if full is None:
        raise UserError(
            f"unknown dataset '{named}': give {', '.join(BUILT_IN)}, a D4RL name such as hopper-medium, or a file."
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


def require_same(cell: Cell) -> None:
    """A run that is there already must be the cell's own: presets may have changed since."""
    run = Run(cell.run)
    if not (cell.run / "config.json").exists():
        return
    found, wanted = run.read("config"), flatten(cell.config())
    facts = {"algo": cell.algo, "preset": cell.preset, "seed": cell.seed, "task": cell.source.task}
    episodes = get_task(cell.source.task).default_episodes if cell.episodes is None else cell.episodes
    for name, value in (facts | {"episodes": episodes}).items():
        _refuse_other(cell.run, name, found.get(name), value)
    for name in sorted(wanted.keys() | found.get("settings", {}).keys()):
        _refuse_other(cell.run, name, found.get("settings", {}).get(name), wanted.get(name))


def _refuse_other(run: Path, name: str, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise UserError(
            f"{run} holds a run with {name}={str(found)[:80]} where this grid has {name}={wanted}: "
            "move it away, or choose another --out."
        )


def groups(cells: Sequence[Cell]) -> Iterator[tuple[Cell, list[int]]]:
    """The first cell of every dataset and method, with all seeds of them."""
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.source.name, cell.method), []).append(cell)
    for same in found.values():
        yield same[0], [cell.seed for cell in same]
