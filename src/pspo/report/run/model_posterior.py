"""The section on the posterior over models: how concentrated it is, and which members have weight."""

from __future__ import annotations

import numpy as np

from pspo.report.canvas import GREEN, svg
from pspo.report.charts import Level, Line, lines, named_dots, padded, weight_bars
from pspo.report.markup import figure, missing, number, paragraph, percent, section
from pspo.report.run.contents import Contents
from pspo.report.statistics import rank_correlation


def model_posterior_section(contents: Contents) -> str:
    if not contents.has_posterior:
        return ""
    title = "The posterior over models"
    over_time = _concentration(contents)
    weight = contents.diagnostics.get("member_weight")
    if weight is None or not np.isfinite(weight).all():
        why = "Posterior weights of the ensemble members were not recorded."
        return section("posterior", title, over_time, missing(why))
    return section("posterior", title, over_time, _members(contents, weight))


def _concentration(contents: Contents) -> str:
    """Entropy and effective number of models over training."""
    entropy, effective = contents.series("posterior_entropy"), contents.series("effective_models")
    if entropy is None and effective is None:
        return missing("The posterior’s entropy was not logged.")
    panels, sentence = [], ""
    if entropy is not None:
        limits = padded([entropy[1], [1.0]], least=0.01)
        drawn = lines([Line(*entropy)], "Entropy ratio", levels=[Level(1.0, "uniform")], y_limits=limits)
        panels.append(svg(drawn, "posterior-entropy", "Entropy of the posterior over training."))
        sentence = f"At the end the posterior has {percent(float(entropy[1][-1]))} of the entropy of a uniform one."
    if effective is not None:
        active = min(contents.setting("active") or np.inf, contents.setting("model.pool") or np.inf)
        levels = [Level(float(active), f"all {active}")] if np.isfinite(active) else []
        limits = padded([effective[1], [level.y for level in levels]], least=0.1)
        drawn = lines([Line(*effective, GREEN)], "Effective number of models", levels=levels, y_limits=limits)
        panels.append(svg(drawn, "posterior-effective", "Effective number of models over training."))
    caption = (
        "How sharply the posterior distinguishes the active models, averaged over states of model rollouts. At ratio 1 "
        "all models have the same weight. The effective number is the exponential of the entropy. Note the range of "
        "the axes."
    )
    return paragraph(sentence) + figure(panels, caption)


def _members(contents: Contents, weight: np.ndarray) -> str:
    """Mean weight of each member, in the order of its hold-out likelihood where that is known."""
    likelihood = np.array((contents.models.get("pool") or {}).get("holdout_log_likelihood") or [], float)
    known = len(likelihood) == len(weight)
    order = np.argsort(-likelihood, kind="stable") if known else np.arange(len(weight))
    names = [str(i) for i in order]
    what = "ensemble member, best hold-out likelihood first" if known else "ensemble member"
    bars = weight_bars(weight[order], names, "Weight of each member", what)
    panels = [svg(bars, "posterior-weights", "Bars: mean posterior weight of each ensemble member.")]
    heaviest, uniform = int(weight.argmax()), 1 / len(weight)
    sentences = [
        f"Over the states of the dataset, member {heaviest} has the most weight: {percent(float(weight.max()))}, where "
        f"a uniform posterior gives {percent(uniform)}."
    ]
    if known:
        level = Level(uniform, "uniform")
        axis = "hold-out log-likelihood per transition and target"
        dots = named_dots(likelihood[order], weight[order], names, level, "Weight against likelihood", axis)
        panels.append(svg(dots, "posterior-likelihood", "Posterior weight against hold-out likelihood."))
        correlation = rank_correlation(likelihood, weight)
        sentences.append(
            "A rank correlation with the hold-out likelihood is not defined here."
            if correlation is None
            else f"The rank correlation of weight and hold-out likelihood is {number(correlation, 2)} over "
            f"{len(weight)} members."
        )
    else:
        sentences.append("The members’ hold-out likelihood is not known, so it cannot be compared.")
    caption = (
        "Mean posterior weight over states of the dataset with the policy’s actions. The posterior depends on the "
        "consistency of values, not on the likelihood: the two need not agree."
    )
    return paragraph(*sentences) + figure(panels, caption)
