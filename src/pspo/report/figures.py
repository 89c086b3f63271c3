"""The report's figures, each from plain arrays to a matplotlib figure: lines, bars, dots, maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
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
    """Written at the line's end; empty for a line that explains itself."""
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
    x_label: str = "iteration",
    y_label: str = "",
    levels: Sequence[Level] = (),
    size: tuple[float, float] = HALF,
    logarithmic: bool = False,
    y_limits: tuple[float, float] | None = None,
) -> Figure:
    """Lines with direct labels; a logarithmic axis only where the values allow and need it."""
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
    """Limits around all values with some air, at least `least` apart: what is nearly constant should look so."""
    every = np.concatenate([np.ravel(v) for v in values])
    low, high = float(every.min()), float(every.max())
    span = max(high - low, least) or 1.0
    return high - (1 + share) * span, low + (1 + share) * span


@styled
def weight_bars(weight: np.ndarray, names: Sequence[str], title: str, x_label: str) -> Figure:
    """One bar per pool member, with the uniform weight to compare with."""
    figure, axes = panel(HALF, title, x_label, "mean posterior weight")
    place = np.arange(len(weight))
    axes.bar(place, weight, width=0.72, color=BLUE)
    uniform = 1 / len(weight)
    axes.axhline(uniform, color=INK, lw=1, ls=(0, (5, 3)))
    axes.grid(visible=False, axis="x")
    shown = place[:: max(1, len(place) // 20)]  # more names than this would overlap
    axes.set_xticks(shown, [names[int(i)] for i in shown])
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0 if weight.max() > 0.05 else 1))
    label_ends(axes, [EndLabel(uniform, "uniform", INK)], HALF[1])
    return figure


@styled
def named_dots(x: np.ndarray, y: np.ndarray, names: Sequence[str], level: Level, title: str, x_label: str) -> Figure:
    """Few points, each with its name beside it; shares on the y-axis."""
    figure, axes = panel(HALF, title, x_label, "mean posterior weight")
    axes.plot(x, y, "o", c=BLUE, ms=5, mec="white", mew=0.6)
    if len(names) <= 25:
        for name, left, low in zip(names, x, y, strict=True):
            offset = (5, 4 if low > level.y else -10)  # away from the level, which would cross the name
            axes.annotate(name, (left, low), offset, textcoords="offset points", color=GREY, fontsize=8)
    axes.axhline(level.y, color=level.colour, lw=1, ls=(0, (5, 3)), zorder=1)
    axes.margins(x=0.08, y=0.15)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    label_ends(axes, [EndLabel(level.y, level.label, level.colour)], HALF[1])
    return figure


@styled
def cloud(
    x: np.ndarray, y: np.ndarray, title: str, x_label: str, y_label: str, least: float = 0.0
) -> tuple[Figure, int]:
    """Many points as a picture, with the mean of y in ten groups of equal size along x.

    The x-axis is fitted to all but one point in a hundred; returns also how many points lie outside.
    """
    figure, axes = panel(HALF, title, x_label, y_label)
    axes.scatter(x, y, s=9, c=BLUE, alpha=0.28, lw=0, rasterized=True)
    order = np.argsort(x, kind="stable")
    groups = [part for part in np.array_split(order, 10) if len(part)]
    left, mean = np.array([(np.median(x[part]), y[part].mean()) for part in groups]).T
    axes.plot(left, mean, "-o", c=VERMILION, ms=4, mec="white", mew=0.6)
    low, high = padded([np.percentile(x, [0.5, 99.5])], 0.04)
    axes.set(xlim=(low, high), ylim=padded([y], 0.05, least))
    label_ends(axes, [EndLabel(float(mean[-1]), "mean of\neach tenth", VERMILION)], HALF[1])
    return figure, int(((x < low) | (x > high)).sum())


@dataclass(frozen=True)
class PolicyMap:
    """What a policy does over time and price, beside the optimum."""

    times: np.ndarray
    prices: np.ndarray
    learned: np.ndarray  # (times, prices): fraction sold
    optimal: np.ndarray  # (times, prices): fraction the optimum sells, 0 or 1
    lost: np.ndarray  # (times, prices): share of the state's value that the learned action gives away
    threshold: np.ndarray  # (times,): lowest price at which the optimum sells
    likely: np.ndarray  # (2, times): between these prices lie 98 % of episodes


PANELS = {
    "learned": ("Learned policy", "Blues", "fraction sold"),
    "optimal": ("Optimal policy", "Blues", "fraction sold"),
    "lost": ("What the difference costs", "Oranges", "share of value lost"),
}


@styled
def policy_figure(
    found: PolicyMap, shown: Sequence[str] = ("learned", "optimal"), size: tuple[float, float] = (9.2, 3.5)
) -> Figure:
    """Maps over (time, price), side by side, with the optimal threshold: above it the optimum sells everything."""
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(1, len(shown), squeeze=False, sharey=True)[0]
    for axes, name in zip(grid, shown, strict=True):
        title, colours, meaning = PANELS[name]
        values = getattr(found, name)
        top = 1.0 if colours == "Blues" else max(0.01, float(values.max()))
        extent = (found.times[0] - 0.5, found.times[-1] + 0.5, found.prices[0], found.prices[-1])
        image = axes.imshow(
            values.T,
            origin="lower",
            extent=extent,
            aspect="auto",
            interpolation="nearest",
            cmap=colours,
            norm=Normalize(0, top),
        )
        _decorate(axes, found, name == shown[0])
        axes.set_title(title)
        if name == shown[-1] or PANELS[shown[-1]][2] != meaning:  # one bar for maps that share a scale
            bar = figure.colorbar(image, ax=axes, label=meaning, pad=0.02, aspect=25)
            bar.ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0 if top > 0.05 else 1))
            bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    return figure


def _decorate(axes: Axes, found: PolicyMap, first: bool) -> None:
    """The optimal threshold, the prices that occur, and the axes."""
    start, end = found.times[0] - 0.5, found.times[-1] + 0.5
    axes.stairs(found.threshold, np.arange(start, end + 1), baseline=None, color=VERMILION, lw=2.2)
    halo = [withStroke(linewidth=2.6, foreground="white", alpha=0.75)]  # to be seen on dark and on light
    for edge in found.likely:
        axes.plot(found.times, edge, c=INK, lw=1, ls=(0, (2, 2)), path_effects=halo)
    axes.set(xlabel="time step", xlim=(start, end), ylim=(found.prices[0], found.prices[-1]))
    axes.set_ylabel("price" if first else "")
    axes.grid(visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    middle = len(found.times) // 2
    _note(axes, "optimal threshold", (found.times[middle], found.threshold[middle]), VERMILION, ha="center", va="top")
    corner = (found.times[0] + 2, found.prices[0])
    _note(axes, "98 % of prices lie between the dotted lines", corner, GREY, ha="left", va="bottom")


def _note(axes: Axes, words: str, place: tuple[float, float], colour: str, ha: str, va: str) -> None:
    """Text a little off a place, legible on dark and on light."""
    veil = {"boxstyle": "round,pad=0.15", "fc": "white", "lw": 0, "alpha": 0.8}
    offset = (0, 6 if va == "bottom" else -10)
    axes.annotate(words, place, offset, textcoords="offset points", color=colour, ha=ha, va=va, bbox=veil, fontsize=8.5)
