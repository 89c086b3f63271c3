"""A run's policy beside the dataset: verdict, differences and coverage, kept in the run as comparison.json.

`pspo train` writes it for the report page; `pspo ope` replaces the verdict (verdict_update.py).
"""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.core.progress import NO_REPORT, Reporter
from pspo.data.dataset import Dataset
from pspo.evaluation.action_differences import action_differences
from pspo.evaluation.dataset_return import dataset_return
from pspo.evaluation.ope.estimate_run import estimate_return
from pspo.evaluation.ope.estimate_warnings import share_of_new_actions
from pspo.evaluation.problem import return_to_evaluate
from pspo.evaluation.run_inputs import finite, read_config, training_gamma
from pspo.evaluation.run_verdict import (
    Verdict,
    verdict_by_estimates,
    verdict_by_simulator,
    verdict_without_estimate,
)
from pspo.evaluation.verdict_update import FILE_NAME
from pspo.policies.policy import Policy
from pspo.runs.directory import Run

SEARCHED = 8000  # transitions: half of them are compared with the other half


def compare_run(
    run: Run, dataset: Dataset, held_out: Dataset | None = None, reporter: Reporter = NO_REPORT
) -> dict[str, Any]:
    """Compare the policy of a finished run with the dataset that it was trained on, and write comparison.json.

    Without a simulator the verdict rests on the `held_out` part of the data, if there is one.
    """
    policy, verdict = run.policy, _verdict(run, dataset, held_out, reporter)
    comparison = verdict.as_dict() | action_differences(policy, dataset)
    comparison |= {"new_actions": _new_actions(policy, dataset)}
    run.write(FILE_NAME, finite(comparison))
    return comparison


def _verdict(run: Run, dataset: Dataset, held_out: Dataset | None, reporter: Reporter) -> Verdict:
    """By the simulator; else, for PSPO, by posterior models; else there is none yet.

    Other algorithms have no models that may evaluate them: a policy exploits the errors of those it was trained with,
    and fitting others takes longer than the training of most.
    """
    result, data = run.result, held_out or dataset
    if result.get("return_mean") is not None and result.get("return_stderr") is not None:
        return verdict_by_simulator(result, dataset)
    where = "the dataset alone" if held_out is None else "the held-out data"
    reason = f"Its return was not estimated yet: `pspo ope {shlex.quote(str(run.path))}` does that, from {where}."
    run_config = read_config(run)
    if run_config["algo"] == "pspo":
        if held_out is not None:
            reporter.message("the verdict rests on the held-out data: critics and models are fitted to them")
        try:
            estimates = estimate_return(run.path, data, methods=["models"], reporter=reporter)
        except UserError as problem:
            reason = f"Its return could not be estimated: {problem}"
        else:
            return verdict_by_estimates(estimates, on_training_data=held_out is None)
    evaluated = return_to_evaluate(data, training_gamma(run, run_config))
    return verdict_without_estimate(dataset_return(data, evaluated), evaluated.words, reason)


def _new_actions(policy: Policy, dataset: Dataset) -> float:
    """How often the policy's action is unlike any in the data, in the states of the dataset."""
    picked = np.random.default_rng(0).permutation(dataset.size)[:SEARCHED]
    obs, norm = dataset.obs[picked], policy.norm
    state = (obs - norm.obs_mean) / norm.obs_std
    unit = np.asarray(norm.unit_action(dataset.action[picked]))

    def act(asked: slice) -> np.ndarray:
        return np.asarray(norm.unit_action(policy.act_encoded(obs[asked])))

    return share_of_new_actions(state, unit, act)
