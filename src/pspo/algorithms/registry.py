"""All algorithms by name: one row each, and the presets that belong to them.

Besides the built-in ones there are those of other packages: declared as entry points of the group "pspo.algorithms",
or registered by a script (docs/adding.md). Only what is installed or registered is ever imported: a name in a run's
files is looked up here and never imported as such.
"""

from __future__ import annotations

import importlib
import tomllib
import traceback
from dataclasses import dataclass, field
from importlib import resources
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from pspo.algorithms.contract import Algorithm, Diagnostics, extras, missing_names
from pspo.core.config import without_version
from pspo.core.errors import UserError, unknown_name
from pspo.core.files import one_line

if TYPE_CHECKING:
    from pspo.data.dataset import Dataset


@dataclass(frozen=True)
class AlgorithmInfo:
    """What is known of a built-in algorithm without importing it."""

    label: str
    """As tables and figures print it."""
    title: str
    """One line for `pspo list`."""
    paper: str
    module: str
    tags: tuple[str, ...]
    discrete: str = ""
    """Module that learns discrete actions; none where the algorithm needs quantities."""
    from_file: bool = False
    """Whether it learns from batches alone, so that transitions which do not fit into memory can stay in their file."""
    diagnostics: str = ""
    """Module with figures and estimates that need a look inside the trained state."""
    caution: dict[str, int] = field(default_factory=dict)
    """Settings that `--caution` changes: 1 where a larger value keeps the policy closer to the dataset, -1 where a
    smaller one does."""


FREE, BASED = ("model-free",), ("model-based",)
HERE = "pspo.algorithms"

ALGORITHMS: dict[str, AlgorithmInfo] = {
    "pspo": AlgorithmInfo(
        "PSPO",
        "Posterior Sampling-based Policy Optimization: an ensemble of models, weighted by the critic",
        "Offline Policy Optimization with Posterior Sampling",
        f"{HERE}.pspo.algorithm",
        BASED,
        discrete=f"{HERE}.pspo.algorithm",
        diagnostics=f"{HERE}.pspo.diagnostics",
        caution={"alpha": 1, "kl_limit": -1},
    ),
    "1r2r": AlgorithmInfo(
        "1R2R",
        "One Risk to Rule Them All: rollouts that continue from one of the worse outcomes",
        "Rigter et al. 2023, One Risk to Rule Them All",
        f"{HERE}.one_risk",
        BASED,
    ),
    "adm": AlgorithmInfo(
        "ADM",
        "Any-step Dynamics Model: rewards minus the disagreement between ways to predict a step",
        "Lin et al. 2024, Any-step Dynamics Model Improves Future Predictions",
        f"{HERE}.adm.algorithm",
        BASED,
        caution={"penalty": 1},
    ),
    "bc": AlgorithmInfo(
        "BC",
        "behaviour cloning: the dataset's own policy",
        "Pomerleau 1991, behaviour cloning",
        f"{HERE}.bc",
        FREE,
        from_file=True,
        discrete=f"{HERE}.bc",
    ),
    "combo": AlgorithmInfo(
        "COMBO",
        "Conservative Offline Model-Based Policy Optimization: CQL on real and model-generated transitions",
        "Yu et al. 2021, COMBO",
        f"{HERE}.combo",
        BASED,
        caution={"conservatism": 1},
    ),
    "cql": AlgorithmInfo(
        "CQL",
        "Conservative Q-Learning, CQL(H)",
        "Kumar et al. 2020, Conservative Q-Learning",
        f"{HERE}.cql.algorithm",
        FREE,
        from_file=True,
        discrete=f"{HERE}.cql.discrete",
        caution={"conservatism": 1},
    ),
    "dmg": AlgorithmInfo(
        "DMG",
        "Doubly Mild Generalization",
        "Mao et al. 2024, Doubly Mild Generalization",
        f"{HERE}.dmg",
        FREE,
        from_file=True,
        caution={"imitation": 1},
    ),
    "epq": AlgorithmInfo(
        "EPQ",
        "Exclusively Penalized Q-learning",
        "Yeom et al. 2024, Exclusively Penalized Q-learning",
        f"{HERE}.epq.algorithm",
        FREE,
    ),
    "iql": AlgorithmInfo(
        "IQL",
        "Implicit Q-Learning",
        "Kostrikov et al. 2022, Implicit Q-Learning",
        f"{HERE}.iql",
        FREE,
        from_file=True,
        discrete=f"{HERE}.iql",
        caution={"temperature": -1},
    ),
    "mopo": AlgorithmInfo(
        "MOPO",
        "Model-based Offline Policy Optimization: rewards minus the models' uncertainty",
        "Yu et al. 2020, MOPO",
        f"{HERE}.mopo",
        BASED,
        discrete=f"{HERE}.mopo",
        caution={"penalty": 1},
    ),
    "morel": AlgorithmInfo(
        "MOReL",
        "Model-Based Offline RL: natural policy gradient in models that halt where they disagree",
        "Kidambi et al. 2020, MOReL",
        f"{HERE}.morel.algorithm",
        BASED,
    ),
    "oraac": AlgorithmInfo(
        "ORAAC",
        "Offline Risk-Averse Actor-Critic",
        "Urpi et al. 2021, Risk-Averse Offline Reinforcement Learning",
        f"{HERE}.oraac",
        FREE,
        from_file=True,
    ),
    "pmdb": AlgorithmInfo(
        "PMDB",
        "Pessimism-Modulated Dynamics Belief: a game against models drawn from an ensemble",
        "Guo et al. 2022, Model-Based Offline RL with Pessimism-Modulated Dynamics Belief",
        f"{HERE}.pmdb.algorithm",
        BASED,
    ),
    "rambo": AlgorithmInfo(
        "RAMBO",
        "Robust Adversarial Model-Based Offline RL: models trained as adversaries of the policy",
        "Rigter et al. 2022, RAMBO-RL",
        f"{HERE}.rambo",
        BASED,
    ),
    "td3bc": AlgorithmInfo(
        "TD3+BC",
        "TD3+BC, a minimalist approach",
        "Fujimoto and Gu 2021, A Minimalist Approach to Offline RL",
        f"{HERE}.td3bc",
        FREE,
        from_file=True,
        caution={"alpha": -1},
    ),
}

