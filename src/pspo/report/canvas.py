"""The style of every figure, and how it becomes SVG in a page or a PNG file."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from pspo.core.terminal import printable

# Okabe and Ito's colours: distinct for colour-blind readers and in print.
BLUE, VERMILION, GREEN, SKY, ORANGE, PURPLE = "#0072B2", "#D55E00", "#009E73", "#56B4E9", "#E69F00", "#CC79A7"
INK, GREY, PALE, FAINT = "#222222", "#6b6b6b", "#adadad", "#c9c9c9"

HALF, THIRD = (4.9, 3.1), (3.2, 2.2)
"""Sizes in inches; a page shows two half panels side by side at about this size."""

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.labelcolor": GREY,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "axes.formatter.useoffset": False,  # "1e-6 + 0.99999" above an axis is hard to read
    "grid.color": "#eeeeee",
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": GREY,
    "ytick.labelcolor": GREY,
    "text.color": INK,
    "lines.linewidth": 1.8,
    "text.parse_math": False,  # a dollar in the name of a column is a dollar
    "svg.fonttype": "none",  # real text: small, sharp and searchable
    "svg.image_inline": True,
}

styled = matplotlib.rc_context(STYLE)
"""Decorator for functions that draw."""

LABEL_GAP_POINTS = 12.0
"""Between the middles of two labels at the end of lines."""


LONGEST_NAME = 26
"""Characters of a name in a figure."""


def plain(name: str) -> str:
    """A name from elsewhere as one line without control characters, which SVG cannot hold, shortened to fit."""
    name = printable(" ".join(name.split()))
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


@dataclass(frozen=True)
class EndLabel:
    """A label beside the plot, at the height of its value."""

    y: float
    text: str
    colour: str


def panel(size: tuple[float, float], title: str, x_label: str, y_label: str = "") -> tuple[Figure, Axes]:
    """An empty figure with one set of axes."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    return figure, axes


def thousands(axes: Axes) -> None:
    """Iterations as 2k, 4k."""
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1000:g}k" if abs(x) >= 1000 else f"{x:g}"))


def label_ends(axes: Axes, labels: Sequence[EndLabel], height: float) -> None:
    """Direct labels right of the plot instead of a legend, pushed apart where they would overlap.

    Call it last: heights are taken from the axes' limits. `height` is the figure's, in inches.
    """
    gap = LABEL_GAP_POINTS / (72 * height * 0.75)  # the axes fill about three quarters of a panel
    to_axes = axes.transData + axes.transAxes.inverted()
    wanted = [float(np.clip(to_axes.transform((axes.get_xlim()[1], label.y))[1], 0, 1)) for label in labels]
    for label, y in zip(labels, pushed_apart(wanted, gap), strict=True):
        axes.annotate(label.text, (1, y), (6, 0), "axes fraction", "offset points", color=label.colour, va="center")


def pushed_apart(heights: Sequence[float], gap: float) -> list[float]:
    """The heights at least `gap` apart, in the same order, moved only where they were closer."""
    order = np.argsort(heights, kind="stable")
    placed = np.array(heights, float)[order]
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    if len(placed) and placed[-1] > 1:
        placed[-1] = max(1.0, float(np.max(heights)))
        for i in range(len(placed) - 2, -1, -1):
            placed[i] = min(placed[i], placed[i + 1] - gap)
    back = np.empty_like(placed)
    back[order] = placed
    return back.tolist()


def svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an <svg> element. `name` must be unique in the page: it keeps ids of figures apart."""
    buffer = io.StringIO()
    own: dict[Any, Any] = {**STYLE, "svg.hashsalt": name}
    with matplotlib.rc_context(own):
        figure.savefig(buffer, format="svg", dpi=150, transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(buffer.getvalue(), name, description)


def _inline(source: str, name: str, description: str) -> str:
    """Only what a page needs: no prologue, no metadata, no global style, unique ids."""
    body = source[source.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<style\b.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    used = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', body))
    used = {first or second for first, second in used}
    body = re.sub(r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", body)
    body = re.sub(r'(?:xlink:)?href="#', f'href="#{name}-', body).replace("url(#", f"url(#{name}-")
    body = body.replace("xlink:href=", "href=")
    body = re.sub(r"font-family: [^;\"]*;? ?", "", body)  # use the page's
    view_box = re.search(r'viewBox="[^"]+"', body)
    assert view_box, "matplotlib always writes a viewBox"
    opening = f'<svg {view_box[0]} role="img" aria-label="{escape(description)}">'
    return re.sub(r"\s*\n\s*", "\n", opening + body[body.index(">") + 1 :]).strip()


def png(figure: Figure, dpi: int) -> bytes:
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()
