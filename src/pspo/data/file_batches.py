"""Batches of transitions that stay in their file: which rows is decided on the device, and those alone go there.

Algorithms see a `DeviceDataset` of columns that have a shape and no numbers. What they pick from them are the indices
of rows, for a whole chunk of iterations; those rows are then read from the file, in its order.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array

from pspo.core.errors import UserError
from pspo.core.memory import memory_limit
from pspo.data.batches import DeviceDataset, Transitions, scaled_rewards, unit_actions
from pspo.data.dataset import Dataset
from pspo.data.mapped import read_rows
from pspo.data.normalise import Normaliser

COPIES = 5  # of the rows of a chunk: in memory and on the device, and of the next ones from the file, in other units


@jax.tree_util.register_static
@dataclass(frozen=True)
class FileColumns:
    """A part of all transitions, in place of an array on the device."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    def __getitem__(self, rows: Array) -> PickedRows:
        return PickedRows(rows, self.name)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["rows"], meta_fields=["name"])
@dataclass(frozen=True)
class PickedRows:
    """Some rows of a part."""

    rows: Array | np.ndarray
    name: str


@dataclass(frozen=True, eq=False)
class FileBatches:
    """The transitions of a dataset in a file."""

    dataset: Dataset
    norm: Normaliser

    @property
    def columns(self) -> Any:
        """What stands for a `DeviceDataset`. It has no returns-to-go, and no early transitions."""
        parts = ((name, getattr(self.dataset, name)) for name in Transitions._fields)
        columns = Transitions(*(FileColumns(name, part.shape, part.dtype) for name, part in parts))  # pyright: ignore[reportArgumentType]
        return DeviceDataset(columns, None, None, None)  # pyright: ignore[reportArgumentType]

    def read(self, drawn: Any) -> tuple[Any, dict[str, np.ndarray]]:
        """The rows that are picked in a tree of batches, by part, and the tree with their indices there.

        Batches are put together on the device (`take_rows`), as they are of a dataset in memory: compiled programs
        then mostly round alike.
        """
        if (file := self.dataset.mapped_file) is not None:
            file.require_unchanged()
        leaves, structure = jax.tree.flatten(drawn, is_leaf=_is_picked)
        self._require_memory(leaf for leaf in leaves if _is_picked(leaf))
        parts: dict[str, np.ndarray] = {}
        for name in Transitions._fields:
            same = [i for i, leaf in enumerate(leaves) if _is_picked(leaf) and leaf.name == name]
            if not same:
                continue
            picked = [np.asarray(leaves[i].rows) for i in same]
            rows = np.concatenate([part.reshape(-1) for part in picked])
            order = np.argsort(rows)
            parts[name] = self._read(name, rows[order])
            index = np.empty(len(rows), np.int32)
            index[order] = np.arange(len(rows), dtype=np.int32)
            ends = np.cumsum([part.size for part in picked])[:-1]
            for i, part, where in zip(same, picked, np.split(index, ends), strict=True):
                leaves[i] = PickedRows(where.reshape(part.shape), name)
        return jax.tree.unflatten(structure, leaves), parts

    def _require_memory(self, picked: Iterable[PickedRows]) -> None:
        size = sum(leaf.rows.size * getattr(self.dataset, leaf.name)[:1].nbytes for leaf in picked)
        if COPIES * size > (limit := memory_limit()):
            raise UserError(
                f"the batches of one chunk of iterations take {size / 2**30:,.1f} GiB, and reading them {COPIES} times "
                f"that, where this process may use {limit / 2**30:,.1f} GiB of memory: lower chunk or batch."
            )

    def _read(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Rows in ascending order, in the units that networks take."""
        numbers = read_rows(getattr(self.dataset, name), rows)
        if name == "action":
            return unit_actions(self.norm, numbers)
        return scaled_rewards(self.norm, numbers) if name == "reward" else numbers


def take_rows(picked: Any, parts: dict[str, Array]) -> Any:
    """A batch, from the indices of its rows."""
    return jax.tree.map(
        lambda leaf: parts[leaf.name][leaf.rows] if _is_picked(leaf) else leaf, picked, is_leaf=_is_picked
    )


def _is_picked(leaf: Any) -> bool:
    return isinstance(leaf, PickedRows)
