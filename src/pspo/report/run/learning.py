"""The course of training: true score beside what the models promise, and the small signals underneath."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pspo.algorithms import get_algorithm
from pspo.core.errors import UserError
from pspo.report.canvas import BLUE, GREY, INK, SKY, THIRD, VERMILION, svg
from pspo.report.figures import Level, Line, lines, padded
from pspo.report.markup import figure, missing, number, paragraph, section
from pspo.report.run.contents import Contents, Series

OTHER_NAMES = {
    "f_mean": "F, the models’ inconsistency",
    "f_spread": "Spread of F between models",
    "value_loss": "Value loss",
    "policy_loss": "Policy loss",
}
SHOWN_ELSEWHERE = ("step", "posterior_entropy", "effective_models", "imagined_return", "score", "return_mean")


def learning_section(contents: Contents) -> str:
    """The paper's pessimism figure: is what the models promise above or below the truth?"""
    title = "Learning curve"
    promised = contents.scaled(contents.series("imagined_return"))
    exact = contents.series("score_by_regret") if contents.task else None
    plain = contents.series("score") if contents.task else None
    true = exact or plain
    if promised is None and true is None:
        return section("learning", title, missing("No look at the policy's return was logged during training."))
    centre = contents.series("centre_score_by_regret") or contents.series("centre_score") if contents.task else None
    drawn = [
        Line(*series, colour, label, style, width, "o")
        for series, colour, label, style, width in (
            (centre, SKY, "average π′", "-", 1.4),
            (promised, VERMILION, "models’ estimate", "-", 1.8),
            (true, BLUE, "true score", "-", 2.2),
        )
        if series is not None
    ]
    levels = _optimum(contents)
    unit = "normalised score" if contents.task else "return, in the log’s units"
    panels = [svg(lines(drawn, "All looks", y_label=unit, levels=levels), "learning-all", "Score over training.")]
    if true is not None and (late := _late(drawn)):
        # Near the truth: an estimate far away would flatten what is to be seen, so it may leave the frame.
        near = [line.y for line in late if line.colour != VERMILION] or [line.y for line in late]
        limits = padded([*near, *([level.y] for level in levels)], 0.2)
        heading = "Second half, near the optimum" if levels else "Second half"
        late = [_arrowed(line, limits) for line in late]
        zoomed = lines(late, heading, y_label=unit, levels=levels, y_limits=limits)
        panels.append(svg(zoomed, "learning-late", "The same over the second half of training."))
    sentences = [_verdict(contents, promised, true), _steadiness(true)]
    return section(
        "learning",
        title,
        paragraph(*sentences),
        figure(panels, _caption(contents, exact is not None, promised is not None)),
    )


def _optimum(contents: Contents) -> list[Level]:
    task = contents.task
    if task is None or task.optimal_return is None:
        return []
    best = float(task.normalised(task.optimal_return))
    return [Level(best, f"optimum {number(best, 1)}", INK)]


