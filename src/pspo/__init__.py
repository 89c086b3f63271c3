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
    "TrainRequest": "pspo.training.request",
    "train_seeds": "pspo.experiments.seeds",
    "ExperimentRequest": "pspo.experiments.experiment",
    "run_experiment": "pspo.experiments.experiment",
    "RunsFailed": "pspo.experiments.jobs",
    "load_policy": "pspo.policies.policy",
    "Policy": "pspo.policies.policy",
    "export_policy": "pspo.runs.export",
    "OnnxPolicy": "pspo.policies.onnx.runtime",
    "evaluate": "pspo.evaluation.simulator",
    "estimate_return": "pspo.evaluation.ope.estimate_run",
    "judge_run": "pspo.evaluation.ope.estimate_run",  # the name of estimate_return in version 0.1
    "inspect_policy": "pspo.evaluation.inspect.inspection",
    "register_algorithm": "pspo.algorithms",
    "UserError": "pspo.core.errors",
}

__all__ = [
    "Columns",
    "Dataset",
    "ExperimentRequest",
    "OnnxPolicy",
    "Policy",
    "RunsFailed",
    "TrainRequest",
    "UserError",
    "__version__",
    "check",
    "estimate_return",
    "evaluate",
    "export_policy",
    "inspect_policy",
    "judge_run",
    "load_dataset",
    "load_policy",
    "register_algorithm",
    "resume",
    "run_experiment",
    "save_dataset",
    "train",
    "train_seeds",
]

if TYPE_CHECKING:
    from pspo.algorithms import register_algorithm
    from pspo.core.errors import UserError
    from pspo.data import Columns, Dataset, check, load_dataset, save_dataset
    from pspo.evaluation.inspect.inspection import inspect_policy
    from pspo.evaluation.ope.estimate_run import estimate_return, judge_run
    from pspo.evaluation.simulator import evaluate
    from pspo.experiments.experiment import ExperimentRequest, run_experiment
    from pspo.experiments.jobs import RunsFailed
    from pspo.experiments.seeds import train_seeds
    from pspo.policies.onnx.runtime import OnnxPolicy
    from pspo.policies.policy import Policy, load_policy
    from pspo.runs.export import export_policy
    from pspo.training.request import TrainRequest
    from pspo.training.train import resume, train


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'pspo' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
