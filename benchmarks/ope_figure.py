"""The figure of the coverage study: every estimate and its interval relative to the true return, by policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pspo.evaluation.ope import ESTIMATORS
from pspo.report.canvas import BLUE, GREY, INK, PALE, VERMILION, png, styled

SIZE, DPI = (10.5, 10.0), 130
REACH = 0.2  # of the range of true returns, above and below; values farther away are triangles at the edge
WIDTH = 0.7  # of a policy's column, for its estimates side by side


@styled
def draw(points: Sequence[dict[str, Any]]) -> bytes:
    """PNG. A point is a row of benchmarks.ope with its true return."""
    figure = Figure(figsize=SIZE, layout="constrained")
    reach = REACH * max(float(np.ptp([p["truth"] for p in points])), 1.0)
    mode = {p["policy"]: p["truth"] for p in points if p["actions"] == "mode"}
    truths = {p["policy"]: p["truth"] for p in points} | mode  # of the mode, where it is known
    columns = {policy: column for column, policy in enumerate(sorted(truths, key=lambda name: truths[name]))}
    datasets = max(p["dataset"] for p in points) + 1
    panels = figure.subplots(len(ESTIMATORS), 1, sharex=True, sharey=True)
    for axes, method in zip(panels, (info.title for info in ESTIMATORS.values()), strict=True):
        _panel(axes, method, [p for p in points if p["method"] == method], reach, columns, datasets)
    names = [f"{name.replace('/seed-', ' ')}: {truths[name]:.1f}" for name in columns]
    panels[-1].set_xticks(range(len(columns)), names, rotation=90, fontsize=7)
    panels[-1].set_xlabel("policy, and its return in the simulator")
    figure.supylabel("estimate minus true return", fontsize=9)
    figure.legend(handles=_legend(), loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return png(figure, DPI)


def _panel(
    axes: Axes, method: str, points: Sequence[dict[str, Any]], reach: float, columns: dict[str, int], datasets: int
) -> None:
    axes.axhline(0.0, c=PALE, lw=1, zorder=1)
    for point in points:
        if point["value"] is not None:
            x = columns[point["policy"]] + WIDTH * ((point["dataset"] + 0.5) / datasets - 0.5)
            _draw_estimate(axes, x, point, reach)
    axes.set(xlim=(-0.6, len(columns) - 0.4), ylim=(-reach, reach))
    axes.grid(visible=False, axis="x")
    axes.set_title(_title(method, points), loc="left")
    axes.text(1.0, 1.02, failures(points), transform=axes.transAxes, ha="right", va="bottom", color=INK, fontsize=8)


def _draw_estimate(axes: Axes, x: float, point: dict[str, Any], reach: float) -> None:
    ends = [
        edge if point[end] is None else point[end] - point["truth"] for end, edge in (("low", -reach), ("high", reach))
    ]
    colour = BLUE if covers(point) else VERMILION
    y = float(np.clip(point["value"] - point["truth"], -reach, reach))
    beyond = {-reach: "v", reach: "^"}.get(y)
    marker = beyond or ("s" if point["dataset"] == 0 else "o")
    axes.plot((x, x), np.clip(ends, -reach, reach), c=colour, lw=1.2, alpha=0.35 if warned(point) else 0.8, zorder=2)
    fill = "white" if warned(point) else colour
    axes.plot(x, y, marker, c=colour, mfc=fill, ms=3.5, mew=0.9, zorder=3, clip_on=beyond is None)


def warned(point: dict[str, Any]) -> bool:
    """It has a warning, or another method contradicts it."""
    return point["warnings"] > 0 or point["contradicted"]


def covers(point: dict[str, Any]) -> bool:
    """A missing end is open."""
    low, high = point["low"], point["high"]
    return (low is None or low <= point["truth"]) and (high is None or point["truth"] <= high)


def _title(method: str, points: Sequence[dict[str, Any]]) -> str:
    closed = [p for p in points if None not in (p["value"], p["low"], p["high"])]
    if not closed:
        return f"{method}: no intervals"
    return f"{method}: {sum(map(covers, closed))} of {len(closed)} intervals contain the true return"


def failures(points: Sequence[dict[str, Any]]) -> str:
    """How intervals miss the true return."""
    missed = [p for p in points if not covers(p)]
    parts = []
    if missed:
        high = sum(p["low"] is not None and p["low"] > p["truth"] for p in missed)
        parts.append(f"misses: {high} too high, {len(missed) - high} too low")
        parts.append(f"{sum(map(warned, missed))} of these {len(missed)} had a warning")
    if open_ended := sum(None in (p["low"], p["high"]) for p in points):
        parts.append(f"no interval: {open_ended}")
    return "; ".join(parts)


def _legend() -> list[Line2D]:
    bar, mark = {"marker": "o", "ms": 4, "lw": 1.2}, {"c": GREY, "ms": 4, "ls": ""}
    return [
        Line2D([], [], c=BLUE, label="interval contains the true return", **bar),
        Line2D([], [], c=VERMILION, label="interval misses it", **bar),
        Line2D([], [], marker="s", label="training dataset", **mark),
        Line2D([], [], marker="o", label="new dataset", **mark),
        Line2D([], [], marker="o", mfc="white", label="with a warning, or contradicted by another method", **mark),
    ]
