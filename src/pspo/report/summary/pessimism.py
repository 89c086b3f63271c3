"""The section with the paper's figure on pessimism: model-estimated return and true score over training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pspo.report import statistics as stats
from pspo.report.canvas import BLUE, HALF, INK, ORANGE, SKY, VERMILION, plain, svg
from pspo.report.charts import Level, Line, lines, padded
from pspo.report.markup import figure, number, text, with_error
from pspo.report.records import Record, Results
from pspo.report.summary.queries import group_anchor, label, main_method, optimum, task_of
from pspo.report.summary.section import Cell, Column, ReportTable, Section, counted

ROOM = 0.75
"""How far estimates may widen a panel, as a share of the range of the true scores."""


@dataclass(frozen=True)
class TrainingCurve:
    """Evaluations of one seed at which both are known."""

    seed: int
    steps: np.ndarray
    true: np.ndarray
    estimate: np.ndarray
    """Model-estimated return on the scale of the score."""

    @property
    def drop(self) -> float:
        """The largest between two evaluations."""
        return float(max(0.0, -np.diff(self.true).min())) if len(self.true) > 1 else 0.0


def pessimism_section(results: Results) -> Section:
    title, method = "Model-estimated return and true score", main_method(results)
    every = {dataset: training_curves(results, dataset, method) for dataset in results.datasets}
    unknown = [dataset for dataset, curves in every.items() if not curves]
    every = {dataset: curves for dataset, curves in every.items() if curves}
    notices = [f"No evaluation has both an estimate and a true score: {', '.join(unknown)}."] if unknown else []
    if not every:
        return Section("pessimism", title, notices=notices)
    panels = [_panel(results, dataset, curves, i) for i, (dataset, curves) in enumerate(every.items())]
    caption = (
        f"Runs of {label(results, method)}. Thick: mean over seeds; thin: each seed. The model estimate is the mean "
        "return of episodes in the models, on the scale of the score. A pessimistic method would keep it below the "
        "true score; the paper reports it above. Training never sees the true score."
    )
    table = _table(results, every, method)
    return Section("pessimism", title, figures=[figure(panels, caption)], tables=[table], notices=notices)


def training_curves(results: Results, dataset: str, method: str) -> list[TrainingCurve]:
    """Curves of the finished runs, or of the others if none is finished."""
    task, records = task_of(results, dataset), results.of(dataset, method)
    if task is None:
        return []
    finished = [record for record in records if record.status == "finished"]
    curves = [_training_curve(record, task.normalised) for record in finished or records]
    return [curve for curve in curves if curve is not None]


def _training_curve(record: Record, normalised: Callable[[float], float]) -> TrainingCurve | None:
    points = []
    for row in record.curve:
        true, estimate = row.get("score_by_regret", row.get("score")), row.get("model_return")
        if true is not None and estimate is not None and np.isfinite([true, estimate]).all():
            points.append((row["step"], true, normalised(estimate)))
    return TrainingCurve(record.seed, *np.array(points, float).T) if points else None


def _shared(curves: list[TrainingCurve]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps that all seeds have, and the means over seeds at these."""
    steps = curves[0].steps
    for curve in curves[1:]:
        steps = np.intersect1d(steps, curve.steps)
    picked = [np.isin(curve.steps, steps) for curve in curves]
    true = np.mean([curve.true[pick] for curve, pick in zip(curves, picked, strict=True)], axis=0)
    estimate = np.mean([curve.estimate[pick] for curve, pick in zip(curves, picked, strict=True)], axis=0)
    return steps, true, estimate


def _panel(results: Results, dataset: str, curves: list[TrainingCurve], index: int) -> str:
    steps, true, estimate = _shared(curves)
    drawn = []
    if len(curves) > 1:
        drawn += [Line(c.steps, c.estimate, ORANGE, width=0.7) for c in curves]
        drawn += [Line(c.steps, c.true, SKY, width=0.7) for c in curves]
    if len(steps):
        drawn += [Line(steps, estimate, VERMILION, "model estimate", marker="o")]
        drawn += [Line(steps, true, BLUE, "true score", width=2.4, marker="o")]
    best = optimum(results, dataset)
    levels = [Level(best, f"optimum {number(best, 1)}", INK)] if best is not None else []
    limits = _limits([c.true for c in curves] + [np.array([level.y]) for level in levels], [c.estimate for c in curves])
    picture = lines(drawn, plain(dataset), y_label="normalised score", levels=levels, size=HALF, y_limits=limits)
    name = f"pessimism-{index}"
    description = f"True score and the model estimate over training on {dataset}."
    return f'{svg(picture, name, description)}<p class="under">{text(compared(curves))}</p>'


def _limits(true: list[np.ndarray], estimates: list[np.ndarray]) -> tuple[float, float]:
    """All true scores, and estimates as far as they do not flatten them."""
    low, high = padded(true, 0.0, least=1.0)
    room = ROOM * (high - low)
    near = [np.clip(values, low - room, high + room) for values in estimates]
    return padded([*true, *near], 0.06)


def compared(curves: list[TrainingCurve]) -> str:
    """How often the estimate is above the true score, the gap at the end, and the largest drop."""
    above, count = _above(curves)
    gap, std = stats.mean_and_std([float(c.estimate[-1] - c.true[-1]) for c in curves])
    side = "above" if gap > 0 else "below"
    worst = max(curves, key=lambda curve: curve.drop)
    drop = (
        f"The largest drop of the true score between two evaluations is {number(worst.drop, 2)} points (seed "
        f"{worst.seed})."
        if worst.drop
        else "The true score never fell between evaluations."
    )
    return (
        f"The estimate is above the true score at {above} of {counted(count, 'evaluation')} "
        f"({counted(len(curves), 'seed')}); at the end it is {with_error(abs(gap), std)} points {side}. {drop}"
    )


def _above(curves: list[TrainingCurve]) -> tuple[int, int]:
    return int(sum((c.estimate > c.true).sum() for c in curves)), sum(len(c.true) for c in curves)


def _table(results: Results, every: dict[str, list[TrainingCurve]], method: str) -> ReportTable:
    rows = []
    for dataset, curves in every.items():
        target = group_anchor(results, dataset, method)
        above, count = _above(curves)
        gap, std = stats.mean_and_std([float(c.estimate[-1] - c.true[-1]) for c in curves])
        true = float(np.mean([curve.true[-1] for curve in curves]))
        estimate = float(np.mean([curve.estimate[-1] for curve in curves]))
        drop = max(curve.drop for curve in curves)
        rows.append(
            [
                Cell(dataset),
                Cell(number(true, 1), true, target=target),
                Cell(number(estimate, 1), estimate, target=target),
                Cell(with_error(gap, std, 1), gap, target=target),
                Cell(f"{above} of {count}", above / count, target=target),
                Cell(number(drop, 1), drop, target=target),
            ]
        )
    titles = ["True score", "Model estimate", "Difference", "Evaluations above", "Largest drop"]
    columns = [Column("Dataset", "text"), *map(Column, titles)]
    caption = (
        "At the last evaluation. Difference: estimate minus true score, mean ± sample standard deviation over seeds. "
        "Evaluations above: those at which the estimate is above the true score. Largest drop: of the true score of "
        "any seed between two evaluations."
    )
    return ReportTable("pessimism", "Model-estimated return and true score", columns, rows, caption=caption)
