"""Which runs stand behind a number, what they have in common, and where on the page they are listed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.envs.task import Task, get_task
from pspo.report.records import Record, Results


def run_place(index: int) -> str:
    """Of a record, by its place among the records."""
    return f"run-{index}"


def group_place(results: Results, dataset: str, method: str) -> str:
    """Of all seeds of a method on a dataset; empty where there are none."""
    if not results.of(dataset, method):
        return ""
    return f"runs-{results.datasets.index(dataset)}-{list(results.methods).index(method)}"


def label(results: Results, method: str) -> str:
    return results.methods.get(method, method)


def main_method(results: Results) -> str:
    """The one that figures are drawn of."""
    return results.first or ("pspo" if "pspo" in results.methods else next(iter(results.methods), ""))


def task_of(results: Results, dataset: str) -> Task | None:
    """Of the runs on a dataset; None where none names one that this version knows."""
    names = [record.result.get("task") for record in results.records if record.dataset == dataset]
    for name in filter(None, names):
        try:
            return get_task(name)
        except UserError:
            return None
    return None


def optimum(results: Results, dataset: str) -> float | None:
    task = task_of(results, dataset)
    return task.optimal_score if task else None


def usable_scores(results: Results, dataset: str, method: str) -> np.ndarray:
    """None at all where one of them is not finite: nothing sound could be said of the rest."""
    scores = results.scores(dataset, method)
    return scores if np.isfinite(scores).all() else scores[:0]


def comparable(results: Results) -> tuple[list[str], list[str]]:
    """The methods that have any score, and the datasets on which all of these have one."""
    has = {(d, m): len(usable_scores(results, d, m)) > 0 for d in results.datasets for m in results.methods}
    methods = [m for m in results.methods if any(has[d, m] for d in results.datasets)]
    return methods, [d for d in results.datasets if methods and all(has[d, m] for m in methods)]


def of_runs(records: list[Record], name: str) -> list[float]:
    """A number of the result, of all runs that have it."""
    found = [record.result.get(name) for record in records if record.status == "finished"]
    return [float(value) for value in found if isinstance(value, int | float)]


def printed(results: Results, *path: str) -> Any:
    """What the paper prints at a place; None where it prints nothing."""
    found: Any = results.published
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def printed_decimals(*values: float | None) -> int:
    """As many as the paper has, and at least one."""
    return max((len(str(float(v)).partition(".")[2]) for v in values if v is not None), default=1)
