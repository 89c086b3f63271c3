"""pspo: learn a policy from logged data.

The public names; each is imported when it is first used, so that `import pspo` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pspo.core.lazy import lazy_names

__version__ = "0.1.0"

_HOMES = {
    "Dataset": "data",
    "Columns": "data",
    "load_dataset": "data",
    "save_dataset": "data",
    "check": "data",
    "train": "training.train",
    "resume": "training.train",
    "OfflinePolicyLearner": "training.policy_learner",
    "TrainRequest": "training.request",
    "train_seeds": "experiments.seeds",
    "ExperimentRequest": "experiments.experiment",
    "run_experiment": "experiments.experiment",
    "RunsFailed": "experiments.jobs",
    "load_policy": "policies.policy",
    "Policy": "policies.policy",
    "export_policy": "runs.export",
    "OnnxPolicy": "policies.onnx.runtime",
    "JaxPolicy": "policies.jax_policy",
    "evaluate": "evaluation.simulator",
    "estimate_return": "evaluation.ope.estimate_run",
    "judge_run": "evaluation.ope.estimate_run",  # the name of estimate_return in version 0.1
    "inspect_policy": "evaluation.inspect.inspection",
    "register_algorithm": "algorithms",
    "UserError": "core.errors",
}

__all__ = [
    "Columns",
    "Dataset",
    "ExperimentRequest",
    "JaxPolicy",
    "OfflinePolicyLearner",
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
    from pspo.policies.jax_policy import JaxPolicy
    from pspo.policies.onnx.runtime import OnnxPolicy
    from pspo.policies.policy import Policy, load_policy
    from pspo.runs.export import export_policy
    from pspo.training.policy_learner import OfflinePolicyLearner
    from pspo.training.request import TrainRequest
    from pspo.training.train import resume, train

__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
