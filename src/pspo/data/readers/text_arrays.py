"""Arrays in memory of which some hold texts or dates: they are encoded as the columns of a table are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from pspo.core.column_names import listed
from pspo.core.errors import UserError
from pspo.data.columns import Columns, choose
from pspo.data.dataset import Dataset
from pspo.data.encode_arrays import Encoding
from pspo.data.raw_values import is_missing
from pspo.data.readers.frames import frame_table
from pspo.data.readers.named_arrays import fixed_names
from pspo.data.readers.tables import D4RL_NAMES, need_pyarrow, table_dataset

STATES = ("obs", "next_obs")
KEPT = ("name", "task", "notes", "action_low", "action_high", "action_labels", "action_mask")


def state_has_texts(arrays: Mapping[str, Any], columns: Columns | None) -> bool:
    """Whether a column of the state needs an encoder of a table. Without `columns`, arrays have D4RL's names."""
    if columns is None:
        members = [name for role in STATES if (name := D4RL_NAMES[role]) in arrays]
    else:
        chosen = choose([name for name in map(str, arrays) if name not in fixed_names(columns)], columns)
        members = [name for role in STATES for name in chosen.get(role, ())]
    return any(_holds_texts(_as_array(name, arrays[name])) for name in members)


def dataset_from_text_arrays(arrays: Mapping[str, Any], columns: Columns, encoding: Encoding) -> Dataset:
    """The dataset of such arrays: one axis is a column, two axes are several."""
    pa = need_pyarrow("reading arrays with texts")
    if "next_known" in arrays:
        raise UserError("'next_known' cannot be given where the state has texts: leave the cells of next states empty.")
    parts = {name: _as_array(name, array) for name, array in arrays.items() if name not in fixed_names(columns)}
    _require_same_rows(parts)
    names = [str(name) for name in np.ravel(arrays.get("obs_names", ()))]
    table: dict[str, Any] = {}
    for name, array in parts.items():
        if array.ndim == 1:
            table[name] = _column(name, array)
        elif not _holds_texts(array):
            table[name] = pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.shape[1])
        else:
            columns = _with_several(table, name, array, names, columns)
    labels = {"name": "dataset"} | {key: arrays[key] for key in KEPT if arrays.get(key) is not None}
    return table_dataset(frame_table(pa.table(table)), columns, labels, encoding)


def _with_several(table: dict[str, Any], name: str, array: np.ndarray, names: list[str], columns: Columns) -> Columns:
    """Add the columns of an array of objects with two axes to the table; they have the role of the array."""
    role = next((role for role in STATES if name in (D4RL_NAMES[role], *getattr(columns, role))), None)
    if role is None or (names and len(names) != array.shape[1]):
        raise UserError(f"array '{name}' holds several columns with texts: give an array for each, by name.")
    own = names or [f"observations_{index}" for index in range(array.shape[1])]
    called = own if role == "obs" else [f"next_{part}" for part in own]
    table |= {part: _column(part, array[:, index]) for index, part in enumerate(called)}
    return dataclasses.replace(columns, **{role: tuple(called)})


def _column(name: str, array: np.ndarray) -> Any:
    import pyarrow as pa

    if array.dtype.kind == "M":
        return pa.array(array.astype("datetime64[us]"))  # Arrow has fewer units
    if array.dtype.kind != "O":
        return pa.array(array)
    values = array.tolist()
    if any(isinstance(value, str) for value in values):
        values = [None if is_missing(value) else value for value in values]
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:120].rstrip(".")
        raise UserError(f"array '{name}' cannot be read as a column ({reason}): give it one type.") from None


def _as_array(name: str, values: Any) -> np.ndarray:
    try:
        array = np.asarray(values)
        if array.dtype.kind in "US" and not isinstance(values, np.ndarray):
            array = np.asarray(values, dtype=object)  # NumPy makes all of a list texts if one is
    except ValueError:
        raise UserError(f"array '{name}' is not rectangular: give all its rows the same length.") from None
    return array


def _holds_texts(array: np.ndarray) -> bool:
    """One array of texts with two axes is refused: numbers in it would have become texts."""
    return array.dtype.kind in "OM" or (array.dtype.kind == "U" and array.ndim == 1)


def _require_same_rows(parts: Mapping[str, np.ndarray]) -> None:
    rows = {name: len(array) if array.ndim in (1, 2) else 0 for name, array in parts.items()}
    if len(set(rows.values())) > 1 or not all(rows.values()):
        counts = ", ".join(f"{name}: {count}" for name, count in rows.items())
        raise UserError(f"arrays {listed(parts)} do not have the same rows ({counts}): give one row per transition.")
