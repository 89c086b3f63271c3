"""An inspection as one figure: Q by action, densities, model predictions, and the state in the dataset."""

from __future__ import annotations

import io
import textwrap
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from pspo.core.files import write_atomic
from pspo.core.terminal import printable
from pspo.evaluation.inspect.action import ActionColumn
from pspo.evaluation.inspect.action_values import BEST, LOGGED, POLICY, REFERENCE, MarkedAction, QCurve
from pspo.evaluation.inspect.inspection import Inspection
from pspo.evaluation.inspect.labels import LabelValue
from pspo.evaluation.inspect.model_predictions import REWARD, PredictedColumn
from pspo.evaluation.inspect.print_inspection import q_meaning
from pspo.report.canvas import BLUE, FAINT, GREEN, GREY, INK, ORANGE, PALE, STYLE, VERMILION, plain, png, styled

WIDTH, DPI = 12.0, 100  # 1200 pixels
HEAD = 0.35  # inches
MOST_COLUMNS, PER_ROW = 6, 3  # of the action
MOST_LABELS = 20  # of a discrete action
COLOURS = {POLICY: VERMILION, REFERENCE: GREEN, BEST: ORANGE, LOGGED: INK}
DASHES = {POLICY: "-", REFERENCE: (0, (5, 2)), BEST: (0, (1, 1)), LOGGED: (0, (3, 1, 1, 1))}
WORDS = {POLICY: "policy", REFERENCE: "mu's mode", BEST: "best on the grid", LOGGED: "logged"}
SHOWN_AT_BOUND = 0.01
LONGEST_TITLE = 85  # characters, left of the legend


