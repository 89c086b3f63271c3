"""`--caution low|normal|high`: how close the policy stays to what the dataset shows, for people who know no RL.

A level stands for settings. `normal` is the preset itself; `high` makes the pull towards the dataset, or the penalty
for what the models do not know, FACTOR times as strong, and `low` as weak. Which settings these are is in the registry.
docs/choosing.md has the table.
"""

from __future__ import annotations

from typing import Any

from pspo.algorithms.registry import ALGORITHMS, caution_directions
from pspo.core.config import keys
from pspo.core.errors import UserError, unknown_name

LEVELS = ("low", "normal", "high")
FACTOR = 3.0


def caution_settings(algo: str, config: Any, level: str) -> dict[str, float]:
    """The settings that a level changes, given the preset's configuration; none for `normal`.

    0 stays 0, which switches a setting off.
    """
    if level not in LEVELS:
        raise unknown_name("caution", level, LEVELS)
    if level == "normal":
        return {}
    directions = caution_directions(algo)
    if not directions:
        able = ", ".join(name for name, info in ALGORITHMS.items() if info.caution)
        raise UserError(f"'{algo}' has no setting for caution={level}: leave it out, or choose one of {able}.")
    settable, changed = keys(type(config)), {}
    for name, direction in directions.items():
        before, bounds, factor = getattr(config, name), settable[name].bounds, FACTOR**direction
        value = before * factor if level == "high" else before / factor
        if value != before:
            changed[name] = min(max(value, bounds.low), bounds.high) if bounds else value
    return changed


def about_caution(level: str, config: Any, changed: dict[str, float]) -> str:
    """One line for the user: what the level stands for here."""
    shown = ", ".join(f"{name}={value:.3g} (normal {getattr(config, name):.3g})" for name, value in changed.items())
    return f"caution {level}: {shown}"
