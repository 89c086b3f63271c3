"""Many runs in one call: several seeds of one request, and the paper's tables and figures as grids of runs.

declarations.py says what the paper shows, cells.py and grid.py turn that into runs, jobs.py and backends/ run them in
processes or on Ray, experiment.py and seeds.py are the front door. Called by the command line and by users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pspo.core.lazy import lazy_names

if TYPE_CHECKING:
    from pspo.experiments.backends.processes import ProcessBackend
    from pspo.experiments.backends.ray import RayBackend, Resources
    from pspo.experiments.declarations import EXPERIMENTS, METHODS
    from pspo.experiments.experiment import ExperimentRequest, run_experiment
    from pspo.experiments.jobs import RunsFailed
    from pspo.experiments.seeds import SeedsSummary, train_seeds

__all__ = [
    "EXPERIMENTS",
    "METHODS",
    "ExperimentRequest",
    "ProcessBackend",
    "RayBackend",
    "Resources",
    "RunsFailed",
    "SeedsSummary",
    "run_experiment",
    "train_seeds",
]

_HOMES = {
    "EXPERIMENTS": "declarations",
    "METHODS": "declarations",
    "ExperimentRequest": "experiment",
    "ProcessBackend": "backends.processes",
    "RayBackend": "backends.ray",
    "Resources": "backends.ray",
    "RunsFailed": "jobs",
    "SeedsSummary": "seeds",
    "run_experiment": "experiment",
    "train_seeds": "seeds",
}
"""Where each name is; imported when it is first used, so that a worker process starts quickly."""

__getattr__ = lazy_names(__name__, _HOMES)
