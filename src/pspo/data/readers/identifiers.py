"""Columns that are not numbers of the state: which episode a row belongs to, and its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.data.time_order import Times

Where = Callable[[int], str]


def episodes_from_arrow(columns: Mapping[str, Sequence[Any]], where: Where) -> tuple[np.ndarray, Any]:
    """The episode number of each row, and the label of each number, from the chunks of one or several columns."""
    coded = [_coded(name, chunks, where) for name, chunks in columns.items()]
    return _combined([numbers for numbers, _ in coded], [labels for _, labels in coded])


def episodes_from_arrays(arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, Any]:
    """The same for arrays with one axis."""
    coded = [np.unique(array, return_inverse=True) for array in arrays.values()]
    return _combined([numbers for _, numbers in coded], [labels for labels, _ in coded])


def _combined(numbers: list[np.ndarray], labels: list[Any]) -> tuple[np.ndarray, Any]:
    if len(numbers) == 1:
        return numbers[0], labels[0]
    pairs, combined = np.unique(np.stack(numbers, axis=1), axis=0, return_inverse=True)
    texts = [", ".join(str(labels[i][code]) for i, code in enumerate(pair)) for pair in pairs]
    return combined.reshape(-1), texts


def _coded(name: str, chunks: Sequence[Any], where: Where) -> tuple[np.ndarray, Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        names = pa.chunked_array(_of_one_type(chunks, pa.string())).combine_chunks()
        if pa.types.is_string(names.type):
            names = pc.call_function("utf8_trim_whitespace", [names])
        coded = names.dictionary_encode()
    except pa.ArrowException:
        raise UserError(f"column '{name}' cannot number episodes: give numbers or texts.") from None
    if coded.null_count:
        row = int(coded.is_null().to_numpy(zero_copy_only=False).argmax())
        raise UserError(f"column '{name}' is empty at {where(row)}: give every row its episode.")
    return coded.indices.to_numpy(), coded.dictionary


def _of_one_type(chunks: Sequence[Any], common: Any) -> Sequence[Any]:
    """Chunks of several files may differ in type, such as int32 and int64: then all become `common`."""
    if len({chunk.type for chunk in chunks}) == 1:
        return chunks
    return [chunk.cast(common) for chunk in chunks]


def times_from_arrow(name: str, chunks: Sequence[Any], where: Where) -> Times:
    """The time of each row: dates, timestamps, texts in ISO 8601, or numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        temporal = all(pa.types.is_temporal(chunk.type) for chunk in chunks)
        column = _of_one_type(chunks, pa.timestamp("us") if temporal else pa.float64())
        column = pa.chunked_array(column).combine_chunks()
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = pc.cast(pc.call_function("utf8_trim_whitespace", [column]), pa.timestamp("us"))
    except pa.ArrowException:
        raise UserError(_no_time(name, f", such as {str(chunks[0][0])[:40]!r} at {where(0)}")) from None
    kind = column.type
    if column.null_count:
        row = int(column.is_null().to_numpy(zero_copy_only=False).argmax())
        raise UserError(f"column '{name}' is empty at {where(row)}: give every row its time.")
    if pa.types.is_timestamp(kind):
        return Times(name, pc.cast(column, pa.int64()).to_numpy(), kind.unit)
    if pa.types.is_date32(kind):
        return Times(name, pc.cast(pc.cast(column, pa.int32()), pa.int64()).to_numpy(), "D")
    if pa.types.is_date64(kind):
        return Times(name, pc.cast(column, pa.int64()).to_numpy(), "ms")
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise UserError(_no_time(name, f" but values of type {kind}"))
    whole = pa.types.is_integer(kind) and kind != pa.uint64()
    return _plain(name, pc.cast(column, pa.int64() if whole else pa.float64()).to_numpy(), where)


def times_from_array(name: str, array: np.ndarray, where: Where) -> Times:
    """The same for an array with one axis: numbers, datetime64 or texts in ISO 8601."""
    if array.dtype.kind in "SU":
        try:
            array = array.astype(str).astype("datetime64[us]")
        except ValueError:
            raise UserError(_no_time(name, f", such as {str(array[0])[:40]!r} at {where(0)}")) from None
    if array.dtype.kind == "M":
        lost = np.isnat(array)
        if lost.any():
            raise UserError(f"array '{name}' holds no time at {where(int(lost.argmax()))}: give every row its time.")
        return Times(name, array.astype("datetime64[us]").astype(np.int64), "us")
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise UserError(_no_time(name, f" but has the type {array.dtype} and the shape {array.shape}"))
    return _plain(name, array.astype(np.int64 if array.dtype.kind == "i" else np.float64), where)


def _plain(name: str, values: np.ndarray, where: Where) -> Times:
    bad = ~np.isfinite(values)
    if bad.any():
        row = int(bad.argmax())
        raise UserError(f"column '{name}' is {values[row]} at {where(row)}: give every row its time.")
    return Times(name, values)


def _no_time(name: str, why: str) -> str:
    return f"column '{name}' holds no time{why}: give numbers, or dates and times such as 2024-05-31 14:30:00."
