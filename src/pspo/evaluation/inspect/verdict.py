"""Warnings about the policy in a state, one sentence with numbers each; docs/inspect.md has the table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pspo.evaluation.inspect.action import PolicyAction
from pspo.evaluation.inspect.action_values import BEST, ActionValues
from pspo.evaluation.inspect.coverage import NEIGHBOURS, StateCoverage
from pspo.evaluation.inspect.dataset_value import Convergence
from pspo.evaluation.inspect.disagreement import Disagreement
from pspo.evaluation.inspect.model_predictions import REWARD, ModelPredictions

FAR = 99.0  # percentile of the distance to the nearest neighbours
RARE = 1.0  # percent of mu's samples are as unlikely as the policy's action
WIDE_RANGE = 0.25  # of an action column, over which critics cannot distinguish actions
SURE = 2.0  # standard deviations by which another action must be better
WORTH = 0.1  # and as a fraction of the range of Q over the grid
FEW_MODELS = 2.5  # effective ones
UNSURE = 95.0  # percentile of the disagreement of models or critics
SURPRISE = 4.0  # standard deviations between the observed and the predicted outcome
NO_WARNING = "No warning: see docs/inspect.md for what is checked."
SHOWN = 3  # columns named in one sentence


def verdict(
    coverage: StateCoverage,
    action: PolicyAction,
    values: ActionValues,
    models: ModelPredictions,
    disagreement: Disagreement,
    convergence: Convergence,
) -> list[str]:
    sentences = [
        *_not_numbers(action, values, models, disagreement),
        *_of_state(coverage),
        *_of_action(action),
        *_of_values(values),
    ]
    sentences += [*_of_models(models, disagreement), *_of_critics(disagreement), *_of_convergence(convergence)]
    sentences += _of_outcome(models, coverage)
    return sentences or [NO_WARNING]


def _not_numbers(
    action: PolicyAction, values: ActionValues, models: ModelPredictions, disagreement: Disagreement
) -> list[str]:
    parts = {
        "mu's density": [action.reference_log_density],
        "Q": [q for curve in values.curves for q in curve.q] + [mark.q for mark in values.marks],
        "the models' predictions": [models.entropy, disagreement.models]
        + [column.expected for column in models.columns],
    }
    bad = [name for name, numbers in parts.items() if not np.isfinite(numbers).all()]
    return [f"Not finite: {_listed(bad)}. A network has diverged, or the state is far outside the data."] if bad else []


def _of_state(coverage: StateCoverage) -> list[str]:
    sentences = []
    outside = [
        f"{c.name} is {c.value:.{c.digits}g} (data: {c.low:.{c.digits}g} to {c.high:.{c.digits}g})"
        for c in coverage.columns
        if c.outside
    ]
    if outside:
        sentences.append(f"The state lies outside the range of the data: {_listed(outside)}.")
    if coverage.distance_percentile > FAR:
        times = (
            f", {coverage.distance / coverage.median_distance:.1f} times the median"
            if coverage.median_distance > 0
            else ""
        )
        sentences.append(
            f"The data have few states like this: the {NEIGHBOURS}th nearest is {coverage.distance:.2g} standard "
            f"deviations away{times}, farther than for {coverage.distance_percentile:.1f} % of the data."
        )
    return sentences


def _of_action(action: PolicyAction) -> list[str]:
    if not action.percentile < RARE:
        return []
    what = "density" if action.columns else "probability"
    return [
        f"The policy's action is rare in the data here: mu's {what} is {action.below_mode:.1f} nats below "
        f"that of its mode, and {action.percentile:.1f} % of mu's actions are as unlikely."
    ]


def _of_values(values: ActionValues) -> list[str]:
    sentences = []
    indistinguishable = [
        f"{c.name} from {c.indistinguishable[0]:.3g} to {c.indistinguishable[1]:.3g}"
        for c in values.curves
        if c.indistinguishable_share >= WIDE_RANGE
    ]
    if indistinguishable:
        sentences.append(
            f"The critics cannot distinguish these actions from the policy's: {_listed(indistinguishable)}, where Q "
            "differs by less than the standard deviation between critics."
        )
    best, varies = values.mark(BEST), np.concatenate([*(curve.q for curve in values.curves), values.label_q])
    if best.gain > SURE * best.gain_std and best.gain > WORTH * np.ptp(varies):
        action = ", ".join(part if isinstance(part, str) else f"{part:.3g}" for part in best.action)
        sentences.append(
            f"The critics prefer another action, {action}: its Q is higher by {best.gain:.3g} ± {best.gain_std:.2g}."
        )
    if values.critics == 1:
        sentences.append("There is only one critic: the uncertainty of Q is unknown.")
    return sentences


def _of_models(models: ModelPredictions, disagreement: Disagreement) -> list[str]:
    sentences = []
    if models.effective_models < FEW_MODELS:
        first = models.members[0]
        sentences.append(
            f"Only {models.effective_models:.1f} of {len(models.members)} models are effective here, with "
            f"{100 * first.weight:.0f} % of the weight on model {first.number}: their agreement says little."
        )
    if disagreement.models_percentile > UNSURE:
        sentences.append(
            f"The models disagree about the next state more than in {disagreement.models_percentile:.1f} % of the "
            f"data: by {disagreement.models:.2g} standard deviations (median {disagreement.models_median:.2g})."
        )
    return sentences


def _of_critics(disagreement: Disagreement) -> list[str]:
    if not disagreement.critics_percentile > UNSURE:
        return []
    return [
        f"The critics disagree about Q more than in {disagreement.critics_percentile:.1f} % of the data: by "
        f"{disagreement.critics:.2g} (median {disagreement.critics_median:.2g})."
    ]


def _of_convergence(convergence: Convergence) -> list[str]:
    if convergence.converged:
        return []
    return [
        f"The critics have not converged: their backups differ from Q by {convergence.residual:.3g} at each step on "
        f"average, which adds up to {convergence.shift:.3g}, more than Q varies between states "
        f"({convergence.q_std:.2g}). Q is not a return yet."
    ]


def _of_outcome(models: ModelPredictions, coverage: StateCoverage) -> list[str]:
    sentences = []
    covered = {c.name: c for c in coverage.columns}
    for c in models.columns:
        if c.observed is None or c.expected_after_logged is None or c.std_after_logged is None:
            continue
        column = covered.get(c.name)
        width, digits = (column.high - column.low, column.digits) if column else (abs(c.observed), 4)  # of the reward
        rounding = 1e-6 * width
        if abs(c.observed - c.expected_after_logged) > SURPRISE * max(c.std_after_logged, rounding):
            what = c.name if c.name == REWARD else f"next {c.name}"
            sentences.append(
                f"{what} {c.observed:.{digits}g} (predicted {c.expected_after_logged:.{digits}g} "
                f"± {c.std_after_logged:.2g})"
            )
    return (
        [f"The outcome of the logged action is not what the models predict: {_listed(sentences)}."] if sentences else []
    )


def _listed(parts: Sequence[str]) -> str:
    more = f" and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
    return "; ".join(parts[:SHOWN]) + more
