"""Training: from a dataset and settings to a finished run directory. Called by experiments and cli, and by users.

train.py has `train` and `resume`, which users import as `pspo.train` and `pspo.resume`; `train` is not exported here,
as the package already has a module of that name. request.py is a run as plain data, policy_learner.py the same with
`fit` and `predict`. configure.py makes the configuration of a run, loop.py is the training loop, result.py the final
evaluation, monitor.py and trackers.py are what a run reports while it works, cost.py and dry_run.py what it would cost.
Names are imported when they are first used: a process that only plans runs need not load JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pspo.core.lazy import lazy_names

if TYPE_CHECKING:
    from pspo.training.cost import CostEstimate, estimate_cost
    from pspo.training.monitor import SILENT, Monitor
    from pspo.training.policy_learner import OfflinePolicyLearner
    from pspo.training.request import TrainRequest
    from pspo.training.trackers import Tracker, named_trackers
    from pspo.training.train import resume

__all__ = [
    "SILENT",
    "CostEstimate",
    "Monitor",
    "OfflinePolicyLearner",
    "Tracker",
    "TrainRequest",
    "estimate_cost",
    "named_trackers",
    "resume",
]

_HOMES = {
    "SILENT": "monitor",
    "CostEstimate": "cost",
    "Monitor": "monitor",
    "OfflinePolicyLearner": "policy_learner",
    "Tracker": "trackers",
    "TrainRequest": "request",
    "estimate_cost": "cost",
    "named_trackers": "trackers",
    "resume": "train",
}

__getattr__ = lazy_names(__name__, _HOMES)
