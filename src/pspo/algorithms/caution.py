"""`--caution low|normal|high`: how close the policy stays to what the dataset shows, for people who know no RL.

A level stands for settings. `normal` is the preset itself; `high` makes the pull towards the dataset, or the penalty
for what the models do not know, FACTOR times as strong, and `low` as weak. docs/choosing.md has the table.
"""

from __future__ import annotations

from typing import Any

from pspo.core.config import keys
from pspo.core.errors import UserError, unknown_name

LEVELS = ("low", "normal", "high")
FACTOR = 3.0

STRENGTHS: dict[str, dict[str, float]] = {
    "pspo": {"alpha": FACTOR, "kl_limit": 1.0 / FACTOR},
    "cql": {"conservatism": FACTOR},
    "td3bc": {"alpha": 1.0 / FACTOR},
    "iql": {"temperature": 1.0 / FACTOR},
    "dmg": {"imitation": FACTOR},
    "mopo": {"penalty": FACTOR},
    "adm": {"penalty": FACTOR},
    "combo": {"conservatism": FACTOR},
}
"""What `high` multiplies each setting by, and `low` divides it by; 0 stays 0, which switches a setting off."""


def caution_settings(algo: str, config: Any, level: str) -> dict[str, float]:
    """The settings that a level changes, given the preset's configuration; none for `normal`."""
    if level not in LEVELS:
        raise unknown_name("caution", level, LEVELS)
    if level == "normal":
        return {}
    if algo not in STRENGTHS:
        known = ", ".join(STRENGTHS)
        raise UserError(f"'{algo}' has no setting for caution={level}: leave it out, or choose one of {known}.")
    settable, changed = keys(type(config)), {}
    for name, factor in STRENGTHS[algo].items():
        before, bounds = getattr(config, name), settable[name].bounds
        value = before * factor if level == "high" else before / factor
        if value != before:
            changed[name] = min(max(value, bounds.low), bounds.high) if bounds else value
    return changed


def about_caution(level: str, config: Any, changed: dict[str, float]) -> str:
    """One line for the user: what the level stands for here."""
    shown = ", ".join(f"{name}={value:.3g} (normal {getattr(config, name):.3g})" for name, value in changed.items())
    return f"caution {level}: {shown}"
