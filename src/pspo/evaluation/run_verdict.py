"""Better than the dataset, not shown to be better, or worse, and why: the first thing that a practitioner asks.

A true return needs a simulator. Without one the verdict follows the estimates of `pspo ope` and claims no more than
they do: a warning, a contradiction or an interval that includes the dataset's own return is "not shown".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pspo.data.dataset import Dataset
from pspo.evaluation.dataset_return import CONFIDENCE, MeanReturn, dataset_return, whole_episodes
from pspo.evaluation.ope.return_estimate import ReturnEstimate, t_quantile

if TYPE_CHECKING:
    from pspo.evaluation.ope.estimate_run import RunEstimates

BETTER, NOT_SHOWN, WORSE = "better", "not shown to be better", "worse"
SIMULATOR, HELD_OUT, TRAINING_DATA, NOTHING = "simulator", "held-out data", "training data", "nothing"
AGAINST_DATASET = {
    BETTER: ", above the dataset's.",
    WORSE: ", below the dataset's.",
    NOT_SHOWN: ", which does not exclude the dataset's.",
}


@dataclass(frozen=True)
class Verdict:
    verdict: str
    basis: str
    """What it is based on: "simulator", "held-out data", "training data" or "nothing"."""
    quantity: str
    """What both returns are."""
    dataset: MeanReturn
    policy: MeanReturn | None
    reasons: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, except that numbers may be infinite or NaN."""
        returns = {"dataset": self.dataset._asdict(), "policy": self.policy and self.policy._asdict()}
        return asdict(self) | returns | {"headline": self.headline}

    @property
    def headline(self) -> str:
        """One sentence."""
        if self.verdict == NOT_SHOWN:
            return "Not shown to be better than the dataset."
        if self.basis == SIMULATOR:
            return f"{self.verdict.capitalize()} than the dataset, in the simulator."
        if self.basis == HELD_OUT:
            return f"Estimated to be {self.verdict} than the dataset, on held-out data."
        return f"Estimated to be {self.verdict} than the dataset, on the data it was trained on: not confirmed yet."


def verdict_by_simulator(result: dict[str, Any], dataset: Dataset) -> Verdict:
    """From the final evaluation in the simulator."""
    half = t_quantile(CONFIDENCE, max(result["episodes"] - 1, 1)) * result["return_stderr"]
    mean = result["return_mean"]
    policy, logged = MeanReturn(mean, mean - half, mean + half), dataset_return(dataset, whole_episodes(dataset))
    reasons = [f"Over {result['episodes']:,} new episodes it returns {_shown(policy)}.", _about_dataset(logged)]
    return Verdict(_compare(policy, logged), SIMULATOR, "sum of rewards of an episode", logged, policy, reasons)


def verdict_by_estimates(estimates: RunEstimates, on_training_data: bool) -> Verdict:
    """From the estimates without a warning, which must all agree."""
    basis = TRAINING_DATA if on_training_data else HELD_OUT
    logged = MeanReturn(estimates.dataset_return, estimates.dataset_low, estimates.dataset_high)
    usable = [e for e in estimates.estimates if not e.warnings and np.isfinite([e.value, e.low, e.high]).all()]
    shown = (usable or estimates.estimates or [None])[0]
    policy = MeanReturn(shown.value, shown.low, shown.high) if shown else None
    if estimates.contradictions:
        one, other = estimates.contradictions[0]
        reasons = [f"{one.capitalize()} and {other} contradict each other: at least one of the two is wrong."]
        verdict = NOT_SHOWN
    elif not usable:
        verdict, reasons = NOT_SHOWN, _warnings(estimates.estimates)
    else:
        verdict, reasons = _agreed(usable, logged)
    reasons.append(_about_dataset(logged))
    if on_training_data and verdict == BETTER:
        reasons.append(
            "The estimate uses the data that the policy was trained on, which flatters it: evaluate it on held-out "
            "episodes before you deploy it."
        )
    return Verdict(verdict, basis, estimates.quantity, logged, policy, reasons)


def verdict_without_estimate(logged: MeanReturn, quantity: str, reason: str) -> Verdict:
    """There is no simulator, and no estimate."""
    return Verdict(NOT_SHOWN, NOTHING, quantity, logged, None, [reason])


def _compare(policy: MeanReturn, logged: MeanReturn) -> str:
    if policy.low > logged.high:
        return BETTER
    return WORSE if policy.high < logged.low else NOT_SHOWN


def _agreed(usable: Sequence[ReturnEstimate], logged: MeanReturn) -> tuple[str, list[str]]:
    each = [_compare(MeanReturn(e.value, e.low, e.high), logged) for e in usable]
    reasons = [
        f"By {e.method} it returns {_shown(MeanReturn(e.value, e.low, e.high))}"
        + ("." if np.isnan(logged.value) else AGAINST_DATASET[verdict])
        for e, verdict in zip(usable, each, strict=True)
    ]
    return each[0] if len(set(each)) == 1 else NOT_SHOWN, reasons


def _warnings(estimates: Sequence[ReturnEstimate]) -> list[str]:
    reasons = [f"{e.method.capitalize()}: {warning}" for e in estimates for warning in e.warnings]
    return reasons or ["There is no estimate of its return."]


def _shown(interval: MeanReturn) -> str:
    if not np.isfinite([interval.low, interval.high]).all():
        return f"{interval.value:.4g} (without an interval)"
    return f"{interval.value:.4g} (90 % interval {interval.low:.4g} to {interval.high:.4g})"


def _about_dataset(logged: MeanReturn) -> str:
    if np.isnan(logged.value):
        return "The dataset's own return is unknown: its episodes were cut before that many steps."
    return f"The dataset's own episodes return {_shown(logged)}."