def _late(drawn: Sequence[Line]) -> list[Line] | None:
    """The second half of every line; None where that is nothing to look at."""
    late = [replace(line, x=line.x[len(line.x) // 2 :], y=line.y[len(line.x) // 2 :]) for line in drawn]
    return late if min(len(line.x) for line in late) >= 2 else None


def _arrowed(line: Line, limits: tuple[float, float]) -> Line:
    """A line that ends outside the frame says so in its label."""
    low, high = limits
    end = float(line.y[-1])
    arrow = "↑" if end > high else "↓" if end < low else ""
    return replace(line, label=f"{line.label}\n{arrow} {number(end, 1)}, off the frame") if arrow else line


def _verdict(contents: Contents, promised: Series | None, true: Series | None) -> str:
    """One sentence on the estimate and the truth at the end, from the data."""
    if promised is None:
        return "What the models promise was not logged." if contents.weighs_models else ""
    if true is None:
        promise = f"At the end the models promise a return of {number(float(promised[1][-1]), 2)}"
        return f"{promise}; without a simulator nobody can say how true that is."
    gap = float(promised[1][-1] - true[1][-1])
    side = "above" if gap > 0 else "below"
    both = np.intersect1d(promised[0], true[0])
    above = int((promised[1][np.isin(promised[0], both)] > true[1][np.isin(true[0], both)]).sum())
    often = f" It was above it at {above} of {len(both)} looks." if len(both) > 1 else ""
    return (
        f"At the end the models promise {number(float(promised[1][-1]), 2)} and the simulator gives "
        f"{number(float(true[1][-1]), 2)}: the estimate is {number(abs(gap), 2)} points {side} the truth"
        f"{_noise(contents, abs(gap))}.{often}"
    )


def _noise(contents: Contents, gap: float) -> str:
    """How much of the gap the few imagined episodes explain; silent where that is not known."""
    spread, task = contents.result.get("return_std"), contents.task
    episodes = contents.result.get("imagined_episodes")
    if not spread or not episodes or task is None:
        return ""
    error = 100.0 * spread / episodes**0.5 / (task.expert_return - task.random_return)
    size = "within" if gap < 2 * error else "more than"
    return f", {size} two of its standard errors (± {number(error, 2)} with {episodes} imagined episodes)"


def _steadiness(true: Series | None) -> str:
    if true is None or len(true[1]) < 2:
        return ""
    fall = float(max(0.0, -np.diff(true[1]).min()))
    if fall == 0:
        return "The true score never fell from one look to the next."
    return f"From one look to the next the true score fell by {number(fall, 2)} points at most."


def _caption(contents: Contents, exact: bool, promised: bool) -> str:
    if contents.task is None:
        return "Mean return that the models, drawn from the posterior, promise the policy."
    how = (
        "The true score is the optimum’s minus the value lost at each step of simulated episodes, which has far less "
        "noise than their mean return. "
        if exact
        else "The true score is the mean return of simulated episodes. "
    )
    if promised:
        how += (
            "A pessimistic method would keep the models’ estimate below the truth; the paper reports it above. "
            "π′ is the policy’s moving average, the centre of the trust region. "
        )
    return how + "Training never sees the true score."


def signals_section(contents: Contents) -> str:
    """Everything else that was logged, as small panels."""
    title = "Training in detail"
    panels, used = _known_signals(contents)
    elsewhere = {*SHOWN_ELSEWHERE, *used}
    others = [name for name in dict.fromkeys(n for row in contents.metrics for n in row) if name not in elsewhere]
    for i, name in enumerate(n for n in others if not n.startswith(("centre_", "score_"))):
        series = contents.series(name)
        if series is not None and np.ptp(series[1]) > 0:  # a constant is a setting, not a signal
            heading = OTHER_NAMES.get(name, name.replace("_", " ").replace("$", r"\$"))  # no formula
            drawn = lines([Line(*series, GREY)], heading, size=THIRD, logarithmic=True)
            panels.append(svg(drawn, f"other-{i}", f"{name} over training."))
    if not panels:
        return section("signals", title, missing("No metrics were logged."))
    caption = "Each point is the mean over one chunk of iterations, for the extremes of Q the extreme."
    if "lambda" in used:
        caption += " Q is in units of the normalised reward. λ is adapted so that KL(π ‖ π′) stays near ε."
    return section("signals", title, _trust_words(contents), figure(panels, caption, columns=3))


def _trust_words(contents: Contents) -> str:
    """Whether the trust region is felt at the end: at its lower bound lambda restrains nothing."""
    trust = contents.series("lambda")
    try:
        bounds = getattr(get_algorithm(contents.facts.get("algo", "")), "TRUST_RANGE", None)
    except UserError:
        return ""
    if trust is None or bounds is None:
        return ""
    if trust[1][-1] > 1.5 * math.exp(bounds[0]):
        return paragraph(f"λ ends at {number(float(trust[1][-1]))}.")
    distance, epsilon = contents.series("kl_centre"), contents.settings.get("epsilon")
    inside = distance is not None and epsilon is not None and distance[1][-1] <= epsilon
    why = "the policy stays inside the trust region without being held back" if inside else "it cannot fall further"
    return paragraph(f"λ ends at its lower bound: {why}.")


def _known_signals(contents: Contents) -> tuple[list[str], list[str]]:
    """Panels of PSPO's own signals, and the metrics they show."""
    panels, used = [], []
    epsilon = contents.settings.get("epsilon")
    trust_level = [Level(epsilon, f"ε = {epsilon:g}")] if isinstance(epsilon, int | float) else []
    for name, heading, levels, logarithmic in (
        ("kl_mu", "KL(π ‖ μ) to the reference policy", [], False),
        ("kl_centre", "KL(π ‖ π′) to the moving average", trust_level, True),
        ("lambda", "λ, strength of the trust region", [], True),
        ("critic_loss", "Critic loss", [], True),
    ):
        if series := contents.series(name):
            drawn = lines([Line(*series)], heading, levels=levels, size=THIRD, logarithmic=logarithmic)
            panels.append(svg(drawn, f"signal-{name}", f"{heading} over training."))
            used.append(name)
    extremes = {name: contents.series(f"q_{name}") for name in ("max", "mean", "min")}
    drawn = [
        Line(*series, BLUE if name == "mean" else SKY, name, width=1.8 if name == "mean" else 1.2)
        for name, series in extremes.items()
        if series is not None
    ]
    if drawn:
        panels.append(svg(lines(drawn, "Range of Q", size=THIRD), "signal-q", "Range of Q over training."))
        used += [f"q_{name}" for name in extremes]
    return panels, used
