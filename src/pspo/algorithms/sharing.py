"""Which algorithms use the same models: a pool is fitted once for all with the same settings of it."""

from __future__ import annotations

from typing import Any

from pspo.algorithms import ALGORITHMS, get_algorithm
from pspo.algorithms.registry import preset
from pspo.core.config import build
from pspo.data.dataset import Dataset


def sharers(algo: str, config: Any, preset_name: str, dataset: Dataset) -> list[str]:
    """Other algorithms that would use this run's pool on these data: their preset has the same model settings."""
    names = []
    for other, row in ALGORITHMS.items():
        if dataset.discrete and not row.discrete:
            continue
        theirs: Any = build(get_algorithm(other).Config, _numbers(other, preset_name, dataset))
        # The discount sets the unit of rewards, which the models predict.
        if other != algo and getattr(theirs, "model", None) == config.model and theirs.gamma == config.gamma:
            names.append(other)
    return names


def _numbers(algo: str, preset_name: str, dataset: Dataset) -> dict[str, Any]:
    return preset(algo, preset_name, dataset.task, dataset.name, dataset.discrete)


def about_pool(algo: str, config: Any, preset_name: str, dataset: Dataset, info: dict[str, Any]) -> str:
    """One line for the user."""
    others = sharers(algo, config, preset_name, dataset)
    where = "found in the cache" if info["cached"] else "fitted now, and kept in the cache"
    whose = f"; shared with {', '.join(others)}" if others else ""
    return f"models: {config.model.pool} networks, {where}{whose}"
