"""The dataset of a run, read as the run read it: same columns, same order, same hold-out."""

from __future__ import annotations

from typing import Any, Literal

from pspo.core.errors import UserError
from pspo.core.progress import Progress, silent
from pspo.data.columns import Columns, as_columns
from pspo.data.dataset import Dataset
from pspo.data.load import OF_ACTIONS, is_name, load_dataset
from pspo.runs.directory import Run

Part = Literal["training", "holdout"]


def own_dataset(run: Run, part: Part = "training", source: Any = None, progress: Progress = silent) -> Dataset:
    """What the run was trained on, or what it held out. Data that have changed are refused.

    `source` is needed only where the data came from memory. Without a hold-out both parts are the whole dataset.
    """
    data = other_dataset(run, run.read("config", "dataset")["dataset"] if source is None else source, progress)
    kept = run.holdout
    key = "data_hash" if part == "training" or kept is None else "holdout_hash"
    if kept is not None:
        data = kept.split(data)[0 if part == "training" else 1]
    if data.hash != run.read("manifest", key)[key]:
        if run.finished:
            raise UserError(f"the data of {run.path} have changed since it was trained: restore them, or name others.")
        raise UserError(f"the data of {run.path} have changed since it was started: restore them or train again.")
    return data


def other_dataset(run: Run, source: Any, progress: Progress = silent) -> Dataset:
    """Other data, read with the run's columns and brought into their order by name."""
    config = run.read("config")
    by_name = isinstance(source, Dataset) or (isinstance(source, str) and is_name(source))
    columns = _of_actions(config.get("columns")) if by_name else config.get("columns")
    return run.in_own_order(load_dataset(source, columns, config.get("task"), progress, run.encoder, use_map=False))


def _of_actions(columns: dict[str, Any] | None) -> Columns | None:
    """Where columns are known, only what was said of the actions applies: bounds, kind and masks."""
    given = {name: value for name, value in as_columns(columns).given().items() if name in OF_ACTIONS}
    return as_columns(given) if given else None
