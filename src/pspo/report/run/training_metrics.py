"""The section with everything else that was logged, as small panels: losses, Q, divergences, the trust region."""

from __future__ import annotations

import numpy as np

from pspo.algorithms import get_diagnostics
from pspo.report.canvas import BLUE, GREY, SKY, THIRD, svg
from pspo.report.charts import Level, Line, lines
from pspo.report.markup import figure, missing, number, paragraph, section
from pspo.report.run.contents import Contents

FIRST = {
    "kl_mu": ("KL(π ‖ μ) to the reference policy", False),
    "kl_target_policy": ("KL(π ‖ π′) to the target policy", True),
    "lambda": ("λ, trust-region multiplier", True),
    "critic_loss": ("Critic loss", True),
}
"""Metrics that come first, with their headings and whether a logarithmic axis may help."""

HEADINGS = {
    "f_mean": "F, inconsistency of the models",
    "f_scale": "Scale of F between models",
    "kl_mu_max": "Largest KL(π ‖ μ)",
    "value_loss": "Value loss",
    "policy_loss": "Policy loss",
}
IN_OTHER_SECTIONS = ("step", "posterior_entropy", "effective_models", "model_return", "score", "return_mean")


def training_metrics_section(contents: Contents) -> str:
    title = "Training metrics"
    panels, used = _first_panels(contents)
    elsewhere = {*IN_OTHER_SECTIONS, *used}
    others = [name for name in dict.fromkeys(n for row in contents.metrics for n in row) if name not in elsewhere]
    for i, name in enumerate(n for n in others if not n.startswith(("target_policy_", "score_"))):
        series = contents.series(name)
        if series is not None and np.ptp(series[1]) > 0:  # a constant is a setting
            heading = HEADINGS.get(name, name.replace("_", " ").replace("$", r"\$"))  # not as a formula
            drawn = lines([Line(*series, GREY)], heading, size=THIRD, logarithmic=True)
            panels.append(svg(drawn, f"other-{i}", f"{name} over training."))
    if not panels:
        return section("metrics", title, missing("No metrics were logged."))
    caption = "Each point is the mean over one chunk of iterations; for the extremes of Q, the extreme."
    if "lambda" in used:
        caption += " Q is in units of the normalised reward. λ is adapted so that KL(π ‖ π′) stays near ε."
    return section("metrics", title, _lambda_words(contents), figure(panels, caption, columns=3))


def _first_panels(contents: Contents) -> tuple[list[str], list[str]]:
    """Panels of well-known metrics, and the metrics they show."""
    panels, used = [], []
    epsilon = contents.setting("epsilon")
    for name, (heading, logarithmic) in FIRST.items():
        if series := contents.series(name):
            levels = [Level(epsilon, f"ε = {epsilon:g}")] if name == "kl_target_policy" and epsilon is not None else []
            drawn = lines([Line(*series)], heading, levels=levels, size=THIRD, logarithmic=logarithmic)
            panels.append(svg(drawn, f"metric-{name}", f"{heading} over training."))
            used.append(name)
    q_range = {name: contents.series(f"q_{name}") for name in ("max", "mean", "min")}
    drawn = [
        Line(*series, BLUE if name == "mean" else SKY, name, width=1.8 if name == "mean" else 1.2)
        for name, series in q_range.items()
        if series is not None
    ]
    if drawn:
        panels.append(svg(lines(drawn, "Range of Q", size=THIRD), "metric-q", "Range of Q over training."))
        used += [f"q_{name}" for name in q_range]
    return panels, used


def _lambda_words(contents: Contents) -> str:
    """Whether the trust region is active at the end: at its lower bound lambda restrains nothing."""
    multiplier = contents.series("lambda")
    diagnostics = get_diagnostics(contents.config.get("algo", ""))
    if multiplier is None or diagnostics is None or "lambda" not in diagnostics.METRIC_BOUNDS:
        return ""
    if multiplier[1][-1] > 1.5 * diagnostics.METRIC_BOUNDS["lambda"][0]:
        return paragraph(f"λ ends at {number(float(multiplier[1][-1]))}.")
    kl, epsilon = contents.series("kl_target_policy"), contents.setting("epsilon")
    inside = kl is not None and epsilon is not None and kl[1][-1] <= epsilon
    why = "the policy stays inside the trust region by itself" if inside else "it cannot fall further"
    return paragraph(f"λ ends at its lower bound: {why}.")
