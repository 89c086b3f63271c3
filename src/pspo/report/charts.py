"""Charts that both pages share, from plain arrays to a matplotlib figure: lines, bars, named dots, scatter plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, PercentFormatter

from pspo.report.canvas import (
    BLUE,
    GREY,
    HALF,
    INK,
    VERMILION,
    EndLabel,
    label_ends,
    panel,
    styled,
    thousands,
)


@dataclass(frozen=True)
class Line:
    x: Any
    y: Any
    colour: str = BLUE
    label: str = ""
    """Written at the end of the line; empty for a line that needs none."""
    style: str = "-"
    width: float = 1.8
    marker: str = ""


@dataclass(frozen=True)
class Level:
    """A value to compare with, drawn across the whole panel."""

    y: float
    label: str
    colour: str = INK


@styled
def lines(
    drawn: Sequence[Line],
    title: str,
    *,
    x_label: str = "iteration",
    y_label: str = "",
    levels: Sequence[Level] = (),
    size: tuple[float, float] = HALF,
    logarithmic: bool = False,
    y_limits: tuple[float, float] | None = None,
) -> Figure:
    """Lines with direct labels; `logarithmic` takes effect where values are positive and span decades."""
    figure, axes = panel(size, title, x_label, y_label)
    for line in drawn:
        alone = len(line.x) == 1  # a line through one point is invisible
        axes.plot(line.x, line.y, line.style, c=line.colour, lw=line.width, marker="o" if alone else line.marker, ms=4)
    for level in levels:
        axes.axhline(level.y, color=level.colour, lw=1, ls=(0, (5, 3)), zorder=1)
    if logarithmic and _spans_decades(drawn, levels):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(numticks=5))
        axes.minorticks_off()
    if y_limits:
        axes.set_ylim(*y_limits)
    axes.margins(x=0.02)
    if x_label == "iteration":
        thousands(axes)
        axes.xaxis.set_major_locator(MaxNLocator(5 if size[0] > 4 else 4, integer=True))
    labels = [EndLabel(float(line.y[-1]), line.label, line.colour) for line in drawn if line.label]
    labels += [EndLabel(level.y, level.label, level.colour) for level in levels]
    label_ends(axes, labels, size[1])
    return figure


def _spans_decades(drawn: Sequence[Line], levels: Sequence[Level]) -> bool:
    every = np.concatenate([np.ravel(line.y) for line in drawn] + [[level.y] for level in levels])
    return bool(every.min() > 0 and every.max() > 100 * every.min())


def padded(values: Sequence[Any], share: float = 0.08, least: float = 0.0) -> tuple[float, float]:
    """Axis limits with a margin, at least `least` apart, so that nearly constant values look constant."""
    every = np.concatenate([np.ravel(v) for v in values])
    low, high = float(every.min()), float(every.max())
    span = max(high - low, least) or 1.0
    return high - (1 + share) * span, low + (1 + share) * span


@styled
def weight_bars(weight: np.ndarray, names: Sequence[str], title: str, x_label: str) -> Figure:
    """One bar per ensemble member, with the uniform weight for comparison."""
    figure, axes = panel(HALF, title, x_label, "mean posterior weight")
    position = np.arange(len(weight))
    axes.bar(position, weight, width=0.72, color=BLUE)
    uniform = 1 / len(weight)
    axes.axhline(uniform, color=INK, lw=1, ls=(0, (5, 3)))
    axes.grid(visible=False, axis="x")
    shown = position[:: max(1, len(position) // 20)]  # more names than this would overlap
    axes.set_xticks(shown, [names[int(i)] for i in shown])
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0 if weight.max() > 0.05 else 1))
    label_ends(axes, [EndLabel(uniform, "uniform", INK)], HALF[1])
    return figure


@styled
def named_dots(x: np.ndarray, y: np.ndarray, names: Sequence[str], level: Level, title: str, x_label: str) -> Figure:
    """A few points with their names beside them, in per cent on the y-axis."""
    figure, axes = panel(HALF, title, x_label, "mean posterior weight")
    axes.plot(x, y, "o", c=BLUE, ms=5, mec="white", mew=0.6)
    if len(names) <= 25:
        for name, left, low in zip(names, x, y, strict=True):
            offset = (5, 4 if low > level.y else -10)  # away from the level line
            axes.annotate(name, (left, low), offset, textcoords="offset points", color=GREY, fontsize=8)
    axes.axhline(level.y, color=level.colour, lw=1, ls=(0, (5, 3)), zorder=1)
    axes.margins(x=0.08, y=0.15)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    label_ends(axes, [EndLabel(level.y, level.label, level.colour)], HALF[1])
    return figure


@styled
def scatter(
    x: np.ndarray, y: np.ndarray, title: str, x_label: str, y_label: str, least: float = 0.0
) -> tuple[Figure, int]:
    """Many points as a bitmap, with the mean of y in ten groups of equal size along x.

    The x-axis covers 99 % of the points; also returns how many lie outside.
    """
    figure, axes = panel(HALF, title, x_label, y_label)
    axes.scatter(x, y, s=9, c=BLUE, alpha=0.28, lw=0, rasterized=True)
    order = np.argsort(x, kind="stable")
    groups = [group for group in np.array_split(order, 10) if len(group)]
    left, mean = np.array([(np.median(x[group]), y[group].mean()) for group in groups]).T
    axes.plot(left, mean, "-o", c=VERMILION, ms=4, mec="white", mew=0.6)
    low, high = padded([np.percentile(x, [0.5, 99.5])], 0.04)
    axes.set(xlim=(low, high), ylim=padded([y], 0.05, least))
    label_ends(axes, [EndLabel(float(mean[-1]), "mean of\neach tenth", VERMILION)], HALF[1])
    return figure, int(((x < low) | (x > high)).sum())
