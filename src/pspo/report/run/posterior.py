"""Whom the posterior trusts, and whether doubt and value go together."""

from __future__ import annotations

import numpy as np
from scipy.stats import spearmanr

from pspo.report.canvas import GREEN, svg
from pspo.report.figures import Level, Line, cloud, lines, named_dots, padded, weight_bars
from pspo.report.markup import figure, missing, number, paragraph, percent, section
from pspo.report.published import published
from pspo.report.run.contents import Contents


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float | None:
    """Spearman's coefficient; None where it has no meaning: too few points, or one side constant."""
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(spearmanr(x, y)[0])  # pyright: ignore[reportArgumentType]


def posterior_section(contents: Contents) -> str:
    title = "The posterior over models"
    over_time = _concentration(contents)
    weight = contents.diagnostics.get("member_weight")
    if weight is None or not np.isfinite(weight).all():
        why = "Posterior weights of the pool’s members were not recorded."
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
        active = min(contents.settings.get("active") or np.inf, contents.settings.get("model.pool") or np.inf)
        levels = [Level(float(active), f"all {active}")] if np.isfinite(active) else []
        limits = padded([effective[1], [level.y for level in levels]], least=0.1)
        drawn = lines([Line(*effective, GREEN)], "Effective number of models", levels=levels, y_limits=limits)
        panels.append(svg(drawn, "posterior-effective", "Effective number of models over training."))
    caption = (
        "How sharply the posterior tells the active models apart, averaged over imagined states. "
        "Ratio 1: the evidence tells nothing, all weigh the same. The effective number is the exponential of the "
        "entropy. Mind the range of the axes."
    )
    return paragraph(sentence) + figure(panels, caption)


def _members(contents: Contents, weight: np.ndarray) -> str:
    """Mean weight of each member, in the order of its hold-out likelihood where that is known."""
    likelihood = np.array((contents.models.get("pool") or {}).get("holdout_log_likelihood") or [], float)
    known = len(likelihood) == len(weight)
    order = np.argsort(-likelihood, kind="stable") if known else np.arange(len(weight))
    names = [str(i) for i in order]
    what = "pool member, best hold-out likelihood first" if known else "pool member"
    bars = weight_bars(weight[order], names, "Weight of each member", what)
    panels = [svg(bars, "posterior-weights", "Bars: mean posterior weight of each pool member.")]
    heaviest, uniform = int(weight.argmax()), 1 / len(weight)
    sentences = [
        f"Over the states of the log, member {heaviest} is trusted most: {percent(float(weight.max()))} of the weight, "
        f"where a uniform posterior gives {percent(uniform)}."
    ]
    if known:
        level = Level(uniform, "uniform")
        axis = "hold-out log-likelihood per row and target"
        dots = named_dots(likelihood[order], weight[order], names, level, "Weight against likelihood", axis)
        panels.append(svg(dots, "posterior-likelihood", "Posterior weight against hold-out likelihood."))
        found = rank_correlation(likelihood, weight)
        sentences.append(
            "A rank correlation with the hold-out likelihood is not defined here."
            if found is None
            else f"Its rank correlation with the members’ hold-out likelihood is {number(found, 2)} over {len(weight)} "
            "members."
        )
    else:
        sentences.append("The members’ hold-out likelihood is not known, so it cannot be compared.")
    caption = (
        "Mean posterior weight over logged states with the policy’s actions. The posterior sees the consistency of "
        "values, not the likelihood: the two need not agree."
    )
    return paragraph(*sentences) + figure(panels, caption)


def doubt_section(contents: Contents) -> str:
    """The paper's robustness figure: disagreement of the models against the TD target."""
    title = "Uncertainty against value"
    doubt, target = (contents.diagnostics.get(name) for name in ("uncertainty", "td_target"))
    if doubt is None or target is None or doubt.shape != target.shape:
        return section("doubt", title, missing("Uncertainty and TD targets were not recorded."))
    finite = np.isfinite(doubt) & np.isfinite(target)
    left_out = int((~finite).sum())
    doubt, target = doubt[finite], target[finite]
    if len(doubt) < 3:
        return section("doubt", title, missing("Fewer than three points have a finite uncertainty and TD target."))
    axis = "log of the models’ disagreement"
    drawn, outside = cloud(doubt, target, "Value where models disagree", axis, "TD target")
    panels = [svg(drawn, "doubt-value", "Scatter of uncertainty and TD target.")]
    entropy = contents.diagnostics.get("entropy")
    if entropy is not None and entropy.shape == finite.shape and np.isfinite(entropy[finite]).all():
        drawn, _ = cloud(doubt, entropy[finite], "Entropy of the posterior there", axis, "entropy ratio", 0.01)
        panels.append(svg(drawn, "doubt-entropy", "Scatter of uncertainty and entropy of the posterior."))
    caption = (
        "Each point is a logged state with an action of the policy: the standard deviation of the models’ mean next "
        "states, as the posterior weighs them, and the value r + γ E[Q(s′, a′)] they back up, both in normalised "
        "units. Where the entropy is far below 1 the posterior has picked few of the models."
    )
    if outside:
        caption += f" {outside} points lie left or right of the frame; the coefficient counts them."
    if left_out:
        caption += f" {left_out} points are not finite and were left out of everything here."
    return section("doubt", title, paragraph(*_correlation(doubt, target)), figure(panels, caption))


def _correlation(doubt: np.ndarray, target: np.ndarray) -> list[str]:
    found = rank_correlation(doubt, target)
    if found is None:
        return ["Spearman’s coefficient is not defined here: one of the two does not vary."]
    meaning = (
        "Negative, as in the paper: where the models disagree more, the value they back up is lower."
        if found < 0
        else "The sign is opposite to the paper’s: where the models disagree more, the value is not lower."
    )
    return [
        f"Spearman’s coefficient is {number(found, 4)} (± {number(1 / (len(doubt) - 1) ** 0.5, 3)}, {len(doubt):,} "
        f"states; the paper states {number(published()['uncertainty']['spearman'], 4)} for its own tasks).",
        meaning,
    ]