GROUP = "pspo.algorithms"

_registered: dict[str, ModuleType] = {}


def register_algorithm(name: str, module: ModuleType | str) -> None:
    """Make a module known as an algorithm, for this process: a module, or its importable name."""
    if name in ALGORITHMS:
        raise UserError(f"'{name}' is the name of a built-in algorithm: register yours under another.")
    if not name.replace("-", "").replace("_", "").isalnum():
        raise UserError(f"'{name}' is no name for an algorithm: use letters, digits, - and _.")
    algorithm = _require_contract(_import(module) if isinstance(module, str) else module)
    before = _registered.setdefault(name, algorithm)
    if before.__name__ != algorithm.__name__:
        raise UserError(f"'{name}' is registered already, as {before.__name__}: choose another name.")
    _registered[name] = algorithm


def get_algorithm(name: str, origin: str | None = None) -> Algorithm:
    """The module of that name, imported only now. `origin` is where a run says that its algorithm came from."""
    if name in ALGORITHMS:
        return cast(Algorithm, importlib.import_module(ALGORITHMS[name].module))
    if name in _registered:
        return cast(Algorithm, _registered[name])
    if points := _installed().get(name):
        return cast(Algorithm, _require_contract(_import(_only(points).value)))
    if origin:
        raise UserError(
            f"the algorithm '{name}' came from {origin}, which is not installed: install its package, or call "
            f"pspo.register_algorithm('{name}', ...) first."
        )
    raise unknown_name("algorithm", name, [*ALGORITHMS, *external()])


def get_algorithm_for(dataset: Dataset, name: str, origin: str | None = None) -> Algorithm:
    """The module that learns from this dataset: for discrete actions an algorithm may have another one, or none."""
    algorithm, info = get_algorithm(name, origin), ALGORITHMS.get(name)
    if dataset.mapped_file is not None and not (info.from_file if info else extras(algorithm).FROM_FILE):
        able = ", ".join(other for other, row in ALGORITHMS.items() if row.from_file)
        raise UserError(
            f"{info.label if info else name} needs all transitions in memory, where those of '{dataset.name}' do not "
            f"fit: choose {able}, train on a part of them, or allow more memory."
        )
    if not dataset.discrete:
        return algorithm
    if info and info.discrete:
        return cast(Algorithm, importlib.import_module(info.discrete))
    if info is None and extras(algorithm).DISCRETE:
        return algorithm
    from pspo.data.discrete import shown

    able = ", ".join(other for other, row in ALGORITHMS.items() if row.discrete)
    raise UserError(
        f"{info.label if info else name} cannot learn discrete actions, and '{dataset.name}' has "
        f"{len(dataset.action_labels)} ({shown(dataset.action_labels)}): choose {able}, or give --continuous if they "
        "are a quantity."
    )


