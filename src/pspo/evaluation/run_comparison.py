"""A run's policy beside the dataset: verdict, differences and coverage, kept in the run as comparison.json.

`pspo train` writes it for the report page; `pspo ope` replaces the verdict by that of its own estimates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.core.progress import NO_REPORT, Reporter
from pspo.data.dataset import Dataset
from pspo.evaluation.action_differences import action_differences
from pspo.evaluation.ope.estimate_run import RunEstimates, estimate_return
from pspo.evaluation.ope.estimate_warnings import share_of_new_actions
from pspo.evaluation.run_inputs import finite
from pspo.evaluation.run_verdict import (
    MeanReturn,
    Verdict,
    dataset_interval,
    verdict_by_estimates,
    verdict_by_simulator,
    verdict_without_estimate,
)
from pspo.policies.policy import Policy
from pspo.runs.directory import Run, open_run

FILE_NAME = "comparison"
SEARCHED = 8000  # rows: half of them are compared with the other half


def compare_run(run: Run, dataset: Dataset, reporter: Reporter = NO_REPORT) -> dict[str, Any]:
    """Compare the policy of a finished run with the dataset that it was trained on, and write comparison.json."""
    policy, verdict = run.policy, _verdict(run, dataset, reporter)
    comparison = verdict.as_dict() | action_differences(policy, dataset)
    comparison |= {"new_actions": _new_actions(policy, dataset)}
    run.write(FILE_NAME, finite(comparison))
    return comparison


def _verdict(run: Run, dataset: Dataset, reporter: Reporter) -> Verdict:
    """By the simulator; else by PSPO's own models, which cost nothing more; else there is none yet."""
    result = run.result
    if result.get("return_mean") is not None and result.get("return_stderr") is not None:
        return verdict_by_simulator(result, dataset)
    if run.read("config")["algo"] == "pspo":
        try:
            estimates = estimate_return(run.path, dataset, methods=["models"], reporter=reporter)
        except UserError as problem:
            reporter.message(f"no estimate of the return: {problem}")
        else:
            return verdict_by_estimates(estimates, _same_quantity(estimates, dataset), on_training_data=True)
    return verdict_without_estimate(dataset, str(run.path))


def _same_quantity(estimates: RunEstimates, dataset: Dataset) -> MeanReturn:
    """The dataset's own return, in what was estimated."""
    limit = estimates.horizon if estimates.bounded else None
    return dataset_interval(dataset, estimates.gamma, limit)


def update_verdict(estimates: RunEstimates, dataset: Dataset, on_training_data: bool) -> None:
    """Replace the verdict of a run that has no simulator by one from all estimates of `pspo ope`."""
    run = open_run(Path(estimates.run))
    if run.result.get("return_mean") is not None:
        return
    before = run.read(FILE_NAME) if (run.path / f"{FILE_NAME}.json").exists() else {}
    verdict = verdict_by_estimates(estimates, _same_quantity(estimates, dataset), on_training_data)
    run.write(FILE_NAME, before | finite(verdict.as_dict()))


def _new_actions(policy: Policy, dataset: Dataset) -> float:
    """How often the policy's action is unlike any in the data, in the states of the dataset."""
    picked = np.random.default_rng(0).permutation(dataset.size)[:SEARCHED]
    obs, norm = dataset.obs[picked], policy.norm
    state = (obs - norm.obs_mean) / norm.obs_std
    unit = np.asarray(norm.unit_action(dataset.action[picked]))

    def act(asked: slice) -> np.ndarray:
        return np.asarray(norm.unit_action(policy.act_encoded(obs[asked])))

    return share_of_new_actions(state, unit, act)
