"""What an evaluation reads from a finished run: its settings, its policy, and the dataset to evaluate on."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError
from pspo.core.progress import Progress
from pspo.data.check import require_trainable
from pspo.data.dataset import Dataset
from pspo.evaluation.config import EvaluationConfig
from pspo.evaluation.problem import EvaluatedReturn, EvaluationProblem, make_problem
from pspo.policies.policy import load_policy
from pspo.runs.dataset import Part, other_dataset, own_dataset
from pspo.runs.directory import Run, open_run


def finished_run(path: str | Path) -> Run:
    run = open_run(path)
    if not run.finished:
        raise UserError(f"{run.path} is not finished: `pspo resume {shlex.quote(str(run.path))}` first.")
    return run


def read_config(run: Run) -> dict[str, Any]:
    return run.read("config", "algo", "dataset", "preset", "seed", "settings")


def dataset_of_run(run: Run, dataset: Any, progress: Progress, part: Part = "training") -> Dataset:
    """`dataset`, read with the run's columns and brought into their order; without one, a part of the run's own."""
    data = own_dataset(run, part, progress=progress) if dataset is None else other_dataset(run, dataset, progress)
    require_trainable(data)
    return data


def problem_of_run(
    run: Run, dataset: Dataset, evaluated: EvaluatedReturn, config: EvaluationConfig
) -> EvaluationProblem:
    """The run's policy on a dataset."""
    problem = make_problem(load_policy(run.path), dataset, evaluated, config.pspo.gamma)
    trained_on = run.read("manifest").get("data_hash")
    return problem._replace(on_training_data=dataset.hash == trained_on)


def training_gamma(run: Run, run_config: dict[str, Any]) -> float:
    """The discount that the run was trained with."""
    gamma = run_config["settings"].get("gamma")
    if not isinstance(gamma, int | float) or not 0 <= gamma <= 1:
        raise UserError(f"the settings in {run.path / 'config.json'} name no discount (gamma is {gamma}): restore it.")
    return float(gamma)


def finite(value: Any) -> Any:
    """Infinities and NaN as None, which JSON can hold: an open end of an interval, or a number that is missing."""
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [finite(part) for part in value]
    return value if not isinstance(value, float) or math.isfinite(value) else None
