"""The algorithms by name. Each is one module of functions, read top to bottom; no base class."""

from __future__ import annotations

import importlib
from types import ModuleType

from pspo.errors import unknown_name

ALGORITHMS = {
    "pspo": "pspo.algorithms.pspo",
    "bc": "pspo.algorithms.bc",
    "cql": "pspo.algorithms.cql",
    "dmg": "pspo.algorithms.dmg",
    "iql": "pspo.algorithms.iql",
    "td3bc": "pspo.algorithms.td3bc",
}

DIAGNOSTICS = {"pspo": "pspo.algorithms.pspo_diagnostics"}
"""Looks at an algorithm from outside its update: what its models promise, what it doubts. Not every one has them."""


def get_algorithm(name: str) -> ModuleType:
    """The module of that name, imported only now."""
    if name not in ALGORITHMS:
        raise unknown_name("algorithm", name, ALGORITHMS)
    return importlib.import_module(ALGORITHMS[name])


def get_diagnostics(name: str) -> ModuleType | None:
    return importlib.import_module(DIAGNOSTICS[name]) if name in DIAGNOSTICS else None
