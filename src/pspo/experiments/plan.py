"""`pspo experiment ... --dry-run`: every cell with its minutes and its memory, from steps timed here just now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pspo.algorithms import get_algorithm
from pspo.core.config import flatten
from pspo.data.dataset import Dataset
from pspo.experiments.cells import Cell, Source, groups, models_of
from pspo.runs.directory import Run
from pspo.training.cost import Estimate, Shape, estimate
from pspo.training.dry_run import data_or_shape, span


def describe(cells: Sequence[Cell], at_once: int, say: Callable[[str], None] = lambda text: None) -> list[str]:
    """Lines for the user; nothing is downloaded, fitted to the end or written."""
    data: dict[str, Dataset | Shape] = {}
    known: dict[str, Estimate] = {}
    models: dict[str, float] = {}
    lines = [f"{'dataset':<26}{'method':<24}{'seeds':<14}{'state':<20}{'a run':>14}{'memory':>10}"]
    training = 0.0
    for cell, seeds in groups(cells):
        if cell.source.name not in data:
            data[cell.source.name] = _data(cell.source)
        found = data[cell.source.name]
        say(f"timing {cell.method} on {cell.source.name}")
        cost = _estimate(cell, found, known)
        left = [seed for seed in seeds if not Run(cell.run.parent / f"seed-{seed}").finished]
        own = sum(phase.seconds for phase in cost.phases if phase.name == "training")
        training += own * len(left)
        for seed in left:
            name = models_of(cell.source.name, cell.config(), seed) or f"{cell.name} {seed}"
            models[name] = max(models.get(name, 0.0), cost.seconds - own)
        state = f"{len(seeds) - len(left)} of {len(seeds)} finished" if len(left) < len(seeds) else "to be run"
        lines.append(
            f"{cell.source.name:<26}{cell.method:<24}{_seeds(seeds):<14}{state:<20}{span(own):>14}"
            f"{cost.bytes / 2**30:>6.1f} GiB"
        )
    fitting = sum(models.values())
    lines.append(f"models           at most {span(fitting)} of one worker; those in the cache cost nothing")
    lines.append(f"training         {span(training)} of one worker")
    lines.append(f"in all           about {span((training + fitting) / at_once)} with {at_once} at once")
    return lines


def _seeds(seeds: Sequence[int]) -> str:
    return f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])


def _data(source: Source) -> Dataset | Shape:
    return data_or_shape(source.given, task=source.task if source.is_file else None)


def _estimate(cell: Cell, data: Dataset | Shape, known: dict[str, Estimate]) -> Estimate:
    """Once for each configuration and width of the data: 18 datasets of three tasks take three looks a method."""
    config: Any = cell.config()
    key = f"{cell.algo} {data.obs_dim} {data.action_dim} {flatten(config)}"
    if key not in known:
        known[key] = estimate(get_algorithm(cell.algo), config, data)
    return known[key]