def caution_directions(name: str) -> dict[str, int]:
    """The settings that `--caution` changes; none where an algorithm has no such setting."""
    return ALGORITHMS[name].caution if name in ALGORITHMS else extras(get_algorithm(name)).CAUTION


def get_diagnostics(name: str) -> Diagnostics | None:
    info = ALGORITHMS.get(name)
    return cast(Diagnostics, importlib.import_module(info.diagnostics)) if info and info.diagnostics else None


def external() -> dict[str, str]:
    """Algorithms that are not built in, and where each is from. None of them is imported for it."""
    installed = {name: " and ".join(map(_source, points)) for name, points in _installed().items()}
    return installed | {name: f"{module.__name__} (registered)" for name, module in _registered.items()}


def shadowed() -> list[str]:
    """One sentence for every installed algorithm that has the name of a built-in one: that one wins."""
    return [
        f"{_source(point)} offers '{point.name}', the name of a built-in algorithm: the built-in one is used."
        for point in entry_points(group=GROUP)
        if point.name in ALGORITHMS
    ]


def _installed() -> dict[str, list[EntryPoint]]:
    points: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        if point.name not in ALGORITHMS and point not in points.get(point.name, []):
            points.setdefault(point.name, []).append(point)
    return points


def _only(points: list[EntryPoint]) -> EntryPoint:
    if len(points) > 1:
        several = " and ".join(map(_source, points))
        raise UserError(f"'{points[0].name}' is offered by {several}: uninstall all but one.")
    return points[0]


def _source(point: EntryPoint) -> str:
    package = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
    return f"{point.value}{package}"


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        raise UserError(f"the module {name} cannot be imported ({one_line(problem)}): install what it needs.") from None
    except (Exception, SystemExit) as problem:  # code of others, at its top level: it can raise anything
        where = traceback.extract_tb(problem.__traceback__)[-1]
        reason = f"{type(problem).__name__}: {one_line(problem)}, {where.filename} line {where.lineno}"
        raise UserError(f"the module {name} fails when it is imported ({reason}): correct it.") from problem


def _require_contract(module: ModuleType) -> ModuleType:
    if missing := missing_names(module):
        name = getattr(module, "__name__", repr(module))
        raise UserError(f"{name} is no algorithm: it lacks {', '.join(missing)} (docs/adding.md).")
    return module


# Presets: presets/ALGORITHM.toml

DEFAULT_PRESETS: dict[str, Any] = {
    "laptop": {},
    "smoke": {"common": {"steps": 60, "chunk": 20, "evaluate_every": 60, "evaluate_episodes": 100}},
}
"""Presets of an external algorithm without its own PRESETS: the defaults of its Config, and the same for seconds."""

FAMILIES = {"hopper": "locomotion", "walker2d": "locomotion", "halfcheetah": "locomotion"}


def preset(algo: str, name: str, task: str | None, dataset: str = "", discrete: bool = False) -> dict[str, Any]:
    """Numbers of a preset, from TOML: its common ones, then those of the task's family, the task, and the dataset; for
    discrete actions those of the table "discrete" on top.

    A dataset's name counts where it is one of the task's, and without a version: hopper-medium-v2 is hopper-medium.
    """
    table = preset_table(algo)
    if name not in table:
        raise unknown_name("preset", name, table)
    layers = ["common", FAMILIES.get(task or "", ""), task or "own-data"]
    if task and dataset.startswith(f"{task}-"):
        layers.append(without_version(dataset))
    if discrete:
        layers.append("discrete")
    return {key: value for layer in layers for key, value in _dotted(table[name].get(layer, {})).items()}


def preset_table(algo: str) -> dict[str, Any]:
    """The file of a built-in algorithm; of any other what its module declares as PRESETS, on top of DEFAULT_PRESETS."""
    if algo in ALGORITHMS:
        return tomllib.loads(resources.files("pspo.algorithms.presets").joinpath(f"{algo}.toml").read_text())
    return DEFAULT_PRESETS | extras(get_algorithm(algo)).PRESETS


def _dotted(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= _dotted(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
