"""Questions that sections ask of the results: labels, scores, printed numbers, anchors of runs on the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.envs.task import Task, get_task
from pspo.report.records import Record, Results


def run_anchor(index: int) -> str:
    """Anchor of a record, by its index."""
    return f"run-{index}"


def group_anchor(results: Results, dataset: str, method: str) -> str:
    """Anchor of all seeds of a method on a dataset; empty where there are none."""
    if not results.of(dataset, method):
        return ""
    return f"runs-{results.datasets.index(dataset)}-{list(results.methods).index(method)}"


def label(results: Results, method: str) -> str:
    """The name of a method in tables and figures."""
    return results.methods.get(method, method)


def main_method(results: Results) -> str:
    """The method that single-method figures show."""
    return results.first or ("pspo" if "pspo" in results.methods else next(iter(results.methods), ""))


def task_of(results: Results, dataset: str) -> Task | None:
    """The task of a dataset; None where no run names one that this version knows."""
    names = [record.result.get("task") for record in results.records if record.dataset == dataset]
    for name in filter(None, names):
        try:
            return get_task(name)
        except UserError:
            return None
    return None


def optimum(results: Results, dataset: str) -> float | None:
    """The best possible score, where it is known."""
    task = task_of(results, dataset)
    return task.optimal_score if task else None


def usable_scores(results: Results, dataset: str, method: str) -> np.ndarray:
    """Scores of all seeds; empty if one of them is not finite."""
    scores = results.scores(dataset, method)
    return scores if np.isfinite(scores).all() else scores[:0]


def comparable(results: Results) -> tuple[list[str], list[str]]:
    """Methods with any score, and the datasets on which all of these have one."""
    has = {(d, m): len(usable_scores(results, d, m)) > 0 for d in results.datasets for m in results.methods}
    methods = [m for m in results.methods if any(has[d, m] for d in results.datasets)]
    return methods, [d for d in results.datasets if methods and all(has[d, m] for m in methods)]


def result_values(records: list[Record], name: str) -> list[float]:
    """One number of the result, for all finished runs that have it."""
    values = [record.result.get(name) for record in records if record.status == "finished"]
    return [float(value) for value in values if isinstance(value, int | float)]


def printed(results: Results, *path: str) -> Any:
    """What the paper prints under these keys; None where it prints nothing."""
    value: Any = results.published
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def printed_decimals(*values: float | None) -> int:
    """As many as the paper prints, at least one."""
    return max((len(str(float(v)).partition(".")[2]) for v in values if v is not None), default=1)
