"""`pspo list`: what there is to choose from. Nothing heavy is imported for it."""

from __future__ import annotations

from pspo.algorithms import ALGORITHMS, external
from pspo.algorithms.registry import preset_table
from pspo.data.readers.d4rl import LEVELS, TASKS, place

PRESETS = {
    "laptop": "minutes on two cores",
    "paper": "the authors' numbers; what they leave open is marked in src/pspo/presets",
    "smoke": "seconds: only shows that everything runs",
}


def everything() -> dict[str, dict[str, str]]:
    """Names and what they are, by kind."""
    datasets = {"liquidation": "optimal liquidation, 100,000 rows, built in; its exact optimum is known"}
    for task in TASKS:
        for level in LEVELS:
            name = f"{task}-{level}-v2"
            datasets[name] = "D4RL, here" if place(name)[0].exists() else "D4RL, downloaded when it is first used"
    datasets["FILE"] = "your own log: .csv, .parquet, .npz or .hdf5"
    datasets["minari:ID"] = "a dataset of Minari's"
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
        "pspo train DATASET --algo ALGORITHM --preset PRESET; pspo config --algo ALGORITHM explains every key",
    ]
