"""The run directory: its files (directory.py), what they may hold (schema.py), the machine (manifest.py), export.

command.py turns columns and task into words of `pspo train`. Called by report, evaluation, training, experiments and
cli.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Run": "pspo.runs.directory",
    "create": "pspo.runs.directory",
    "free_path": "pspo.runs.directory",
    "open_run": "pspo.runs.directory",
    "writing": "pspo.runs.directory",
    "describe_machine": "pspo.runs.manifest",
    "export_policy": "pspo.runs.export",
}

__all__ = ["Run", "create", "describe_machine", "export_policy", "free_path", "open_run", "writing"]

if TYPE_CHECKING:
    from pspo.runs.directory import Run, create, free_path, open_run, writing
    from pspo.runs.export import export_policy
    from pspo.runs.manifest import describe_machine


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'pspo.runs' has no attribute '{name}'")
