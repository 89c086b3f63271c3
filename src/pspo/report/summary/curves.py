"""The paper's figure on pessimism: what the models promise, over training, beside the true score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pspo.report import statistics as stats
from pspo.report.canvas import BLUE, HALF, INK, ORANGE, SKY, VERMILION, svg
from pspo.report.figures import Level, Line, lines, padded
from pspo.report.markup import figure, number, text, with_error
from pspo.report.records import Record, Results
from pspo.report.summary.figures import plain
from pspo.report.summary.places import group_place, label, main_method, optimum, task_of
from pspo.report.summary.tables import Cell, Column, Part, Table, counted

ROOM = 0.75
"""How far outside of the true scores an estimate may widen a panel, as a share of their span."""


@dataclass(frozen=True)
class Course:
    """Looks of one seed at which both are known."""

    seed: int
    steps: np.ndarray
    true: np.ndarray
    promised: np.ndarray
    """On the scale of the score."""

    @property
    def fall(self) -> float:
        """The largest from one look to the next."""
        return float(max(0.0, -np.diff(self.true).min())) if len(self.true) > 1 else 0.0


def pessimism_part(results: Results) -> Part:
    title, method = "What the models promise, and what is true", main_method(results)
    found = {dataset: courses(results, dataset, method) for dataset in results.datasets}
    lost = [dataset for dataset, those in found.items() if not those]
    found = {dataset: those for dataset, those in found.items() if those}
    lacking = [f"No look at both the models’ estimate and the true score: {', '.join(lost)}."] if lost else []
    if not found:
        return Part("pessimism", title, lacking=lacking)
    panels = [_panel(results, dataset, those, i) for i, (dataset, those) in enumerate(found.items())]
    caption = (
        f"Runs of {label(results, method)}. Thick: mean over seeds; thin: each seed. The models’ estimate is the mean "
        "return of imagined episodes, on the scale of the score. A pessimistic method would keep it below the truth; "
        "the paper reports it above. Training never sees the true score."
    )
    table = _table(results, found, method)
    return Part("pessimism", title, figures=[figure(panels, caption)], tables=[table], lacking=lacking)


def courses(results: Results, dataset: str, method: str) -> list[Course]:
    """Of the finished runs; of the others where none is finished."""
    task, records = task_of(results, dataset), results.of(dataset, method)
    if task is None:
        return []
    finished = [record for record in records if record.status == "finished"]
    every = [_course(record, task.normalised) for record in finished or records]
    return [course for course in every if course is not None]


def _course(record: Record, normalised: Callable[[float], float]) -> Course | None:
    looks = []
    for row in record.curve:
        true, promised = row.get("score_by_regret", row.get("score")), row.get("imagined_return")
        if true is not None and promised is not None and np.isfinite([true, promised]).all():
            looks.append((row["step"], true, normalised(promised)))
    return Course(record.seed, *np.array(looks, float).T) if looks else None


def _shared(those: list[Course]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps that all seeds have, and the means over seeds there."""
    steps = those[0].steps
    for course in those[1:]:
        steps = np.intersect1d(steps, course.steps)
    picked = [np.isin(course.steps, steps) for course in those]
    true = np.mean([course.true[pick] for course, pick in zip(those, picked, strict=True)], axis=0)
    promised = np.mean([course.promised[pick] for course, pick in zip(those, picked, strict=True)], axis=0)
    return steps, true, promised


def _panel(results: Results, dataset: str, those: list[Course], index: int) -> str:
    steps, true, promised = _shared(those)
    drawn = []
    if len(those) > 1:
        drawn += [Line(c.steps, c.promised, ORANGE, width=0.7) for c in those]
        drawn += [Line(c.steps, c.true, SKY, width=0.7) for c in those]
    if len(steps):
        drawn += [Line(steps, promised, VERMILION, "models’ estimate", marker="o")]
        drawn += [Line(steps, true, BLUE, "true score", width=2.4, marker="o")]
    best = optimum(results, dataset)
    levels = [Level(best, f"optimum {number(best, 1)}", INK)] if best is not None else []
    limits = _limits([c.true for c in those] + [np.array([level.y]) for level in levels], [c.promised for c in those])
    picture = lines(drawn, plain(dataset), y_label="normalised score", levels=levels, size=HALF, y_limits=limits)
    name = f"pessimism-{index}"
    description = f"True score and the models’ estimate over training on {dataset}."
    return f'{svg(picture, name, description)}<p class="under">{text(verdict(those))}</p>'


def _limits(true: list[np.ndarray], promised: list[np.ndarray]) -> tuple[float, float]:
    """All true scores, and of the estimates what does not flatten them."""
    low, high = padded(true, 0.0, least=1.0)
    room = ROOM * (high - low)
    near = [np.clip(values, low - room, high + room) for values in promised]
    return padded([*true, *near], 0.06)


def verdict(those: list[Course]) -> str:
    """One sentence per question: above or below, how far at the end, how steady."""
    above, looks = _above(those)
    gap, spread = stats.mean_and_std([float(c.promised[-1] - c.true[-1]) for c in those])
    side = "above" if gap > 0 else "below"
    fall = max(those, key=lambda course: course.fall)
    steady = (
        f"The true score fell by {number(fall.fall, 2)} points at most from one look to the next (seed {fall.seed})."
        if fall.fall
        else "The true score never fell from one look to the next."
    )
    return (
        f"The estimate lay above the truth at {above} of {counted(looks, 'look')} ({counted(len(those), 'seed')}); at "
        f"the end it is {with_error(abs(gap), spread)} points {side}. {steady}"
    )


def _above(those: list[Course]) -> tuple[int, int]:
    return int(sum((c.promised > c.true).sum() for c in those)), sum(len(c.true) for c in those)


def _table(results: Results, found: dict[str, list[Course]], method: str) -> Table:
    rows = []
    for dataset, those in found.items():
        target = group_place(results, dataset, method)
        (above, looks), ends = _above(those), [float(c.promised[-1] - c.true[-1]) for c in those]
        gap, spread = stats.mean_and_std(ends)
        true, promised = (float(np.mean([values[-1] for values in every])) for every in _both(those))
        fall = max(course.fall for course in those)
        rows.append(
            [
                Cell(dataset),
                Cell(number(true, 1), true, target=target),
                Cell(number(promised, 1), promised, target=target),
                Cell(with_error(gap, spread, 1), gap, target=target),
                Cell(f"{above} of {looks}", above / looks, target=target),
                Cell(number(fall, 1), fall, target=target),
            ]
        )
    titles = ["True score, last look", "Models’ estimate", "Difference", "Looks above the truth", "Largest fall"]
    columns = [Column("Dataset", "text"), *map(Column, titles)]
    caption = "Difference: estimate minus true score at the last look, mean ± sample standard deviation over seeds. "
    caption += "Largest fall: of the true score of any seed, from one look to the next."
    return Table("pessimism", "Models’ estimate and true score", columns, rows, caption=caption)


def _both(those: list[Course]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    return [course.true for course in those], [course.promised for course in those]
