"""Training: from a dataset and settings to a finished run directory. Called by experiments and cli, and by users.

The front door is `train` and `resume` of train.py, which users import as `pspo.train` and `pspo.resume`; they are not
imported here, so that a process that only plans runs need not load JAX. policy_learner.py is the same with `fit` and
`predict`. loop.py is the training loop, result.py the final evaluation, request.py a run as plain data, monitor.py and
trackers.py what a run reports while it works, cost.py and dry_run.py what it would cost.
"""

from pspo.training.monitor import SILENT, Monitor

__all__ = ["SILENT", "Monitor"]
