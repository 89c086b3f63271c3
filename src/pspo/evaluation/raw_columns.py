"""Observations of a dataset as its file has them: offsets added again, categories by name, cycles as times."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pspo.data.dataset import Dataset
from pspo.data.encoder import CYCLES, DAY, MISSING, EncodedColumn

MISSING_WORD, OTHER_WORD = "missing", "other"
UNITS = {"minute_of_hour": (60.0, "minutes"), "hour_of_day": (3600.0, "hours")}  # of a cycle; of longer ones, days


class RawColumn(NamedTuple):
    name: str
    values: np.ndarray  # (rows,) float64, NaN where missing; or texts

    @property
    def is_category(self) -> bool:
        return self.values.dtype.kind != "f"

    def plain(self, row: int) -> Any:
        """One value as JSON holds it; None where it is missing."""
        value = self.values[row].item() if not self.is_category else str(self.values[row])
        return None if value != value else value


def raw_columns(dataset: Dataset, obs: np.ndarray) -> list[RawColumn]:
    """The raw columns of (rows, obs_dim) observations of the dataset."""
    if dataset.encoder is None:
        names = column_names(dataset.obs_names, dataset.obs_dim, "obs")
        return [RawColumn(name, obs[:, i].astype(np.float64)) for i, name in enumerate(names)]
    columns, end = [], 0
    for number, column in enumerate(dataset.encoder.columns):
        start, end = end, end + column.width
        columns += _decoded(column, column.name or f"obs[{number}]", obs[:, start:end].astype(np.float64))
    return columns


def column_names(names: tuple[str, ...], count: int, stem: str) -> list[str]:
    """The names, or numbered ones where the dataset has none."""
    return [*names] or [f"{stem}[{i}]" for i in range(count)]


def _decoded(column: EncodedColumn, name: str, encoded: np.ndarray) -> list[RawColumn]:
    if column.categories:
        words = [text if text != MISSING else MISSING_WORD for text in column.categories]
        index = np.where(encoded.any(axis=1), encoded.argmax(axis=1), len(words))
        return [RawColumn(name, np.array([*words, OTHER_WORD])[index])]
    absent = encoded[:, -1] == 1.0 if column.fill is not None else np.zeros(len(encoded), bool)
    if not column.cyclic:
        shown = name if column.kind == "number" else f"{name} (seconds since 1970)"
        return [RawColumn(shown, np.where(absent, np.nan, encoded[:, 0] + column.offset))]
    parts = []
    for i, cycle in enumerate(column.cyclic):
        turns = np.arctan2(encoded[:, 2 * i], encoded[:, 2 * i + 1]) / (2.0 * np.pi) % 1.0
        seconds, unit = UNITS.get(cycle, (DAY, "days"))
        parts.append(
            RawColumn(f"{name} {cycle} ({unit})", np.where(absent, np.nan, turns * CYCLES[cycle][0] / seconds))
        )
    return parts
