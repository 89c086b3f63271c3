"""One Arrow column as numbers: plain or list-valued, of any numeric type, with missing cells marked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pspo.core.errors import UserError


class Numbers(NamedTuple):
    values: np.ndarray  # (n, width), NaN where missing
    empty: np.ndarray  # (n,) bool: the whole cell is missing, which is not the same as a NaN


def width_of(kind: Any, some_cells: Callable[[], Any]) -> int:
    """Numbers per cell of a column of this type: 1, or the length of the first list among some cells."""
    import pyarrow as pa

    if pa.types.is_fixed_size_list(kind):
        return kind.list_size
    return next((len(cell) for cell in some_cells() if cell.is_valid), 1) if _is_list(kind) else 1


def numbers_of(name: str, column: Any, width: int, first_row: int, kind: Any = np.float32) -> Numbers:
    """The numbers of a column; `first_row` is its first row in the whole table, for messages."""
    import pyarrow.compute as pc

    empty = column.is_null().to_numpy(zero_copy_only=False)
    if not _is_list(column.type):
        return Numbers(_floats(name, column, first_row, kind)[:, None], empty)
    if not width:
        raise UserError(f"column '{name}' holds empty lists: give numbers, or leave it out.")
    lengths = pc.call_function("list_value_length", [column]).fill_null(width).to_numpy(zero_copy_only=False)
    if (lengths != width).any():
        row = int((lengths != width).argmax())
        raise UserError(
            f"column '{name}' has {lengths[row]} numbers at row {first_row + row} and {width} in the first row: "
            "give lists of one length."
        )
    flat = _floats(name, column.flatten(), first_row, kind).reshape(-1, width)
    if not empty.any():
        return Numbers(flat, empty)
    values = np.full((len(column), width), np.nan, kind)
    values[~empty] = flat
    return Numbers(values, empty)


def flags_of(name: str, column: Any, first_row: int) -> np.ndarray:
    values = numbers_of(name, column, 1, first_row).values[:, 0]
    bad = (values != 0) & (values != 1)
    if bad.any():
        row = int(bad.argmax())
        value = "nothing" if np.isnan(values[row]) else f"{values[row]!s}"
        raise UserError(f"column '{name}' holds {value} at row {first_row + row}: give only 0 and 1, or booleans.")
    return values == 1


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _floats(name: str, column: Any, first_row: int, as_type: Any) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_boolean(kind):
        column = pc.cast(column, pa.uint8())
    elif pa.types.is_decimal(kind):
        column = pc.cast(column, pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
        shown = column.drop_null()[:1].to_pylist() if not _is_list(kind) else []
        example = f", such as {str(shown[0])[:40]!r} at row {first_row}" if shown else ""
        raise UserError(f"column '{name}' holds values of type {kind}{example}: give real numbers.")
    # Too large for float32 becomes infinite, which `check` reports as an error.
    return pc.cast(column, pa.from_numpy_dtype(as_type), safe=False).to_numpy(zero_copy_only=False)
