"""The figure of the study on MuJoCo: estimated and true returns of every policy, with the models' noise and without."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.ope_locomotion_summary import COLLAPSED, PRODUCT, STATISTICS, Row, collapsed
from pspo.report.canvas import BLUE, GREY, PALE, VERMILION, png, styled

SIZE, DPI, MOST = (10.5, 4.4), 130, 2.0
SHOWN = ("models, with their noise", PRODUCT)
MARKERS = "osD^vPX*"


@styled
def draw(rows: Sequence[Row], below: float) -> bytes:
    """PNG. Both returns are in returns of the dataset; beyond MOST they are drawn at the edge. `below` it is a sign."""
    figure = Figure(figsize=SIZE, layout="constrained")
    names = sorted({row["dataset"] for row in rows})
    panels = figure.subplots(1, len(SHOWN), sharex=True, sharey=True)
    for axes, name in zip(panels, SHOWN, strict=True):
        _panel(axes, name, rows, below, names)
    panels[0].set_ylabel("estimated return / dataset's return")
    figure.legend(handles=_legend(names), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return png(figure, DPI)


def _panel(axes: Axes, name: str, rows: Sequence[Row], below: float, names: Sequence[str]) -> None:
    axes.plot((0.0, MOST), (0.0, MOST), c=PALE, lw=1, zorder=1)
    axes.axvline(COLLAPSED, c=PALE, lw=1, zorder=1)
    for row in rows:
        warned = STATISTICS[PRODUCT](row) < below
        point = np.clip((row["truth"] / row["dataset_return"], STATISTICS[name](row)), 0.0, MOST)
        colour = VERMILION if collapsed(row) else BLUE
        marker = MARKERS[names.index(row["dataset"]) % len(MARKERS)]
        axes.plot(*point, marker, c=colour, mfc=colour if warned else "white", ms=5, mew=1, zorder=2)
    axes.set(xlim=(-0.05, MOST), ylim=(-0.05, MOST), xlabel="return in the simulator / dataset's return")
    axes.set_title(name, loc="left")


def _legend(names: Sequence[str]) -> list[Line2D]:
    mark = {"ls": "", "ms": 5}
    return [
        *(Line2D([], [], marker=MARKERS[i % len(MARKERS)], c=GREY, label=name, **mark) for i, name in enumerate(names)),
        Line2D([], [], marker="o", c=VERMILION, mfc="white", label="collapsed", **mark),
        Line2D([], [], marker="o", c=BLUE, mfc="white", label="did not collapse", **mark),
        Line2D([], [], marker="o", c=GREY, label="with a warning", **mark),
    ]
