"""`pspo select RUNS...`: runs ranked by their estimated return, and compared with the simulator where there is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from pspo.core.errors import UserError
from pspo.evaluation.ope.estimate_run import RunEstimates
from pspo.evaluation.run_inputs import finished_run
from pspo.runs.directory import Run


@dataclass(frozen=True)
class Ranking:
    """Runs by one method, best first."""

    method: str
    cautious: bool
    order: list[int]
    """Indices of the runs."""
    value: list[float]
    low: list[float]
    rank_correlation: float | None
    """Spearman's, with the return in the simulator; None without a simulator, or with fewer than three runs."""
    regret: float | None
    """Return lost by choosing the first instead of the best in the simulator."""
    regret_of_random: float | None
    """The same for a run chosen at random, on average."""

    def as_dict(self) -> dict[str, Any]:
        """All of it, by name."""
        return dict(vars(self))


def estimate_runs(
    runs: Sequence[str | Path], estimate: Callable[[str | Path], RunEstimates], on_own_data: bool = True
) -> list[RunEstimates]:
    """`estimate` of every run, once it is clear that all can be compared: each takes a minute or more."""
    opened = [finished_run(run) for run in runs]
    if on_own_data and len(set(map(_evaluated_on, opened))) > 1:
        raise UserError(
            "the runs would be evaluated on different data, so their returns do not compare: name one dataset for all "
            "with --data, or select among others."
        )
    return [estimate(run) for run in runs]


def _evaluated_on(run: Run) -> str:
    """The hash of the hold-out, or of all data where there is none."""
    key = "data_hash" if run.holdout is None else "holdout_hash"
    return str(run.read("manifest", key)[key])


def _require_same_rewards(runs: Sequence[RunEstimates]) -> None:
    """Each run reads the data with its own columns: with another reward, its return is another quantity."""
    returns = np.array([run.dataset_return for run in runs], float)
    if not np.allclose(returns, returns[0], rtol=1e-6, atol=0.0, equal_nan=True):
        other = int(np.argmin(np.isclose(returns, returns[0], rtol=1e-6, atol=0.0, equal_nan=True)))
        raise UserError(
            f"the runs read different rewards or episodes in the data, whose own return is {returns[0]:.6g} for "
            f"{runs[0].run} and {returns[other]:.6g} for {runs[other].run}: select among runs that read the same."
        )


def rank(runs: Sequence[RunEstimates], method: str, cautious: bool = False) -> Ranking:
    """By the estimates of one method, given by its title; `cautious` ranks by the lower ends of the intervals."""
    if len({(run.gamma, run.horizon, run.bounded) for run in runs}) > 1:
        kinds = sorted({run.quantity for run in runs})
        raise UserError(f"the returns are not the same ({'; '.join(kinds)}): give --gamma, and --horizon if needed.")
    _require_same_rewards(runs)
    estimates = [next((e for e in run.estimates if e.method == method), None) for run in runs]
    present = [estimate for estimate in estimates if estimate]
    if len(present) < len(runs):
        first = runs[estimates.index(None)]
        raise UserError(f"{first.run} has no estimate by {method}: {first.unavailable.get(method, 'choose another.')}")
    value, low = np.array([e.value for e in present]), np.array([e.low for e in present])
    by = low if cautious else value
    order = np.argsort(-by, kind="stable")  # NaN comes last
    truth = np.array([np.nan if run.simulator_return is None else run.simulator_return for run in runs], float)
    known = bool(np.isfinite(truth).all())
    varied = known and len(truth) > 2 and np.ptp(truth) > 0 and np.ptp(by) > 0
    return Ranking(
        method,
        cautious,
        order.tolist(),
        value.tolist(),
        low.tolist(),
        float(spearmanr(by, truth)[0]) if varied else None,  # pyright: ignore[reportArgumentType]
        float(truth.max() - truth[order[0]]) if known else None,
        float(truth.max() - truth.mean()) if known else None,
    )
