"""Datasets in NPZ files: written all or nothing, read without ever running pickled code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.core.files import replacing
from pspo.data.columns import Columns
from pspo.data.d4rl_layout import KNOWN_KEYS, arrays_for_d4rl
from pspo.data.dataset import Dataset
from pspo.data.readers.mapped import mapped_dataset
from pspo.data.readers.npz_members import read_members
from pspo.data.readers.reading import naming, require_file


def save_npz(dataset: Dataset, path: str | Path) -> Path:
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise UserError(f"cannot save a dataset as '{path}': give a path that ends in .npz.")
    with replacing(path) as temporary, open(temporary, "xb") as file:
        np.savez(file, **_members(dataset))
    return path


def load_npz(path: str | Path, columns: Columns | None = None) -> Dataset:
    path = Path(path)
    require_file(path)
    with naming(path), open(path, "rb") as file:
        arrays, others = read_members(file, lambda name: columns is not None or name in KNOWN_KEYS)
        if columns is not None:
            return mapped_dataset(arrays, arrays.__getitem__, columns, path.stem)
        return Dataset.from_arrays({"name": path.stem, **arrays}, others)


def _members(dataset: Dataset) -> dict[str, Any]:
    members: dict[str, Any] = {
        **arrays_for_d4rl(dataset),
        "action_low": dataset.action_low,
        "action_high": dataset.action_high,
        "name": np.array(dataset.name),
    }
    if dataset.task is not None:
        members["task"] = np.array(dataset.task)
    if dataset.notes:
        members["notes"] = np.array(dataset.notes)
    return members
