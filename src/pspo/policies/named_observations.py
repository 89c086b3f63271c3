"""Observations by name (dictionaries, data frames, Arrow tables) as an array with the columns in the policy's order.

Data frames are recognised by their methods, so that neither pandas nor pyarrow is needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pspo.core.column_names import positions
from pspo.core.errors import UserError
from pspo.core.masked_arrays import without_mask
from pspo.data.discrete import shown
from pspo.data.encoder import EncodedColumn, Encoder
from pspo.data.raw_values import as_numbers, raw_values

NO_NAMES = (
    "this policy has no names for its columns, as its dataset had none: give an array, with the columns in the order "
    "of the dataset."
)
MANY = 6  # columns: of more, only the first are shown


def in_order(obs: Any, names: Sequence[str], what: str = "the observation") -> Any:
    """An array whose last axis has the columns in the order of `names`; what has no names is returned unchanged."""
    if isinstance(obs, np.ndarray) and obs.dtype.names is None:
        return obs  # by far the most frequent, and the fastest
    columns = _columns(obs)
    if columns is None:
        return obs
    if not names:
        raise UserError(NO_NAMES)
    given = [*columns]
    order = positions(given, [*names], what)
    return np.stack(_same_shapes([as_numbers(given[i], columns[given[i]]) for i in order], names), axis=-1)


def plain_observations(obs: Any, names: Sequence[str], columns: int) -> np.ndarray:
    """(..., columns) float32, where every column is a number."""
    array = np.asarray(obs := without_mask(in_order(obs, names)))
    if array.dtype.kind not in "biuf":
        array = as_numbers("observation", obs)
    if array.ndim == 0 or array.shape[-1] != columns:
        raise UserError(f"an observation has {columns} numbers, not shape {array.shape}.")
    return array.astype(np.float32, copy=False)


def raw_columns(obs: Any, encoder: Encoder, what: str = "the observation") -> list[np.ndarray]:
    """One array for each raw column of an encoder, as it takes them: from names, or from arrays in its order."""
    columns = None if isinstance(obs, np.ndarray) and obs.dtype.names is None else _columns(obs)
    names = encoder.raw_names or [f"column {i}" for i in range(len(encoder.columns))]
    if columns is not None and encoder.raw_names:
        given = [*columns]
        parts = [columns[given[index]] for index in positions(given, [*names], what)]
    elif columns is not None:
        raise UserError(NO_NAMES)
    else:
        obs = without_mask(obs)
        array = np.asarray(obs, dtype=object if encoder.takes_texts and not isinstance(obs, np.ndarray) else None)
        if array.ndim == 0 or array.shape[-1] != len(names):
            raise UserError(f"an observation has {len(names)} values, not shape {array.shape}.")
        parts = [array[..., i] for i in range(len(names))]
    values = [raw_values(c, part, n) for c, part, n in zip(encoder.columns, parts, names, strict=True)]
    for column, array in zip(encoder.columns, values, strict=True):
        _warn_of_unseen(column, array)
    return _same_shapes(values, names)


def _warn_of_unseen(column: EncodedColumn, texts: np.ndarray) -> None:
    """Python shows a warning once for each text."""
    for text in set(texts.ravel().tolist()) - set(column.categories) if column.categories else ():
        warnings.warn(f"'{column.name}' holds {text!r}, which is none of the policy's categories.", stacklevel=4)


def _same_shapes(arrays: list[np.ndarray], names: Sequence[str]) -> list[np.ndarray]:
    for name, array in zip(names, arrays, strict=True):
        if array.shape != arrays[0].shape:
            raise UserError(
                f"'{names[0]}' has shape {arrays[0].shape} and '{name}' has shape {array.shape}: "
                "give the same number of values for every column."
            )
    return arrays


def _columns(obs: Any) -> Mapping[str, Any] | None:
    """The columns by name; None for what has no names, such as a list of numbers."""
    if isinstance(obs, Mapping):
        return obs
    if isinstance(obs, list | tuple) and any(isinstance(row, Mapping) for row in obs):
        return _of_rows(obs)
    if isinstance(obs, np.ndarray):
        return {name: obs[name] for name in obs.dtype.names or ()}
    return _of_frame(obs)


def _of_frame(obs: Any) -> Mapping[str, Any] | None:
    """A data frame, or one row of a pandas frame."""
    names = _frame_names(obs)
    if names is not None:
        _require_once(names)
        return {name: obs[name] for name in names}
    if hasattr(obs, "to_dict") and any(isinstance(label, str) for label in getattr(obs, "index", ())):
        _require_once([*obs.index])
        return obs.to_dict()
    return None


def _frame_names(obs: Any) -> list[str] | None:
    """Of a pandas, polars or Arrow table; None where the columns are only numbered."""
    names = getattr(obs, "column_names", None)  # Arrow, whose `columns` are the values
    if names is None:
        names = getattr(obs, "columns", None)
    if names is None and hasattr(obs, "__dataframe__"):
        raise UserError(f"a {type(obs).__name__} has no list of columns: give a dictionary of arrays.")
    if names is None or not any(isinstance(name, str) for name in names):
        return None
    return [*names]


def _require_once(names: Sequence[str]) -> None:
    positions(names, [*dict.fromkeys(names)], "the observation")


def _of_rows(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """One dictionary per state; all must have the same names."""
    first = rows[0] if isinstance(rows[0], Mapping) else {}
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise UserError(f"state {number} of the list is a {type(row).__name__}: give a dictionary for every state.")
        if row.keys() != first.keys():
            positions([*row], [*first], f"state {number} of the list")
    return {name: [row[name] for row in rows] for name in first}


def require_names(role: str, names: Sequence[Any], columns: int) -> None:
    """None, or a different text for every column; raises ValueError, as a file may hold anything."""
    if names and (len(names) != columns or not all(isinstance(name, str) for name in names)):
        raise ValueError(f"its {role} has {columns} columns, and their names are {str(names)[:80]}")
    if len(set(names)) < len(names):
        raise ValueError(f"its {role} has two columns of one name")


def describe(kind: str, policy: Any) -> str:
    """One line for people: columns in, columns out, bounds, and what it was trained on."""
    columns = _counted(policy.observation_names, policy.raw_dim, "observation column")
    origin = " on ".join(str(policy.metadata[key]) for key in ("algo", "dataset") if policy.metadata.get(key))
    return " ".join(f"{kind}({columns} -> {_actions(policy)}; {origin or 'unknown'})".split())


def _actions(policy: Any) -> str:
    if policy.action_labels:
        return f"{_counted(policy.action_names, 1, 'action column')} with the labels {shown(policy.action_labels)}"
    low, high = policy.action_bounds
    bounds = ", ".join(f"{a:g} to {b:g}" for a, b in zip(low[:MANY], high[:MANY], strict=True))
    more = ", ..." if len(low) > MANY else ""
    return f"{_counted(policy.action_names, policy.action_dim, 'action column')} from {bounds}{more}"


def _counted(names: Sequence[str], count: int, what: str) -> str:
    shown = f" ({', '.join(names[:MANY])}{', ...' if count > MANY else ''})" if names else ""
    return f"{count} {what}{'' if count == 1 else 's'}{shown}"
