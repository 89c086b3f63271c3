"""PSPO and the fourteen baselines: one module of functions each, read top to bottom; no base class.

registry.py is the table of all of them, contract.py what the training loop asks of one, common/ what several share,
presets/ their numbers. PSPO itself is the folder pspo/. Called by training, evaluation, report, experiments and cli.
"""

from pspo.algorithms.registry import (
    ALGORITHMS,
    AlgorithmInfo,
    external,
    get_algorithm,
    get_algorithm_for,
    get_diagnostics,
    preset,
    preset_table,
    register_algorithm,
    shadowed,
)

__all__ = [
    "ALGORITHMS",
    "AlgorithmInfo",
    "external",
    "get_algorithm",
    "get_algorithm_for",
    "get_diagnostics",
    "preset",
    "preset_table",
    "register_algorithm",
    "shadowed",
]