def write_figure(inspection: Inspection, path: Path) -> Path:
    """As a PNG or an SVG file, by its ending."""
    figure = draw(inspection)
    if path.suffix == ".png":
        write_atomic(path, png(figure, DPI))
    else:
        text = io.StringIO()
        with matplotlib.rc_context({**STYLE, "svg.hashsalt": "pspo"}):
            figure.savefig(text, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
        write_atomic(path, text.getvalue())
    return path


@styled
def draw(inspection: Inspection) -> Figure:
    """Each row is a subfigure, so that long labels in one do not move the others."""
    shown = _shown_columns(inspection) if inspection.labels is None else [0]
    blocks = [shown[i : i + PER_ROW] for i in range(0, len(shown), PER_ROW)]
    upper = 3.2 if len(shown) == 1 else 4.2  # several columns: densities go below Q, else beside it
    lower = max(4.2, 0.24 * len(inspection.coverage.columns) + 1.0)
    figure = Figure(figsize=(WIDTH, upper * len(blocks) + lower + HEAD), layout="constrained")
    heights = [HEAD, *[upper] * len(blocks), lower]
    head, *rows = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    _head(head, inspection, len(shown))
    for part, block in zip(rows, blocks, strict=False):
        if inspection.labels is None:
            _draw_columns(part, block, inspection)
        else:
            _draw_labels(part, inspection, inspection.labels)
    models, right = rows[-1].subfigures(1, 2, width_ratios=[7, 5])
    _draw_models(models, inspection)
    _draw_coverage(right.subplots(), inspection)
    return figure


def _shown_columns(inspection: Inspection) -> list[int]:
    """Of an action with many columns those along which Q varies most, in their order."""
    varies = np.array([np.ptp(curve.q) for curve in inspection.values.curves])
    return sorted(np.argsort(-varies, kind="stable")[:MOST_COLUMNS].tolist())


def _head(part: SubFigure, inspection: Inspection, shown: int) -> None:
    columns = len(inspection.action.columns)
    some = "" if inspection.labels or shown == columns else f", {shown} of {columns} action columns"
    title = printable(f"{inspection.algo} on {inspection.data}: {inspection.title}{some}")
    title = textwrap.shorten(title, LONGEST_TITLE, placeholder=" ...")
    part.text(0.008, 0.5, title, va="center", fontsize=11, fontweight="bold", color=INK)
    names = [mark.name for mark in inspection.values.marks]
    handles = [Line2D([], [], color=COLOURS[n], ls=DASHES[n], lw=1.6, label=WORDS[n]) for n in names]
    part.legend(handles=handles, loc="center right", ncols=len(names), frameon=False, labelcolor=GREY)


def _draw_columns(part: SubFigure, block: list[int], inspection: Inspection) -> None:
    """Q of up to three action columns with the densities below, or of a single one with the densities beside."""
    if len(inspection.action.columns) == 1:
        left, right = part.subplots(1, 2)
        _draw_q(left, inspection, block[0], first=True)
        _draw_density(right, inspection, block[0], first=True)
        return
    grid = part.subplots(2, len(block), squeeze=False, sharex="col", height_ratios=[2.4, 1.6])
    for number, i in enumerate(block):
        _draw_q(grid[0, number], inspection, i, first=number == 0)
        _draw_density(grid[1, number], inspection, i, first=number == 0)
        grid[0, number].set_xlabel("")


def _draw_labels(part: SubFigure, inspection: Inspection, labels: list[LabelValue]) -> None:
    """A bar per label: Q with the standard deviation between critics, and the probabilities of policy and mu."""
    shown = _shown_labels(labels)
    where = np.arange(len(shown))
    left, right = part.subplots(1, 2)
    left.bar(where, [label.q for label in shown], 0.6, yerr=[label.std for label in shown], color=BLUE, ecolor=GREY)
    low, high = min(label.q for label in shown), max(label.q for label in shown)
    left.set_ylim(low - 0.25 * (high - low or 1.0), high + 0.25 * (high - low or 1.0))  # differences are what counts
    left.set_title(f"Q by action: {inspection.values.critics} critics ± std")
    left.set_ylabel(f"Q: {_short(q_meaning(inspection))}")
    right.bar(where - 0.2, [label.probability for label in shown], 0.4, color=VERMILION)
    right.bar(where + 0.2, [label.reference for label in shown], 0.4, color=GREEN)
    right.set_title("Probability: policy (red), mu (green)")
    right.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    for axes in (left, right):
        axes.set_xticks(where, [plain(str(label.label)) for label in shown], rotation=30 if len(shown) > 6 else 0)
        axes.grid(visible=False, axis="x")
    names = [str(label.label) for label in shown]
    for mark in inspection.values.marks:
        if str(mark.action[0]) in names and mark.name in (POLICY, LOGGED):
            left.axvline(names.index(str(mark.action[0])), color=COLOURS[mark.name], ls=DASHES[mark.name], lw=1.4)


def _shown_labels(labels: list[LabelValue]) -> list[LabelValue]:
    """Of many labels the most probable, in their order."""
    likely = sorted(range(len(labels)), key=lambda i: -max(labels[i].probability, labels[i].reference))
    return [labels[i] for i in sorted(likely[:MOST_LABELS])]


# Q and densities by action


def _draw_q(axes: Axes, inspection: Inspection, i: int, first: bool) -> None:
    curve, marks = inspection.values.curves[i], inspection.values.marks
    axes.fill_between(curve.action, curve.mean - curve.std, curve.mean + curve.std, color=BLUE, alpha=0.18, lw=0)
    axes.plot(curve.action, curve.q, c=BLUE)
    if curve.indistinguishable_share > 0:
        axes.plot(
            curve.indistinguishable,
            [0.02] * 2,
            c=PALE,
            lw=4,
            transform=axes.get_xaxis_transform(),
            solid_capstyle="butt",
        )
    _draw_marks(axes, marks, i)
    axes.plot([marks[0].action[i]], [marks[0].q], "o", c=VERMILION, ms=5, mec="white", mew=0.8, zorder=5)
    if first:
        band = (
            "lowest of {} critics; band: mean ± std" if inspection.values.critic_value == "min" else "{} critics ± std"
        )
        axes.set_title(f"Q by action: {band.format(inspection.values.critics)}")
        axes.set_ylabel(f"Q: {_short(q_meaning(inspection))}")
    _label_action(axes, curve)
    axes.yaxis.set_major_locator(MaxNLocator(6))


def _short(meaning: str) -> str:
    """On an axis there is room for the first half."""
    short = meaning.replace("the sum of ", "").replace(" until the episode ends", "")
    return short.split(", minus")[0].replace(", discounted by", ",\ndiscounted by")


def _draw_marks(axes: Axes, marks: list[MarkedAction], i: int) -> None:
    for mark in marks:
        width = 1.8 if mark.name == POLICY else 1.4
        axes.axvline(mark.action[i], color=COLOURS[mark.name], ls=DASHES[mark.name], lw=width, zorder=3)


def _label_action(axes: Axes, curve: QCurve) -> None:
    low, high = curve.action[0], curve.action[-1]
    axes.set(xlabel=plain(curve.name), xlim=(low - 0.03 * (high - low), high + 0.03 * (high - low)))
    axes.xaxis.set_major_locator(MaxNLocator(6))


def _draw_density(axes: Axes, inspection: Inspection, i: int, first: bool) -> None:
    curve = inspection.values.curves[i]
    mu = _to_peak(curve.reference_log_density)
    axes.fill_between(curve.action, 0.0, mu, color=GREEN, alpha=0.15, lw=0)
    axes.plot(curve.action, mu, c=GREEN)
    if curve.policy_log_density is not None:
        axes.plot(curve.action, _to_peak(curve.policy_log_density), c=VERMILION)
    _draw_marks(axes, [mark for mark in inspection.values.marks if mark.name != BEST], i)
    near = inspection.nearby_actions[:, i]
    axes.plot(near, np.full(len(near), -0.07), "|", c=GREY, ms=8, mew=0.8, alpha=0.7)
    axes.set_ylim(-0.14, 1.2)
    axes.set_yticks([0.0, 0.5, 1.0])
    _note_bounds(axes, inspection.action.columns[i])
    if first:
        axes.set_title("Density of mu (green), policy (red), actions nearby (ticks)")
        axes.set_ylabel("share of its peak")
    _label_action(axes, curve)


def _to_peak(log_density: np.ndarray) -> np.ndarray:
    return np.exp(log_density - log_density.max())


def _note_bounds(axes: Axes, column: ActionColumn) -> None:
    """Probability mass exactly at a bound has no density and would be invisible."""
    veil = {"boxstyle": "round,pad=0.15", "fc": "white", "lw": 0, "alpha": 0.85}
    for share, x, side in zip(column.reference_at_bounds, (0.04, 0.96), ("left", "right"), strict=True):
        if share > SHOWN_AT_BOUND:
            words = f"{100 * share:.0f} % of mu at the bound"
            axes.text(x, 0.97, words, transform=axes.transAxes, ha=side, va="top", fontsize=8, color=GREEN, bbox=veil)


# What the models predict


def _draw_models(part: SubFigure, inspection: Inspection) -> None:
    """Sorted by weight: weights, then each model's reward and the column on which they disagree most."""
    members, columns = inspection.models.members, inspection.models.columns
    index = np.arange(len(members))
    top, middle, bottom = part.subplots(3, 1, sharex=True, height_ratios=[1.2, 1, 1])
    top.bar(index, [m.weight for m in members], width=0.72, color=BLUE)
    top.axhline(1 / len(members), color=INK, lw=1, ls=(0, (5, 3)))
    top.yaxis.set_major_formatter(PercentFormatter(1, decimals=0 if members[0].weight > 0.05 else 1))
    top.yaxis.set_major_locator(MaxNLocator(4))
    top.set_title(
        f"Models: {inspection.models.effective_models:.1f} effective of {len(members)} (dashes: uniform weights)"
    )
    top.set_ylabel("weight P(T|E)")
    most = _most_disagreement(inspection)
    _draw_predictions(middle, np.array([m.reward for m in members]), columns[-1])
    _draw_predictions(bottom, np.array([m.next_obs[most] for m in members]), columns[most])
    for axes in (top, middle, bottom):
        axes.grid(visible=False, axis="x")
    ticks = index[:: max(1, len(index) // 20)]
    bottom.set_xticks(ticks, [str(members[int(i)].number) for i in ticks])
    bottom.set(xlabel="model, highest weight first; band: predicted ± chance", xlim=(-0.7, len(members) - 0.3))
    part.align_ylabels([top, middle, bottom])


def _most_disagreement(inspection: Inspection) -> int:
    """The column of the next state on which models differ most, as a fraction of its range in the data."""
    widths = np.array([c.high - c.low for c in inspection.coverage.columns])
    apart = np.array([f.model_std for f in inspection.models.columns[:-1]])
    return int(np.argmax(apart / np.maximum(widths, 1e-12)))


def _draw_predictions(axes: Axes, each: np.ndarray, column: PredictedColumn) -> None:
    axes.axhspan(
        column.expected - column.chance_std, column.expected + column.chance_std, color=FAINT, alpha=0.35, lw=0
    )
    axes.axhline(column.expected, color=GREY, lw=1)
    axes.plot(np.arange(len(each)), each, "o", c=BLUE, ms=4.5, mec="white", mew=0.6)
    if column.observed is not None:
        axes.axhline(column.observed, color=COLOURS[LOGGED], ls=DASHES[LOGGED], lw=1.4)
    axes.set_ylabel(column.name if column.name == REWARD else f"next\n{plain(column.name)}")
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.margins(y=0.2)


# Coverage of the state


def _draw_coverage(axes: Axes, inspection: Inspection) -> None:
    """A strip per column, from the lowest value of the data to the highest by rank."""
    columns = inspection.coverage.columns
    rows = np.arange(len(columns))
    axes.hlines(rows, 0, 100, color=FAINT, lw=1)
    axes.hlines(rows, 5, 95, color="#e3ecf2", lw=7)
    size = 8.5 if len(columns) <= 12 else 7.5
    for row, c in zip(rows, columns, strict=True):
        colour, shape = (VERMILION, "X") if c.outside else (BLUE, "o")
        axes.plot([c.percentile], [row], shape, c=colour, ms=7, mec="white", mew=0.8, clip_on=False, zorder=4)
        note = f"{c.value:.{c.digits}g}  ({c.low:.{c.digits - 1}g} to {c.high:.{c.digits - 1}g})"
        axes.annotate(note, (1, row), (8, 0), ("axes fraction", "data"), "offset points", va="center", fontsize=size,
                      color=VERMILION if c.outside else GREY, annotation_clip=False)  # fmt: skip
    axes.set_yticks(rows, [plain(c.name) for c in columns], fontsize=size)
    axes.set(xlim=(-3, 103), ylim=(len(columns) - 0.4, -0.6), xlabel="percentile in the dataset")
    axes.set_xticks([0, 25, 50, 75, 100])
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    distance, median = inspection.coverage.distance, inspection.coverage.median_distance
    times = distance / median if median > 0 else float("nan")
    axes.set_title(f"Neighbours at {times:.2g} × the median distance")
