"""The end of the page: every setting, and what the result depends on besides them."""

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
    usual, helps = preset_values(contents), _helps(contents)
    changed = changed_settings(contents) if usual is not None else {}
    names = sorted(settings, key=lambda name: name not in changed)  # the changed ones first; otherwise as recorded
    rows = [(name, _shown(settings[name]), _of_preset(name, usual, changed), helps.get(name, "")) for name in names]
    every = table(("key", "value", "preset", "meaning"), rows, range(len(changed)))
    return section("settings", title, paragraph(_difference(contents, usual, changed)), fold("All settings", every))


def _difference(contents: Contents, usual: dict[str, Any] | None, changed: dict[str, Any]) -> str:
    name = contents.facts.get("preset", "unknown")
    if usual is None:
        return f"This version of pspo does not know the preset “{name}”, so differences cannot be marked."
    if not changed:
        return f"All {len(contents.settings)} settings are those of the preset “{name}”."
    listed = ", ".join(f"{key} = {_shown(value)} (preset: {_shown(usual.get(key))})" for key, value in changed.items())
    verb = "differs" if len(changed) == 1 else "differ"
    return f"{len(changed)} of {len(contents.settings)} settings {verb} from the preset “{name}”: {listed}."


def _of_preset(name: str, usual: dict[str, Any] | None, changed: dict[str, Any]) -> str:
    if usual is None:
        return "unknown"
    return f"{_shown(usual.get(name))} (changed)" if name in changed else "same"


def _shown(value: Any) -> str:
    if value is None:
        return "unknown"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _helps(contents: Contents) -> dict[str, str]:
    try:
        return {key.name: key.help for key in keys(get_algorithm(contents.facts.get("algo", "")).Config).values()}
    except UserError:
        return {}


NAMES = {
    "pspo": "pspo",
    "algorithm": "Algorithm",
    "python": "Python",
    "platform": "Machine",
    "device": "Device",
    "cores": "Cores",
    "threads": "Threads of XLA",
    "seed": "Seed",
    "data_hash": "SHA-256 of the data",
}


def provenance_section(contents: Contents) -> str:
    """The manifest: what a result depends on besides data and settings."""
    title, manifest = "Machine, versions, timings", contents.manifest
    if not manifest:
        return section("provenance", title, missing("There is no manifest to show."))
    rows = [(label, manifest[name]) for name, label in NAMES.items() if name in manifest]
    if libraries := manifest.get("libraries"):
        rows.append(("Libraries", ", ".join(f"{name} {version}" for name, version in libraries.items())))
    if timings := manifest.get("timings"):
        rows.append(("Seconds", ", ".join(f"{phase} {seconds:,.1f}" for phase, seconds in timings.items())))
    rows += [(f"Digest of the {name}", value) for name, value in (manifest.get("models") or {}).items()]
    known = {*NAMES, "libraries", "timings", "models"}
    rows += [(name, value) for name, value in manifest.items() if name not in known]
    return section("provenance", title, table((), rows))
