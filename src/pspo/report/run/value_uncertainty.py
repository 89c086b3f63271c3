"""The section on uncertainty: disagreement between the models against the TD target."""

from __future__ import annotations

import numpy as np

from pspo.report.canvas import svg
from pspo.report.charts import scatter
from pspo.report.markup import figure, missing, number, paragraph, section
from pspo.report.published import published
from pspo.report.run.contents import Contents
from pspo.report.statistics import rank_correlation

NAME, TITLE = "uncertainty", "Uncertainty against value"
FEWEST = 3  # points that make a figure


def value_uncertainty_section(contents: Contents) -> str:
    """The paper's robustness figure."""
    if not contents.has_posterior:
        return ""
    uncertainty, target = (contents.diagnostics.get(name) for name in ("uncertainty", "td_target"))
    if uncertainty is None or target is None or uncertainty.shape != target.shape:
        return section(NAME, TITLE, missing("Uncertainty and TD targets were not recorded."))
    finite = np.isfinite(uncertainty) & np.isfinite(target)
    left_out = int((~finite).sum())
    uncertainty, target = uncertainty[finite], target[finite]
    if len(uncertainty) < FEWEST:
        return section(NAME, TITLE, missing("Fewer than three points have a finite uncertainty and TD target."))
    axis = "log of the models’ disagreement"
    drawn, outside = scatter(uncertainty, target, "Value where models disagree", axis, "TD target")
    panels = [svg(drawn, "uncertainty-value", "Scatter plot of uncertainty and TD target.")]
    entropy = contents.diagnostics.get("entropy")
    if entropy is not None and entropy.shape == finite.shape and np.isfinite(entropy[finite]).all():
        title = "Entropy of the posterior there"
        drawn, _ = scatter(uncertainty, entropy[finite], title, axis, "entropy ratio", 0.01)
        panels.append(svg(drawn, "uncertainty-entropy", "Scatter plot of uncertainty and entropy of the posterior."))
    caption = (
        "Each point is a state of the dataset with an action of the policy: the standard deviation of the models’ mean "
        "next states, weighted by the posterior, and the value r + γ E[Q(s′, a′)] they back up, both in normalised "
        "units. Where the entropy is far below 1 the posterior has selected few of the models."
    )
    if outside:
        caption += f" {outside} points lie left or right of the frame; the coefficient includes them."
    if left_out:
        caption += f" {left_out} points are not finite and were left out."
    return section(NAME, TITLE, paragraph(*_correlation(uncertainty, target)), figure(panels, caption))


def _correlation(uncertainty: np.ndarray, target: np.ndarray) -> list[str]:
    correlation = rank_correlation(uncertainty, target)
    if correlation is None:
        return ["Spearman’s coefficient is not defined here: one of the two does not vary."]
    meaning = (
        "Negative, as in the paper: where the models disagree more, the value they back up is lower."
        if correlation < 0
        else "The sign is opposite to the paper’s: where the models disagree more, the value is not lower."
    )
    return [
        f"Spearman’s coefficient is {number(correlation, 4)} (± {number(1 / (len(uncertainty) - 1) ** 0.5, 3)}, "
        f"{len(uncertainty):,} states; the paper reports {number(published()['uncertainty']['spearman'], 4)} for its "
        "own tasks).",
        meaning,
    ]
