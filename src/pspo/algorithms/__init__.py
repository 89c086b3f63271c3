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
    "epq": "pspo.algorithms.epq",
    "iql": "pspo.algorithms.iql",
    "mopo": "pspo.algorithms.mopo",
    "oraac": "pspo.algorithms.oraac",
    "td3bc": "pspo.algorithms.td3bc",
}

TITLES = {
    "pspo": "Posterior Sampling-based Policy Optimization: an ensemble of models, weighed by the critic",
    "bc": "behaviour cloning: the log's own policy",
    "cql": "Conservative Q-Learning, CQL(H)",
    "dmg": "Doubly Mild Generalization",
    "epq": "Exclusively Penalized Q-learning",
    "iql": "Implicit Q-Learning",
    "mopo": "Model-based Offline Policy Optimization: rewards less the models' uncertainty",
    "oraac": "Offline Risk-Averse Actor-Critic",
    "td3bc": "TD3+BC, a minimalist approach",
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
