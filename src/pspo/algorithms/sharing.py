"""Which algorithms stand on the same models: a pool is fitted once for all whose recipe agrees."""

from __future__ import annotations

from typing import Any

from pspo.algorithms import ALGORITHMS, get_algorithm
from pspo.algorithms.registry import preset
from pspo.core.config import build
from pspo.data.dataset import Dataset


def sharers(algo: str, config: Any, preset_name: str, dataset: Dataset) -> list[str]:
    """Other algorithms that would take this run's pool on these data: the same preset gives them the same recipe."""
    found = []
    for other in ALGORITHMS:
        theirs: Any = build(get_algorithm(other).Config, preset(other, preset_name, dataset.task, dataset.name))
        # The discount decides the unit of rewards, which the models predict.
        if other != algo and getattr(theirs, "model", None) == config.model and theirs.gamma == config.gamma:
            found.append(other)
    return found


def about_pool(algo: str, config: Any, preset_name: str, dataset: Dataset, facts: dict[str, Any]) -> str:
    """One line for the user."""
    others = sharers(algo, config, preset_name, dataset)
    where = "found in the cache" if facts["cached"] else "fitted now, and kept in the cache"
    whose = f"; the same serve {', '.join(others)}" if others else ""
    return f"models: {config.model.pool} networks, {where}{whose}"
