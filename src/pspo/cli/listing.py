"""`pspo list`: algorithms, datasets and presets. Nothing heavy is imported for it."""

from __future__ import annotations

import argparse
import json
from typing import Any

from pspo.algorithms import ALGORITHMS, external, preset_table, shadowed
from pspo.cli import common
from pspo.core.terminal import show, show_warning
from pspo.data.readers.d4rl import LEVELS, TASKS, d4rl_file

PRESETS = {
    "laptop": "minutes on two cores",
    "paper": "the authors' numbers; those they do not state are marked in src/pspo/algorithms/presets",
    "smoke": "seconds: only checks that everything runs",
}


def add_list(commands: Any) -> None:
    common.add_json(common.add_command(commands, "list", _list, "List algorithms, datasets and presets."))


def _list(arguments: argparse.Namespace) -> None:
    for clash in shadowed():
        show_warning(clash)
    show(json.dumps(everything(), indent=2) if arguments.json else "\n".join(as_lines(everything())))


def everything() -> dict[str, dict[str, str]]:
    """Names and one line about each, by kind."""
    datasets = {"liquidation": "optimal liquidation, 100,000 transitions, built in; its exact optimum is known"}
    for task in TASKS:
        for level in LEVELS:
            name = f"{task}-{level}-v2"
            datasets[name] = "D4RL, on this machine" if d4rl_file(name)[0].exists() else "D4RL, downloaded on first use"
    datasets["FILE"] = "your own data: .csv, .parquet, .npz or .hdf5"
    datasets["minari:ID"] = "a Minari dataset"
    algorithms = {name: info.title for name, info in ALGORITHMS.items()}
    algorithms |= {name: f"from {origin}" for name, origin in external().items()}
    return {"algorithms": algorithms, "datasets": datasets, "presets": {n: PRESETS[n] for n in preset_table("pspo")}}


def as_lines(kinds: dict[str, dict[str, str]]) -> list[str]:
    width = max(len(name) for names in kinds.values() for name in names)
    lines = []
    for kind, names in kinds.items():
        lines += [f"{kind}:", *(f"  {name:<{width}}  {text}" for name, text in names.items()), ""]
    return [
        *lines,
        "pspo train DATASET --algo ALGORITHM --preset PRESET; pspo config --algo ALGORITHM explains every setting",
    ]
