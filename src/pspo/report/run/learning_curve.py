"""The section with the learning curve: the true score beside the model-estimated return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pspo.report.canvas import BLUE, INK, SKY, VERMILION, svg
from pspo.report.charts import Level, Line, lines, padded
from pspo.report.markup import figure, missing, number, paragraph, section
from pspo.report.run.contents import Contents, Series

TITLE = "Learning curve"


def learning_curve_section(contents: Contents) -> str:
    """The paper's pessimism figure: is the model-estimated return above or below the true one?"""
    estimate = contents.scaled(contents.series("model_return"))
    exact = contents.series("score_by_regret") if contents.task else None
    plain = contents.series("score") if contents.task else None
    true = exact or plain
    if estimate is None and true is None:
        return section("learning", TITLE, missing("The policy was not evaluated during training."))
    target = None
    if contents.task:
        target = contents.series("target_policy_score_by_regret") or contents.series("target_policy_score")
    drawn = [
        Line(*series, colour, label, style, width, "o")
        for series, colour, label, style, width in (
            (target, SKY, "target policy π′", "-", 1.4),
            (estimate, VERMILION, "model estimate", "-", 1.8),
            (true, BLUE, "true score", "-", 2.2),
        )
        if series is not None
    ]
    sentences = [_compared(contents, estimate, true), _largest_drop(true)]
    return section(
        "learning",
        TITLE,
        paragraph(*sentences),
        figure(_panels(contents, drawn, true is not None), _caption(contents, exact is not None, estimate is not None)),
    )


def _panels(contents: Contents, drawn: Sequence[Line], scored: bool) -> list[str]:
    """All evaluations, and those of the second half of training."""
    levels = _optimum(contents)
    unit = "normalised score" if contents.task else "return, in the dataset’s units"
    panels = [svg(lines(drawn, "All evaluations", y_label=unit, levels=levels), "learning-all", "Score over training.")]
    if scored and (late := _second_half(drawn)):
        # Zoomed to the true score: an estimate far away would flatten it, so it may leave the frame.
        near = [line.y for line in late if line.colour != VERMILION] or [line.y for line in late]
        limits = padded([*near, *([level.y] for level in levels)], 0.2)
        heading = "Second half, near the optimum" if levels else "Second half"
        late = [_with_arrow(line, limits) for line in late]
        zoomed = lines(late, heading, y_label=unit, levels=levels, y_limits=limits)
        panels.append(svg(zoomed, "learning-late", "The same over the second half of training."))
    return panels


def _optimum(contents: Contents) -> list[Level]:
    task = contents.task
    if task is None or task.optimal_return is None:
        return []
    best = float(task.normalised(task.optimal_return))
    return [Level(best, f"optimum {number(best, 1)}", INK)]


def _second_half(drawn: Sequence[Line]) -> list[Line] | None:
    """The second half of every line; None where one has fewer than two points."""
    late = [replace(line, x=line.x[len(line.x) // 2 :], y=line.y[len(line.x) // 2 :]) for line in drawn]
    return late if min(len(line.x) for line in late) >= 2 else None


def _with_arrow(line: Line, limits: tuple[float, float]) -> Line:
    """The label of a line that ends outside the frame says so."""
    low, high = limits
    end = float(line.y[-1])
    arrow = "↑" if end > high else "↓" if end < low else ""
    return replace(line, label=f"{line.label}\n{arrow} {number(end, 1)}, off the frame") if arrow else line


def _compared(contents: Contents, estimate: Series | None, true: Series | None) -> str:
    """The estimate and the true score at the end of training."""
    if estimate is None:
        return "The model-estimated return was not logged." if contents.has_posterior else ""
    last = number(float(estimate[1][-1]), 2)
    if true is None:
        return f"At the end the model-estimated return is {last}; without a simulator it cannot be verified."
    gap = float(estimate[1][-1] - true[1][-1])
    side = "above" if gap > 0 else "below"
    both = np.intersect1d(estimate[0], true[0])
    above = int((estimate[1][np.isin(estimate[0], both)] > true[1][np.isin(true[0], both)]).sum())
    often = f" It was above the true score at {above} of {len(both)} evaluations." if len(both) > 1 else ""
    return (
        f"At the end the model-estimated return is a score of {last}, and the simulator gives "
        f"{number(float(true[1][-1]), 2)}: the estimate is {number(abs(gap), 2)} points {side} the true score"
        f"{_noise(contents, abs(gap))}.{often}"
    )


def _noise(contents: Contents, gap: float) -> str:
    """How much of the gap the number of model episodes explains; empty where that is not known."""
    std, task = contents.result.get("return_std"), contents.task
    episodes = contents.result.get("model_episodes")
    if not std or not episodes or episodes < 0 or task is None:
        return ""
    error = 100.0 * std / episodes**0.5 / (task.expert_return - task.random_return)
    size = "within" if gap < 2 * error else "more than"
    return f", {size} two of its standard errors (± {number(error, 2)} with {episodes} model episodes)"


def _largest_drop(true: Series | None) -> str:
    if true is None or len(true[1]) < 2:
        return ""
    drop = float(max(0.0, -np.diff(true[1]).min()))
    if drop == 0:
        return "The true score never fell between evaluations."
    return f"The largest drop of the true score between two evaluations is {number(drop, 2)} points."


def _caption(contents: Contents, exact: bool, estimated: bool) -> str:
    if contents.task is None:
        return "Model-estimated return: mean over episodes in models drawn from the posterior."
    words = (
        "The true score is the optimum’s minus the value lost at each step of simulated episodes, which has far less "
        "noise than their mean return. "
        if exact
        else "The true score is the mean return of simulated episodes. "
    )
    if estimated:
        words += (
            "A pessimistic method would keep the model estimate below the true score; the paper reports it above. "
            "π′ is the target policy, the moving average that the trust region is centred on. "
        )
    return words + "Training never sees the true score."
