"""What a policy is worth: in its simulator, from the dataset alone (ope/), and in a single state (inspect/).

ope and inspect share problem.py (what is evaluated) and models_and_critics.py (the models and critics behind it).
Called by training (simulator.py), experiments and cli. The names below are imported when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pspo.evaluation.inspect.inspection import inspect_policy
    from pspo.evaluation.ope.estimate_run import estimate_return
    from pspo.evaluation.simulator import Evaluation, evaluate

__all__ = ["Evaluation", "estimate_return", "evaluate", "inspect_policy"]

_MODULES = {
    "Evaluation": "pspo.evaluation.simulator",
    "estimate_return": "pspo.evaluation.ope.estimate_run",
    "evaluate": "pspo.evaluation.simulator",
    "inspect_policy": "pspo.evaluation.inspect.inspection",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'pspo.evaluation' has no attribute '{name}'")
