"""Validate arrays from the user: numeric type, shape, and read-only from then on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.core.masked_arrays import without_mask
from pspo.data.mapped import MappedFile


def frozen_floats(name: str, values: Any, axes: int) -> np.ndarray:
    """A read-only, C-contiguous float32 array with `axes` axes; NaN and infinity pass, `check` reports them."""
    array = _as_numbers(name, values)
    _require_axes(name, array, axes)
    return _frozen(array, np.dtype(np.float32))


def frozen_flags(name: str, values: Any) -> np.ndarray:
    """A read-only bool vector, from booleans or from numbers that are all 0 or 1."""
    array = _as_numbers(name, values)
    _require_axes(name, array, 1)
    if array.dtype.kind != "b":
        bad = (array != 0) & (array != 1)
        if bad.any():
            row = int(bad.argmax())
            raise UserError(f"array '{name}' holds {array[row]!s} at row {row}: give only 0 and 1, or booleans.")
    return _frozen(array, np.dtype(bool))


def require_same_rows(name: str, array: np.ndarray, other_name: str, other: np.ndarray) -> None:
    """Two arrays that describe the same transitions have the same number of rows."""
    if len(array) != len(other):
        raise UserError(
            f"array '{name}' has shape {array.shape} but '{other_name}' has shape {other.shape}: "
            "give every array one row per transition."
        )


def require_same_columns(name: str, array: np.ndarray, other_name: str, other: np.ndarray) -> None:
    """Two arrays that describe the same quantities have the same number of columns."""
    if array.shape[-1] != other.shape[-1]:
        raise UserError(
            f"array '{name}' has shape {array.shape} but '{other_name}' has shape {other.shape}: "
            "give both the same number of columns."
        )


def _as_numbers(name: str, values: Any) -> np.ndarray:
    try:
        array = np.asarray(without_mask(values))
    except ValueError:  # rows of different lengths
        raise UserError(f"array '{name}' is not rectangular: give all its rows the same length.") from None
    if array.dtype.kind not in "biuf":
        raise UserError(f"array '{name}' holds values of type {array.dtype}: give real numbers.")
    return array


def _require_axes(name: str, array: np.ndarray, axes: int) -> None:
    wanted = "one axis, (rows,)" if axes == 1 else "two axes, (rows, columns)"
    if array.ndim != axes:
        raise UserError(f"array '{name}' has shape {array.shape}: give it {wanted}.")
    if array.size == 0:
        raise UserError(f"array '{name}' is empty, its shape is {array.shape}: give at least one row and one column.")


def _frozen(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Copy the array unless nobody else can write into it: then sharing it is safe and free."""
    if array.dtype == dtype and array.flags.c_contiguous and not _someone_can_write(array):
        return array
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which `check` reports as an error
        array = np.array(array, dtype=dtype, order="C")
    array.setflags(write=False)
    return array


def _someone_can_write(array: np.ndarray) -> bool:
    """Whether the array, or an array that it is a view of, is writeable."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return True
        owner = owner.base
    return owner is not None and not isinstance(owner, bytes | MappedFile)


def require_a_name_each(what: str, names: Sequence[str], columns: int) -> None:
    """Columns have a name each, or none has."""
    if names and len(names) != columns:
        raise UserError(f"'{what}' are {len(names)} where there are {columns} columns: name all, or none.")
