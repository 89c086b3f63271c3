"""The section with the score table: datasets by methods as in the paper, or one dataset in more detail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pspo.report import statistics as stats
from pspo.report.markup import number, with_error
from pspo.report.records import Record, Results
from pspo.report.summary.queries import (
    comparable,
    group_anchor,
    label,
    optimum,
    printed,
    printed_decimals,
    result_values,
    run_anchor,
    usable_scores,
)
from pspo.report.summary.section import EMPTY, Cell, Column, ReportTable, Section, mark_best, measured

SEEDS_SHOWN = 8  # more do not fit; the list of runs has them all
WORDS = "Normalised score of the final policy (random 0, expert 100): mean ± sample standard deviation over seeds."


def scores_section(results: Results) -> Section:
    table = one_dataset(results) if len(results.datasets) == 1 else many_datasets(results)
    return Section("scores", "Scores", tables=[table] if table.rows else [])


def many_datasets(results: Results) -> ReportTable:
    """Rows are datasets and columns methods, as in the paper's first table."""
    decimals = 1
    best = {dataset: optimum(results, dataset) for dataset in results.datasets}
    with_optimum = any(value is not None for value in best.values())
    rows = []
    for dataset in results.datasets:
        cells = [score_cell(results, dataset, method, decimals) for method in results.methods]
        level = best[dataset]
        last = [measured(level, decimals) if level is not None else EMPTY] if with_optimum else []
        rows.append([Cell(dataset), *mark_best(cells, decimals), *last])
    columns = [Column("Dataset", "text"), *(Column(name) for name in results.methods.values())]
    columns += [Column("Optimum")] if with_optimum else []
    foot, note = _average(results, decimals, with_optimum)
    caption = f"{WORDS} {_best_words(results)}{note}".strip()
    papers = any(printed_score(results, d, m) for d in results.datasets for m in results.methods)
    return ReportTable("scores", "Scores", columns, rows, foot, caption, "the paper’s" if papers else "")


def one_dataset(results: Results) -> ReportTable:
    """Rows are methods, with columns for each seed, the worst episodes and the time."""
    (dataset,), decimals = results.datasets, 2
    seeds = sorted({record.seed for record in results.records})
    seeds = seeds if len(seeds) <= SEEDS_SHOWN else []
    cells = [score_cell(results, dataset, method, decimals) for method in results.methods]
    with_paper = any(cell.beside for cell in cells)
    rows = []
    for method, cell in zip(results.methods, mark_best(cells, decimals), strict=True):
        row = [Cell(label(results, method)), replace(cell, beside="")]
        row += [_paper_cell(results, dataset, method)] if with_paper else []
        row += [_seed_cell(results, dataset, method, seed) for seed in seeds]
        rows.append([*row, *_rest(results, dataset, method)])
    titles = ["Score", *(["The paper"] if with_paper else []), *(f"Seed {seed}" for seed in seeds)]
    columns = [Column("Method", "text"), *map(Column, [*titles, "Worst tenth", "Minutes"])]
    level, foot = optimum(results, dataset), []
    if level is not None:
        foot = [[Cell("Optimum"), measured(level, decimals), *[Cell("")] * (len(columns) - 2)]]
    rest = "Worst tenth: mean return of the worst 10 % of episodes, not normalised. Minutes: of one run."
    if level is not None:
        rest += " No policy scores above the optimum on average."
    return ReportTable("scores", f"Scores on {dataset}", columns, rows, foot, f"{WORDS} {_best_words(results)}{rest}")


def score_cell(results: Results, dataset: str, method: str, decimals: int) -> Cell:
    """Mean and standard deviation over seeds, the paper's, and how many seeds are missing."""
    records, scores = results.of(dataset, method), results.scores(dataset, method)
    target, paper = group_anchor(results, dataset, method), printed_score(results, dataset, method)
    if not len(scores):
        finished = any(record.status == "finished" for record in records)
        return Cell("no simulator" if finished else "missing", None, paper, target=target)
    incomplete = f"{len(scores)} of {len(records)} seeds" if len(scores) < len(records) else ""
    if not np.isfinite(scores).all():
        return Cell(number(float("nan")), None, paper, incomplete, target=target)
    mean, std = stats.mean_and_std(scores)
    return Cell(with_error(mean, std, decimals), mean, paper, incomplete, target=target)


def printed_score(results: Results, dataset: str, method: str) -> str:
    """The paper's mean ± standard deviation; empty where it has none."""
    mean, std = _pair(printed(results, dataset, method))
    return "" if mean is None else with_error(mean, std, printed_decimals(mean, std))


def _pair(value: Any) -> tuple[float | None, float | None]:
    values = value if isinstance(value, list | tuple) else [value]
    mean, std = (*values, None, None)[:2]
    return (mean, std) if isinstance(mean, int | float) else (None, None)


def _paper_cell(results: Results, dataset: str, method: str) -> Cell:
    mean, _ = _pair(printed(results, dataset, method))
    return EMPTY if mean is None else Cell(printed_score(results, dataset, method), mean)


def _seed_cell(results: Results, dataset: str, method: str, seed: int) -> Cell:
    """One run; where there are several of the same seed, the first and how many there are."""
    wanted = (dataset, method, seed)
    matching = [(i, r) for i, r in enumerate(results.records) if (r.dataset, r.method, r.seed) == wanted]
    if not matching:
        return EMPTY
    scored = [(i, r.score) for i, r in matching if r.status == "finished" and r.score is not None]
    index, score = scored[0] if scored else (matching[0][0], None)
    more = f"first of {len(matching)}" if len(matching) > 1 else ""
    if score is None:
        return Cell(_why_none(matching[0][1]), incomplete=more, target=run_anchor(index))
    return replace(measured(score, 2, target=run_anchor(index)), incomplete=more)


def _why_none(record: Record) -> str:
    return "no simulator" if record.status == "finished" else record.status


def _rest(results: Results, dataset: str, method: str) -> list[Cell]:
    records, target = results.of(dataset, method), group_anchor(results, dataset, method)
    worst, seconds = result_values(records, "cvar10"), result_values(records, "seconds")
    return [
        measured(float(np.mean(worst)), 2, target=target) if worst else EMPTY,
        measured(float(np.mean(seconds)) / 60, 1, target=target) if seconds else EMPTY,
    ]


def _average(results: Results, decimals: int, with_optimum: bool) -> tuple[list[list[Cell]], str]:
    """The last row, over the datasets that all methods have, and a sentence on those left out."""
    methods, shared = comparable(results)
    if len(shared) < 2:
        return [], ("There is no average: no two datasets have a score for every method." if methods else "")
    cells = []
    for method in results.methods:
        if method not in methods:
            cells.append(Cell("missing"))
            continue
        value = stats.average([usable_scores(results, dataset, method) for dataset in shared])
        paper = [_pair(printed(results, dataset, method))[0] for dataset in shared]
        known = [mean for mean in paper if mean is not None]
        beside = number(float(np.mean(known)), 1) if len(known) == len(shared) else ""
        cells.append(measured(value, decimals, beside, target="section-runs"))
    name = "Average" if len(shared) == len(results.datasets) else f"Average of {len(shared)}"
    row = [Cell(name), *mark_best(cells, decimals), *([Cell("")] if with_optimum else [])]
    left_out = [dataset for dataset in results.datasets if dataset not in shared]
    note = f"The average leaves out datasets that some method lacks: {', '.join(left_out)}." if left_out else ""
    return [row], note


def _best_words(results: Results) -> str:
    return "Bold: the best. " if len(results.methods) > 1 else ""
