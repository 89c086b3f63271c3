"""The figure of the coverage study: truth against estimate, an interval per judgement, a panel per method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pspo.ope import METHODS
from pspo.report.canvas import BLUE, GREY, INK, PALE, VERMILION, png, styled

SIZE, DPI = (9.6, 8.2), 150
MARGIN = 0.35  # of the truths' range, above and below; what lies farther is a triangle at the edge
APART = 0.0025  # of that range, between the judgements of one policy


@styled
def draw(points: Sequence[dict[str, Any]]) -> bytes:
    """PNG. A point is a row of benchmarks.ope with its truth."""
    figure = Figure(figsize=SIZE, layout="constrained")
    true = np.array([p["truth"] for p in points])
    reach = max(float(np.ptp(true)), 1.0)
    ends = (float(true.min()) - MARGIN * reach, float(true.max()) + MARGIN * reach)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for axes, method in zip(panels.flat, METHODS.values(), strict=True):
        _panel(axes, method, [p for p in points if p["method"] == method], ends)
    for axes in panels[1]:
        axes.set_xlabel("return in the simulator")
    for axes in panels[:, 0]:
        axes.set_ylabel("estimate by the log, with its interval")
    figure.legend(handles=_legend(), loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return png(figure, DPI)


def _panel(axes: Axes, method: str, points: Sequence[dict[str, Any]], ends: tuple[float, float]) -> None:
    axes.plot(ends, ends, c=PALE, lw=1, zorder=1)
    for point in points:
        if point["value"] is not None:
            _judgement(axes, point, ends)
    axes.set(xlim=ends, ylim=ends, title=_title(method, points))
    back = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5}
    axes.text(0.03, 0.97, failures(points), transform=axes.transAxes, va="top", color=INK, fontsize=8, bbox=back)


def _judgement(axes: Axes, point: dict[str, Any], ends: tuple[float, float]) -> None:
    low, high = (ends[i] if point[end] is None else point[end] for i, end in enumerate(("low", "high")))
    colour, doubted = BLUE if covers(point) else VERMILION, point["doubts"] > 0
    x = point["truth"] + APART * point["log"] * (ends[1] - ends[0])
    y = float(np.clip(point["value"], *ends))
    beyond = {ends[0]: "v", ends[1]: "^"}.get(y)
    marker = beyond or ("s" if point["log"] == 0 else "o")
    axes.plot((x, x), np.clip((low, high), *ends), c=colour, lw=1.2, alpha=0.35 if doubted else 0.8, zorder=2)
    fill = "white" if doubted else colour
    axes.plot(x, y, marker, c=colour, mfc=fill, ms=4, mew=0.9, zorder=3, clip_on=beyond is None)


def covers(point: dict[str, Any]) -> bool:
    """An end that is missing is open."""
    low, high = point["low"], point["high"]
    return (low is None or low <= point["truth"]) and (high is None or point["truth"] <= high)


def _title(method: str, points: Sequence[dict[str, Any]]) -> str:
    closed = [p for p in points if None not in (p["value"], p["low"], p["high"])]
    if not closed:
        return f"{method}: no intervals"
    return f"{method}: {sum(map(covers, closed))} of {len(closed)} intervals hold"


def failures(points: Sequence[dict[str, Any]]) -> str:
    """How it fails where it fails."""
    missed = [p for p in points if not covers(p)]
    lines = []
    if missed:
        high = sum(p["low"] is not None and p["low"] > p["truth"] for p in missed)
        warned = sum(p["doubts"] > 0 for p in missed)
        lines += [f"fails: {high} too high, {len(missed) - high} too low", f"{warned} of {len(missed)} with a warning"]
    if open_ended := sum(None in (p["low"], p["high"]) for p in points):
        lines.append(f"no interval: {open_ended}")
    return "\n".join(lines)


def _legend() -> list[Line2D]:
    bar, mark = {"marker": "o", "ms": 4, "lw": 1.2}, {"c": GREY, "ms": 4, "ls": ""}
    return [
        Line2D([], [], c=BLUE, label="the interval holds", **bar),
        Line2D([], [], c=VERMILION, label="it fails", **bar),
        Line2D([], [], marker="s", label="by the log of training", **mark),
        Line2D([], [], marker="o", label="by a fresh log", **mark),
        Line2D([], [], marker="o", mfc="white", label="a warning said not to believe it", **mark),
    ]
