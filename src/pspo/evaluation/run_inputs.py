"""What an evaluation reads from a finished run: its settings, its policy, and the dataset to evaluate on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError
from pspo.core.progress import Progress
from pspo.data.check import require_trainable
from pspo.data.dataset import Dataset
from pspo.data.load import is_name, load_dataset
from pspo.evaluation.config import EvaluationConfig
from pspo.evaluation.problem import EvaluationProblem, make_problem
from pspo.policies.policy import load_policy
from pspo.runs.directory import Run, open_run


def finished_run(path: str | Path) -> Run:
    run = open_run(path)
    if not run.finished:
        raise UserError(f"{run.path} is not finished: `pspo resume {run.path}` first.")
    return run


def read_config(run: Run) -> dict[str, Any]:
    return run.read("config", "algo", "dataset", "preset", "seed", "settings")


def dataset_of_run(run: Run, run_config: dict[str, Any], dataset: Any, progress: Progress) -> Dataset:
    """`dataset`, read with the run's columns; without one, the run's own."""
    source = run_config["dataset"] if dataset is None else dataset
    by_name = isinstance(source, str) and is_name(source)
    columns = None if by_name or isinstance(source, Dataset) else run_config.get("columns")
    data = load_dataset(source, columns, run_config.get("task"), progress)
    if dataset is None and data.hash != run.read("manifest", "data_hash")["data_hash"]:
        raise UserError(f"the data of {run.path} have changed since it was trained: restore them, or name others.")
    require_trainable(data)
    return data


def problem_of_run(
    run: Run, run_config: dict[str, Any], dataset: Dataset, gamma: float | None, config: EvaluationConfig
) -> EvaluationProblem:
    """The run's policy on a dataset; without `gamma`, `default_gamma` decides on the discount."""
    policy, training_gamma = load_policy(run.path), _training_gamma(run, run_config["settings"])
    return make_problem(policy, dataset, gamma, training_gamma, reward_gamma=config.pspo.gamma)


def _training_gamma(run: Run, settings: dict[str, Any]) -> float:
    gamma = settings.get("gamma")
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
