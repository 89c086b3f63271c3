"""The verdict on a run follows the estimates of `pspo ope`: in comparison.json, and on the report page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pspo.evaluation.run_inputs import finite
from pspo.evaluation.run_verdict import verdict_by_estimates
from pspo.report.run.page import write_report
from pspo.runs.directory import open_run

if TYPE_CHECKING:
    from pspo.evaluation.ope.estimate_run import RunEstimates

FILE_NAME = "comparison"


def update_verdict(estimates: RunEstimates) -> None:
    """Replace the verdict on a run by one from all estimates, unless it was evaluated in a simulator."""
    run = open_run(estimates.run)
    if run.result.get("return_mean") is not None:
        return
    before = run.read(FILE_NAME) if (run.path / f"{FILE_NAME}.json").exists() else {}
    verdict = verdict_by_estimates(estimates, on_training_data=run.holdout is None)
    run.write(FILE_NAME, before | finite(verdict.as_dict()))
    write_report(run.path)
