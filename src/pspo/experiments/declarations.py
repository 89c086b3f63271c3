"""What the paper shows, each as a small declaration: datasets x methods, and the tables and figures made of them.

The numbers that the paper prints are in report/published.toml.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pspo.algorithms import ALGORITHMS, external
from pspo.core.errors import unknown_name
from pspo.data.readers.d4rl import LEVELS, TASKS

LOCOMOTION = tuple(f"{task}-{level}" for task in TASKS for level in LEVELS)


@dataclass(frozen=True)
class Method:
    """A column of a table: an algorithm, and changes to its preset."""

    label: str
    algo: str
    settings: dict[str, Any] = field(default_factory=dict)


METHODS = {
    "pspo": Method(ALGORITHMS["pspo"].label, "pspo"),
    "average-utilisation": Method("Average utilisation", "pspo", {"posterior": "uniform"}),
    "without-regularisation": Method("Without regularisation", "pspo", {"reference_term": False}),
    **{name: Method(info.label, name) for name, info in ALGORITHMS.items() if name != "pspo"},
}
"""A name means the same in all experiments: they share their runs."""


def get_method(name: str) -> Method:
    """One of `METHODS`, or an algorithm of another package by its name."""
    if name not in METHODS and name in external():
        return Method(name, name)
    if name not in METHODS:
        raise unknown_name("method", name, [*METHODS, *external()])
    return METHODS[name]


@dataclass(frozen=True)
class Experiment:
    """One of the paper's results."""

    title: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    shows: tuple[str, ...]
    """Tables and figures of its page, in order."""
    published: str
    """The part of published.toml that it is compared with."""
    first: str = "pspo"
    """What the other methods are compared with."""


EXPERIMENTS = {
    "table1": Experiment(
        "Table 1: D4RL locomotion",
        LOCOMOTION,
        ("cql", "dmg", "epq", "morel", "rambo", "pmdb", "adm", "pspo"),
        ("scores",),
        "table1",
    ),
    "table2": Experiment(
        "Table 2: optimal liquidation",
        ("liquidation",),
        ("pspo", "pmdb", "1r2r", "oraac", "rambo", "cql", "iql", "mopo", "combo"),
        ("scores",),
        "table2",
    ),
    "table3": Experiment(
        "Table 3: ablations",
        LOCOMOTION,
        ("pspo", "average-utilisation", "without-regularisation"),
        ("ablation", "scores"),
        "table3",
    ),
    # The paper does not say which data its two figures show.
    "pessimism": Experiment(
        "Model-estimated return against true return",
        ("liquidation", *(f"{task}-medium" for task in TASKS)),
        ("pspo",),
        ("pessimism", "scores"),
        "",
    ),
    "uncertainty": Experiment(
        "Uncertainty against the TD target",
        ("liquidation", *(f"{task}-medium" for task in TASKS)),
        ("pspo",),
        ("uncertainty", "scores"),
        "uncertainty",
    ),
    "overhead": Experiment(
        "Computational overhead",
        (),
        ("pspo", "pmdb", "adm", "dmg", "td3bc"),
        ("overhead",),
        "overhead",
    ),
}


def get_experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]
