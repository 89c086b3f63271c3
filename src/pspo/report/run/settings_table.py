"""The section on settings: those that differ from the preset first, then all of them."""

from __future__ import annotations

from typing import Any

from pspo.algorithms import get_algorithm
from pspo.core.config import keys
from pspo.core.errors import UserError
from pspo.report.markup import fold, missing, paragraph, section, table
from pspo.report.run.contents import Contents
from pspo.report.run.reproduce import changed_settings, preset_values


def settings_section(contents: Contents) -> str:
    title, settings = "Settings", contents.settings
    if not settings:
        return section("settings", title, missing("The settings were not recorded."))
    of_preset, help_of = preset_values(contents), _help_texts(contents)
    changed = changed_settings(contents) if of_preset is not None else {}
    names = sorted(settings, key=lambda name: name not in changed)  # changed ones first
    rows = [
        (name, _shown(settings[name]), _preset_column(name, of_preset, changed), help_of.get(name, ""))
        for name in names
    ]
    every = table(("key", "value", "preset", "meaning"), rows, range(len(changed)))
    return section("settings", title, paragraph(_difference(contents, of_preset, changed)), fold("All settings", every))


def _difference(contents: Contents, of_preset: dict[str, Any] | None, changed: dict[str, Any]) -> str:
    name = contents.config.get("preset", "unknown")
    if of_preset is None:
        return f"This version of pspo does not know the preset “{name}”, so differences cannot be marked."
    if not changed:
        return f"All {len(contents.settings)} settings are those of the preset “{name}”."
    listed = ", ".join(
        f"{key} = {_shown(value)} (preset: {_shown(of_preset.get(key))})" for key, value in changed.items()
    )
    verb = "differs" if len(changed) == 1 else "differ"
    return f"{len(changed)} of {len(contents.settings)} settings {verb} from the preset “{name}”: {listed}."


def _preset_column(name: str, of_preset: dict[str, Any] | None, changed: dict[str, Any]) -> str:
    if of_preset is None:
        return "unknown"
    return f"{_shown(of_preset.get(name))} (changed)" if name in changed else "same"


def _shown(value: Any) -> str:
    if value is None:
        return "unknown"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _help_texts(contents: Contents) -> dict[str, str]:
    try:
        return {key.name: key.help for key in keys(get_algorithm(contents.config.get("algo", "")).Config).values()}
    except UserError:
        return {}
