"""PSPO and the fourteen baselines: functions, read top to bottom; no base class.

Each is one file, or a folder whose algorithm.py comes last in its order: pspo/, adm/, cql/, epq/, morel/ and pmdb/.
registry.py is the table of all of them, contract.py what the training loop asks of one, common/ what several share,
presets/ their numbers, caution.py what `--caution` changes. Called by the layers below, from collecting to cli.
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
