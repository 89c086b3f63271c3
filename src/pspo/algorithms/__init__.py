"""The algorithms by name. Each is one module of functions, read top to bottom; no base class."""

from __future__ import annotations

import importlib
from types import ModuleType

from pspo.errors import unknown_name

ALGORITHMS = {
    "pspo": "pspo.algorithms.pspo",
    "1r2r": "pspo.algorithms.one_risk",
    "adm": "pspo.algorithms.adm",
    "bc": "pspo.algorithms.bc",
    "combo": "pspo.algorithms.combo",
    "cql": "pspo.algorithms.cql",
    "dmg": "pspo.algorithms.dmg",
    "epq": "pspo.algorithms.epq",
    "iql": "pspo.algorithms.iql",
    "mopo": "pspo.algorithms.mopo",
    "morel": "pspo.algorithms.morel",
    "oraac": "pspo.algorithms.oraac",
    "pmdb": "pspo.algorithms.pmdb",
    "rambo": "pspo.algorithms.rambo",
    "td3bc": "pspo.algorithms.td3bc",
}

TITLES = {
    "pspo": "Posterior Sampling-based Policy Optimization: an ensemble of models, weighed by the critic",
    "1r2r": "One Risk to Rule Them All: rollouts that go on with one of the worse outcomes",
    "adm": "Any-step Dynamics Model: rewards less the disagreement between ways to predict a step",
    "bc": "behaviour cloning: the log's own policy",
    "combo": "Conservative Offline Model-Based Policy Optimization: CQL on logged and imagined rows",
    "cql": "Conservative Q-Learning, CQL(H)",
    "dmg": "Doubly Mild Generalization",
    "epq": "Exclusively Penalized Q-learning",
    "iql": "Implicit Q-Learning",
    "mopo": "Model-based Offline Policy Optimization: rewards less the models' uncertainty",
    "morel": "Model-Based Offline RL: natural policy gradient in models that halt where they disagree",
    "oraac": "Offline Risk-Averse Actor-Critic",
    "pmdb": "Pessimism-Modulated Dynamics Belief: a game against models drawn from an ensemble",
    "rambo": "Robust Adversarial Model-Based Offline RL: models that are turned against the policy",
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
