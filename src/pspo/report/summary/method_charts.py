"""Charts that compare methods: intervals in rows, performance profiles in one panel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from pspo.report.canvas import BLUE, GREEN, GREY, HALF, INK, ORANGE, PURPLE, SKY, VERMILION, panel, plain, styled
from pspo.report.statistics import Interval, Profile

COLOURS = (VERMILION, GREEN, ORANGE, PURPLE, SKY, INK, GREY)
STYLES = ("-", (0, (4, 1.5)), (0, (1, 1.2)))
BANDS_UP_TO = 4  # methods; more bands hide each other


@dataclass(frozen=True)
class MethodScore:
    """An aggregate score of one method with its interval."""

    name: str
    value: float
    interval: Interval | None
    first: bool = False
    """Whether the others are compared with it."""


@styled
def intervals(estimates: Sequence[MethodScore]) -> Figure:
    """A row per method, the first on top."""
    height = max(HALF[1], 0.8 + 0.27 * len(estimates))
    figure, axes = panel((HALF[0], height), "Interquartile mean", "normalised score")
    for row, estimate in enumerate(estimates):
        colour = BLUE if estimate.first else GREY
        if estimate.interval:
            axes.plot(estimate.interval, (row, row), c=colour, lw=5, alpha=0.35, solid_capstyle="butt")
        axes.plot(estimate.value, row, "o", c=colour, ms=5.5, mec="white", mew=0.7)
    axes.set_yticks(range(len(estimates)), [plain(estimate.name) for estimate in estimates])
    axes.set_ylim(len(estimates) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.06)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    return figure


@styled
def profiles(lines: Sequence[tuple[str, Profile, bool]]) -> Figure:
    """From names, profiles, and whether it is the first method, which is drawn on top."""
    height = max(HALF[1], 0.8 + 0.27 * len(lines))
    figure, axes = panel((HALF[0], height), "Performance profiles", "normalised score", "share of runs above")
    others = 0
    for name, profile, first in lines:
        colour, style, width = BLUE, "-", 2.4
        if not first:
            colour, style, width = COLOURS[others % len(COLOURS)], STYLES[others // len(COLOURS) % len(STYLES)], 1.5
            others += 1
        layer = 3 if first else 2
        axes.plot(profile.thresholds, profile.share, c=colour, ls=style, lw=width, label=plain(name), zorder=layer)
        if profile.band is not None and (first or len(lines) <= BANDS_UP_TO):
            axes.fill_between(profile.thresholds, *profile.band, color=colour, alpha=0.13, lw=0, zorder=layer - 1)
    axes.set_ylim(-0.02, 1.02)
    axes.margins(x=0)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.6)
    return figure
