"""The run directory: its files (directory.py), what they may hold (schema.py), the machine (manifest.py), export.

command.py turns columns and task into words of `pspo train`. Called by report, evaluation, training, experiments and
cli.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pspo.core.lazy import lazy_names

_HOMES = {
    "Run": "directory",
    "create": "directory",
    "free_path": "directory",
    "open_run": "directory",
    "writing": "directory",
    "describe_machine": "manifest",
    "export_policy": "export",
}

__all__ = ["Run", "create", "describe_machine", "export_policy", "free_path", "open_run", "writing"]

if TYPE_CHECKING:
    from pspo.runs.directory import Run, create, free_path, open_run, writing
    from pspo.runs.export import export_policy
    from pspo.runs.manifest import describe_machine

__getattr__ = lazy_names(__name__, _HOMES)
