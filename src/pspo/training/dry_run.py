"""`pspo train ... --dry-run`: what would run, on which data, for how long and with how much memory."""

from __future__ import annotations

from typing import Any

from pspo.algorithms import get_algorithm, get_algorithm_for
from pspo.algorithms.registry import preset
from pspo.core.compute import threads
from pspo.data.dataset import Dataset
from pspo.data.holdout import Holdout, hold_out
from pspo.data.load import load_dataset
from pspo.data.readers.d4rl import approximate_size, d4rl_file, d4rl_name
from pspo.envs.task import get_task
from pspo.training.configure import configure, refuse_unused
from pspo.training.cost import FITTED, CostEstimate, Shape, estimate_cost


def describe(
    source: Any,
    algo: str,
    *,
    preset_name: str,
    settings: dict[str, Any],
    caution: str = "normal",
    holdout: float | None = None,
    holdout_by: str | None = None,
    **how: Any,
) -> list[str]:
    """Lines for the user; nothing is downloaded, fitted to the end or written. `how` goes to load_dataset."""
    whole, about_data, task, name = _data(source, how)
    if task:
        get_task(task).require_fit(f"the dataset '{source}'", whole)
    data, about_holdout = _without_holdout(whole, holdout, holdout_by)
    algorithm, discrete = get_algorithm(algo), False
    if isinstance(data, Dataset):
        algorithm, discrete = get_algorithm_for(data, algo), data.discrete
        refuse_unused(algorithm, settings, data)
    config, about = configure(algorithm, algo, preset(algo, preset_name, task, name, discrete), settings, caution)
    cost = estimate_cost(algorithm, config, data)
    return [
        f"would train {algo} on {source}, preset {preset_name}",
        *([about] if about else []),
        f"data             {about_data}",
        *([about_holdout] if about_holdout else []),
        *(f"{phase.name:<16} {about}" for phase, about in zip(cost.phases, _phases(cost, config), strict=True)),
        *([f"termination      {_termination(config, task)}"] if hasattr(config, "termination") else []),
        f"memory           about {cost.bytes / 2**30:.1f} GiB",
        f"in all           at most {span(cost.seconds)} with {threads()} XLA thread{'s' * (threads() > 1)}, "
        "from steps timed just now; models in the cache cost nothing",
    ]


def _without_holdout(data: Dataset | Shape, fraction: float | None, by: str | None) -> tuple[Dataset | Shape, str]:
    """What would be trained on, and a line on what would be held out."""
    if isinstance(data, Dataset):
        rest, _, kept = hold_out(data, fraction, by)
        return rest, kept.describe(data) if kept else ""
    if fraction is None:
        return data, ""
    kept = Holdout(fraction, by or "episode")
    size = round(kept.fraction * data.size)
    return data._replace(size=data.size - size), f"held out: about {size:,} transitions."


def data_or_shape(source: Any, **how: Any) -> Dataset | Shape:
    """The dataset, or its known shape where it would have to be downloaded."""
    name = d4rl_name(source) if isinstance(source, str) else None
    if name is None or d4rl_file(name)[0].exists():
        return load_dataset(source, **how)
    task = get_task(name.split("-")[0])
    return Shape(approximate_size(name), task.obs_dim, task.action_dim)


def _data(source: Any, how: dict[str, Any]) -> tuple[Dataset | Shape, str, str | None, str]:
    shape = data_or_shape(source, **how)
    if isinstance(shape, Dataset):
        about = f"{shape.size:,} transitions, {shape.obs_dim} + {shape.action_dim} columns"
        return shape, about, shape.task, shape.name
    name = d4rl_name(source)
    assert name, "only D4RL's shapes are known before the download"
    (path, url), task = d4rl_file(name), get_task(name.split("-")[0])
    text = f"about {shape.size:,} transitions, {shape.obs_dim} + {shape.action_dim} columns, not here yet: "
    return shape, text + f"would be downloaded from {url} to {path}", how.get("task") or task.name, name


def _phases(cost: CostEstimate, config: Any) -> list[str]:
    lines = []
    for phase in cost.phases:
        name = FITTED.get(phase.name)
        group = getattr(config, name) if name else config
        count = f"{group.pool} networks of " if hasattr(group, "pool") else ""
        size = f"{count}{group.depth} x {group.width} units, "
        most = "at most " if name == "model" else ""
        lines.append(f"{size}{most}{phase.steps:,} steps of {_short(phase.step_seconds)}: {span(phase.seconds)}")
    return lines


def _termination(config: Any, task: str | None) -> str:
    if config.termination != "auto":
        return config.termination
    return f"the known rule of {task}" if task else "learned from the dataset"


def _short(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"


def span(seconds: float) -> str:
    """A duration for people: "1.5 hours"."""
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
