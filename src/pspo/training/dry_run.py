"""`pspo train ... --dry-run`: what would be run, on which data, for how long and with how much memory."""

from __future__ import annotations

from typing import Any

from pspo.algorithms import get_algorithm
from pspo.algorithms.registry import preset
from pspo.core.compute import threads
from pspo.core.config import build
from pspo.data.dataset import Dataset
from pspo.data.load import load_dataset
from pspo.data.readers.d4rl import d4rl_name, place, usual_rows
from pspo.envs.task import get_task
from pspo.training.cost import RECIPES, Estimate, Shape, estimate


def describe(source: Any, algo: str, preset_name: str, settings: dict[str, Any], **how: Any) -> list[str]:
    """Lines for the user; nothing is downloaded, fitted to the end or written. `how` goes to load_dataset."""
    data, about_data, task, name = _data(source, how)
    if task:
        get_task(task).require_fit(f"the dataset '{source}'", data)
    module = get_algorithm(algo)
    config = build(module.Config, preset(algo, preset_name, task, name), settings)
    found = estimate(module, config, data)
    return [
        f"would train {algo} on {source}, preset {preset_name}",
        f"data             {about_data}",
        *(f"{phase.name:<16} {about}" for phase, about in zip(found.phases, _phases(found, config), strict=True)),
        *([f"termination      {_termination(config, task)}"] if hasattr(config, "termination") else []),
        f"memory           about {found.bytes / 2**30:.1f} GiB",
        f"in all           at most {span(found.seconds)} with {threads()} XLA thread{'s' * (threads() > 1)}, "
        "from steps timed here just now; models that are in the cache cost nothing",
    ]


def data_or_shape(source: Any, **how: Any) -> Dataset | Shape:
    """The data, or the shape that they are known to have where they would have to be downloaded."""
    name = d4rl_name(source) if isinstance(source, str) else None
    if name is None or place(name)[0].exists():
        return load_dataset(source, **how)
    task = get_task(name.split("-")[0])
    return Shape(usual_rows(name), task.obs_dim, task.action_dim)


def _data(source: Any, how: dict[str, Any]) -> tuple[Dataset | Shape, str, str | None, str]:
    shape = data_or_shape(source, **how)
    if isinstance(shape, Dataset):
        about = f"{shape.size:,} transitions, {shape.obs_dim} + {shape.action_dim} columns"
        return shape, about, shape.task, shape.name
    name = d4rl_name(source)
    assert name, "only D4RL's are known before they are here"
    (path, url), task = place(name), get_task(name.split("-")[0])
    text = f"about {shape.rows:,} transitions, {shape.obs_dim} + {shape.action_dim} columns, not here yet: "
    return shape, text + f"would be downloaded from {url} to {path}", how.get("task") or task.name, name


def _phases(found: Estimate, config: Any) -> list[str]:
    lines = []
    for phase in found.phases:
        what = RECIPES.get(phase.name)
        recipe = getattr(config, what) if what else config
        count = f"{recipe.pool} networks of " if hasattr(recipe, "pool") else ""
        size = f"{count}{recipe.depth} x {recipe.width} units, "
        most = "at most " if what == "model" else ""
        lines.append(f"{size}{most}{phase.steps:,} steps of {_short(phase.step_seconds)}: {span(phase.seconds)}")
    return lines


def _termination(config: Any, task: str | None) -> str:
    if config.termination != "auto":
        return config.termination
    return f"the known rule of {task}" if task else "learned from the log"


def _short(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"


def span(seconds: float) -> str:
    """A length of time as a person would say it."""
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
