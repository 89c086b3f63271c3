"""All estimates of one policy by one log."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from pspo.core.errors import UserError, unknown_name
from pspo.core.progress import Progress, silent
from pspo.evaluation.ope import METHODS
from pspo.evaluation.ope.believed import find_models
from pspo.evaluation.ope.density import Density, has_density, imitated, log_ratios, share_at_bounds
from pspo.evaluation.ope.estimates import Estimate
from pspo.evaluation.ope.fitted_q import FittedQ, by_fitted_q, fit_q
from pspo.evaluation.ope.importance import by_doubly_robust, by_importance
from pspo.evaluation.ope.models import by_models
from pspo.evaluation.ope.recipe import Recipe
from pspo.evaluation.ope.subject import Subject
from pspo.evaluation.ope.trust import share_of_new_actions, warnings
from pspo.runs.directory import Run

BY_WEIGHTS = {"importance", "doubly-robust"}


class Judged(NamedTuple):
    estimates: list[Estimate]
    lacking: dict[str, str]  # method -> why it has none


def require_judgeable(methods: Collection[str], confidence: float) -> None:
    for method in methods:
        if method not in METHODS:
            raise unknown_name("method", method, METHODS)
    if not 0.0 < confidence < 1.0:
        raise UserError(f"confidence={confidence} is out of range: it must lie between 0 and 1.")


def judge(
    subject: Subject,
    recipe: Recipe,
    run: Run | None = None,
    methods: Collection[str] = tuple(METHODS),
    confidence: float = 0.9,
    behaviour: Density | None = None,
    progress: Progress = silent,
) -> Judged:
    """One estimate per method that can be had. `behaviour` is the density that wrote the log, where it is known."""
    require_judgeable(methods, confidence)

    @cache
    def fitted() -> FittedQ:
        return fit_q(subject, recipe.fitted_q, progress=progress)

    found, lacking = [], {}
    if "models" in methods:
        found.append(by_models(subject, find_models(subject, run, recipe.pspo, fitted, progress), confidence))
    if "fitted-q" in methods:
        found.append(by_fitted_q(subject, fitted(), confidence))
    wanted = [method for method in METHODS if method in BY_WEIGHTS and method in methods]
    if wanted and has_density(subject.network):
        found += _by_weights(subject, recipe, wanted, confidence, behaviour, progress)
    else:
        lacking = {METHODS[method]: "the policy has no noise, and so no density." for method in wanted}
    new = share_of_new_actions(subject)
    return Judged([replace(e, warnings=warnings(subject, e, new) + e.warnings) for e in found], lacking)


def _by_weights(
    subject: Subject,
    recipe: Recipe,
    methods: Collection[str],
    confidence: float,
    behaviour: Density | None,
    progress: Progress,
) -> list[Estimate]:
    """What needs the density of policy and behaviour."""
    ratio = log_ratios(subject, behaviour or imitated(subject, recipe.pspo.reference, progress))
    found = []
    if "importance" in methods:
        found.append(by_importance(subject, ratio, confidence))
    if "doubly-robust" in methods:
        fitted = fit_q(subject, recipe.fitted_q, sampled=True, progress=progress)
        found.append(by_doubly_robust(subject, ratio, fitted, confidence))
    said = ["the density of the behaviour is an estimate itself, whose error the interval does not count."]
    bounds = {"share_at_bounds": share_at_bounds(subject)}
    return [replace(e, numbers=e.numbers | bounds, warnings=[] if behaviour else said) for e in found]
