"""All estimates of one policy's return on one dataset."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from pspo.core.errors import UserError, unknown_name
from pspo.evaluation.density import has_density
from pspo.evaluation.ope.estimate_warnings import fraction_of_new_actions, general_warnings
from pspo.evaluation.ope.estimator import EstimatorInputs
from pspo.evaluation.ope.registry import ESTIMATORS
from pspo.evaluation.ope.return_estimate import ReturnEstimate


class Estimates(NamedTuple):
    estimates: list[ReturnEstimate]
    unavailable: dict[str, str]  # method -> why it gives no estimate


def require_valid(methods: Collection[str], confidence: float) -> None:
    for method in methods:
        if method not in ESTIMATORS:
            raise unknown_name("method", method, ESTIMATORS)
    if not 0.0 < confidence < 1.0:
        raise UserError(f"confidence={confidence} is out of range: it must lie between 0 and 1.")


def estimate(inputs: EstimatorInputs, methods: Collection[str] = tuple(ESTIMATORS)) -> Estimates:
    """One estimate per method that the policy allows, with warnings; `methods` are slugs of the registry."""
    require_valid(methods, inputs.confidence)
    results, unavailable = [], {}
    for info in ESTIMATORS.values():
        if info.slug not in methods:
            continue
        if info.needs_density and not has_density(inputs.problem.network):
            unavailable[info.title] = "the policy is deterministic and has no density."
            continue
        results.append((info.load(), info.load().estimate(inputs)))
    new_actions = fraction_of_new_actions(inputs.problem)
    return Estimates(
        [
            replace(
                result,
                warnings=[
                    *general_warnings(result, new_actions),
                    *estimator.warnings(inputs.problem),
                    *result.warnings,
                ],
            )
            for estimator, result in results
        ],
        unavailable,
    )
