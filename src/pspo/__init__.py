"""pspo: learn a policy from logged data.

The public names; each is imported when it is first used, so that `import pspo` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Dataset": "pspo.data",
    "Columns": "pspo.data",
    "load_dataset": "pspo.data",
    "save_dataset": "pspo.data",
    "check": "pspo.data",
    "train": "pspo.training.train",
    "resume": "pspo.training.train",
    "load_policy": "pspo.policies.policy",
    "Policy": "pspo.policies.policy",
    "export_policy": "pspo.runs.export",
    "OnnxPolicy": "pspo.policies.onnx.runtime",
    "evaluate": "pspo.evaluation.simulator",
    "judge_run": "pspo.evaluation.ope.of_run",
    "inspect_policy": "pspo.evaluation.inspect.inspection",
    "register_algorithm": "pspo.algorithms",
    "UserError": "pspo.core.errors",
}

__all__ = [
    "Columns",
    "Dataset",
    "OnnxPolicy",
    "Policy",
    "UserError",
    "__version__",
    "check",
    "evaluate",
    "export_policy",
    "inspect_policy",
    "judge_run",
    "load_dataset",
    "load_policy",
    "register_algorithm",
    "resume",
    "save_dataset",
    "train",
]

if TYPE_CHECKING:
    from pspo.algorithms import register_algorithm
    from pspo.core.errors import UserError
    from pspo.data import Columns, Dataset, check, load_dataset, save_dataset
    from pspo.evaluation.inspect.inspection import inspect_policy
    from pspo.evaluation.ope.of_run import judge_run
    from pspo.evaluation.simulator import evaluate
    from pspo.policies.onnx.runtime import OnnxPolicy
    from pspo.policies.policy import Policy, load_policy
    from pspo.runs.export import export_policy
    from pspo.training.train import resume, train


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'pspo' has no attribute '{name}'")
