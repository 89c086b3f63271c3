"""What a policy is worth: in its simulator, from the dataset alone (ope/), and in a single state (inspect/).

ope and inspect share problem.py (what is evaluated) and models_and_critics.py (the models and critics behind it).
run_comparison.py is what a run ends with: its policy beside the dataset, with a verdict (run_verdict.py).
Called by training and cli. The names below are imported when they are first used.
"""

from typing import TYPE_CHECKING

from pspo.core.lazy import lazy_names

if TYPE_CHECKING:
    from pspo.evaluation.inspect.inspection import inspect_policy
    from pspo.evaluation.ope.estimate_run import estimate_return
    from pspo.evaluation.simulator import Evaluation, evaluate

__all__ = ["Evaluation", "estimate_return", "evaluate", "inspect_policy"]

_HOMES = {
    "Evaluation": "simulator",
    "estimate_return": "ope.estimate_run",
    "evaluate": "simulator",
    "inspect_policy": "inspect.inspection",
}

__getattr__ = lazy_names(__name__, _HOMES)
