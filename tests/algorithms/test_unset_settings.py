"""Choices and switches: a preset sets them, or there is a reason to have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pspo.algorithms import ALGORITHMS, get_algorithm, preset_table
from pspo.core.config import keys

REASONS = {
    "alpha_lr=on": "SAC's temperature: d3rlpy and the authors' codes have this rate apart; all presets have both equal",
    "dropout_in_rollouts=False": "ADM: dropout that stays on is a choice of the authors' code, which the paper omits",
    "gap_limit=on": "CQL: the paper's Lagrange form",
    "posterior=uniform": "PSPO: an ablation of the paper, table 3",
    "prior=likelihood": "PSPO: the paper leaves P(T) open; measured by benchmarks.liquidation",
    "redraw=episode": "PSPO: Eq. (2) of the paper",
    "reference_term=False": "PSPO: an ablation of the paper, table 3",
    "risk=cpw": "ORAAC: a measure of the paper",
    "risk=neutral": "1R2R and ORAAC: the mean, which a risk measure is compared with",
    "risk=wang": "1R2R and ORAAC: a measure of both papers",
    "start_anywhere=on": "MOReL: a dataset of one episode has one first state",
    "termination=known": "a task without a rule of its own refuses: nothing is learned instead silently",
    "termination=learned": "own data that end",
    "termination=none": "own data that never end",
    "uncertainty=disagreement": "MOPO: the other measure of the authors' code, in the paper's ablation",
    "uniform_rollouts=True": "COMBO: the paper's rollout policy on some datasets",
    "visited=on": "PSPO: the locomotion preset of 0.1, whose runs resume",
    "value_of=policy": "PSPO: the value of the stochastic policy, which improvement=gradient raises",
}
"""What no preset sets, and why it exists."""


def leaves(table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Last part of every setting's name in a preset file, and its value."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value)
        else:
            yield name.rpartition(".")[2], value


def test_every_choice_is_set_by_a_preset_or_has_a_reason() -> None:
    """Whatever algorithm sets it: algorithms share settings. A number that is zero and never set is off."""
    options, used = set(), set()
    for algo in ALGORITHMS:
        for name, key in keys(get_algorithm(algo).Config).items():
            name = name.rpartition(".")[2]
            used.add(f"{name}={key.default}")
            if get_origin(key.kind) is Literal:
                options |= {f"{name}={choice}" for choice in get_args(key.kind)}
            elif key.kind is bool:
                options |= {f"{name}=False", f"{name}=True"}
            elif key.default == 0 and name != "seed":
                options.add(f"{name}=on")
        for name, value in leaves(preset_table(algo)):
            used |= {f"{name}={value}", *([f"{name}=on"] if value else [])}
    assert options - used == set(REASONS)
