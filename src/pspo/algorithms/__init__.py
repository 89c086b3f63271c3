"""The algorithms by name. Each is one module of functions, read top to bottom; no base class.

Besides the built-in ones there are those of other packages: declared as entry points of the group "pspo.algorithms",
or registered by a script (docs/adding.md). Only what is installed or registered is ever imported: a name that stands in
a run's files is looked up here, and never followed.
"""

from __future__ import annotations

import importlib
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from pspo.errors import UserError, unknown_name

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

GROUP = "pspo.algorithms"
CONTRACT = ("Config", "prepare", "init", "draw", "update", "policies")
"""What the training loop asks of every algorithm's module."""

_registered: dict[str, ModuleType] = {}


def register_algorithm(name: str, module: ModuleType | str) -> None:
    """Make a module known as an algorithm, for this process: a module, or its importable name."""
    if name in ALGORITHMS:
        raise UserError(f"'{name}' is the name of a built-in algorithm: register yours under another.")
    if not name.replace("-", "").replace("_", "").isalnum():
        raise UserError(f"'{name}' is no name for an algorithm: take letters, digits, - and _.")
    found = _fit(_imported(module) if isinstance(module, str) else module)
    before = _registered.setdefault(name, found)
    if before.__name__ != found.__name__:
        raise UserError(f"'{name}' is registered already, as {before.__name__}: take another name.")
    _registered[name] = found


def get_algorithm(name: str, origin: str | None = None) -> ModuleType:
    """The module of that name, imported only now. `origin` is where a run says that its algorithm came from."""
    if name in ALGORITHMS:
        return importlib.import_module(ALGORITHMS[name])
    if name in _registered:
        return _registered[name]
    if found := _installed().get(name):
        return _fit(_imported(_only(found).value))
    if origin:
        raise UserError(
            f"the algorithm '{name}' came from {origin}, which is not here: install its package, or call "
            f"pspo.register_algorithm('{name}', ...) first."
        )
    raise unknown_name("algorithm", name, [*ALGORITHMS, *outside()])


def outside() -> dict[str, str]:
    """Algorithms that are not built in, and where each is from. None of them is imported for it."""
    installed = {name: " and ".join(map(_source, found)) for name, found in _installed().items()}
    return installed | {name: f"{module.__name__} (registered)" for name, module in _registered.items()}


def shadowed() -> list[str]:
    """One sentence for every installed algorithm that has the name of a built-in one: that one wins."""
    return [
        f"{_source(point)} offers '{point.name}', the name of a built-in algorithm: the built-in one is used."
        for point in entry_points(group=GROUP)
        if point.name in ALGORITHMS
    ]


def get_diagnostics(name: str) -> ModuleType | None:
    return importlib.import_module(DIAGNOSTICS[name]) if name in DIAGNOSTICS else None


def _installed() -> dict[str, list[EntryPoint]]:
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        if point.name not in ALGORITHMS and point not in found.get(point.name, []):
            found.setdefault(point.name, []).append(point)
    return found


def _only(found: list[EntryPoint]) -> EntryPoint:
    if len(found) > 1:
        several = " and ".join(map(_source, found))
        raise UserError(f"'{found[0].name}' is offered by {several}: uninstall all but one.")
    return found[0]


def _source(point: EntryPoint) -> str:
    package = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
    return f"{point.value}{package}"


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        raise UserError(f"the module {name} cannot be imported ({problem}): install what it needs.") from None


def _fit(module: ModuleType) -> ModuleType:
    missing = [name for name in CONTRACT if not hasattr(module, name)]
    if missing:
        name = getattr(module, "__name__", repr(module))
        raise UserError(f"{name} is no algorithm: it lacks {', '.join(missing)} (docs/adding.md).")
    return module
