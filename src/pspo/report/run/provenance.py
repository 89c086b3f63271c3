"""The section on what the result depends on besides data and settings: the manifest."""

from __future__ import annotations

from pspo.report.markup import missing, section, table
from pspo.report.run.contents import Contents

NAMES = {
    "pspo": "pspo",
    "algorithm": "Algorithm",
    "python": "Python",
    "platform": "Machine",
    "device": "Device",
    "cores": "Cores",
    "threads": "XLA threads",
    "seed": "Seed",
    "data_hash": "SHA-256 of the dataset",
}
PHASES = {"judge": "evaluate"}
"""Names of timings in version 0.1."""


def provenance_section(contents: Contents) -> str:
    title, manifest = "Machine, versions, timings", contents.manifest
    if not manifest:
        return section("provenance", title, missing("There is no manifest to show."))
    rows = [(label, manifest[name]) for name, label in NAMES.items() if name in manifest]
    if libraries := manifest.get("libraries"):
        rows.append(("Libraries", ", ".join(f"{name} {version}" for name, version in libraries.items())))
    if timings := manifest.get("timings"):
        seconds = {PHASES.get(phase, phase): spent for phase, spent in timings.items()}
        rows.append(("Seconds", ", ".join(f"{phase} {spent:,.1f}" for phase, spent in seconds.items())))
    rows += [(f"Digest of the {name}", value) for name, value in (manifest.get("models") or {}).items()]
    known = {*NAMES, "libraries", "timings", "models"}
    rows += [(name, value) for name, value in manifest.items() if name not in known]
    return section("provenance", title, table((), rows))
