"""Raw values as an encoder takes them: numbers and times as float64, categories as texts. NumPy only.

Times are seconds since 1970 in UTC, or of the data's own clock where they name no time zone.
"""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.core.masked_arrays import without_mask
from pspo.data.encoder import MISSING, EncodedColumn

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def raw_values(column: EncodedColumn, values: Any, name: str) -> np.ndarray:
    """The values of one raw column, of any shape, as its encoder takes them."""
    values = without_mask(values)
    if column.categories:
        return _texts(values)
    return as_seconds(name, values, column.zone) if column.kind == "time" else as_numbers(name, values)


def as_numbers(name: str, values: Any) -> np.ndarray:
    """Float64; None and the like become NaN."""
    try:
        array = np.asarray(without_mask(values))
        if array.dtype.kind == "O":
            array = np.vectorize(_number, otypes=[np.float64])(array)
        if array.dtype.kind not in "biuf":
            array = None
    except (TypeError, ValueError):
        array = None
    if array is None:
        raise UserError(f"'{name}' holds {' '.join(str(values).split())[:40]!r}, which is not a number: give numbers.")
    return array.astype(np.float64)


def _number(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError
    return np.nan if is_missing(value) else float(value)


def is_missing(value: Any) -> bool:
    """None, NaN, and pandas' NA and NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating | np.datetime64) and value != value


def category_text(value: Any) -> str:
    """The text of a category: whole numbers without a point, without spaces around; empty where it is missing."""
    if isinstance(value, str):
        return value.strip()
    if is_missing(value):
        return MISSING
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def _texts(values: Any) -> np.ndarray:
    array = np.asarray(values) if not isinstance(values, str) else np.asarray(values, dtype=object)
    if array.dtype.kind == "U" and array.ndim and not isinstance(values, np.ndarray):
        array = np.asarray(values, dtype=object)  # a list of texts and numbers: NumPy would make all of them texts
    return np.vectorize(category_text, otypes=[object])(array) if array.size else array.astype(object)


def as_seconds(name: str, values: Any, zone: bool | None) -> np.ndarray:
    """Seconds since 1970: from dates, times, ISO texts, or numbers, which are seconds already.

    `zone`: whether the times of the dataset name a time zone. Others are refused: their hours would be different ones.
    """
    array = np.asarray(values)
    if array.dtype.kind == "M":
        if array.size and not np.isnat(array).all():
            _require_zone(name, array.reshape(-1)[0], _names_zone(values), zone)
        return _seconds_of_datetime64(array)
    if array.dtype.kind in "OUS":
        try:
            return np.vectorize(lambda value: _seconds(name, value, zone), otypes=[np.float64])(array.astype(object))
        except (TypeError, ValueError, AttributeError, OverflowError):
            problem = f"'{name}' holds {str(values)[:40]!r}, which is not a time: give dates, ISO texts or seconds."
            raise UserError(problem) from None
    return as_numbers(name, array)


def _names_zone(values: Any) -> bool:
    """Whether the type of a column names a time zone, which NumPy's own types cannot: in Arrow, pandas and polars."""
    kind = getattr(values, "type", None) or getattr(values, "dtype", None)
    return getattr(kind, "tz", None) is not None or getattr(kind, "time_zone", None) is not None


def _require_zone(name: str, value: Any, has_zone: bool, zone: bool | None) -> None:
    if zone is None:
        return  # a run of an earlier version, which did not note it
    if has_zone and not zone:
        raise UserError(
            f"'{name}' holds {value}, with a time zone, and the data had none: give the time on their clock."
        )
    if zone and not has_zone:
        raise UserError(
            f"'{name}' holds {value}, without a time zone, and the data had one: add it, such as +00:00, or give "
            "seconds since 1970."
        )


def _seconds_of_datetime64(array: np.ndarray) -> np.ndarray:
    fine = array.astype("datetime64[us]")
    return np.where(np.isnat(fine), np.nan, fine.astype(np.int64) / 1e6)


def _seconds(name: str, value: Any, zone: bool | None) -> float:
    if is_missing(value) or value == "":
        return np.nan
    if isinstance(value, int | float | np.number):
        return float(value)
    if isinstance(value, np.datetime64):
        _require_zone(name, value, False, zone)
        return float(_seconds_of_datetime64(np.asarray(value)))
    if isinstance(value, str):
        value = datetime.datetime.fromisoformat(value.strip())
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    _require_zone(name, value, value.tzinfo is not None, zone)
    if value.tzinfo is None:
        value = value.replace(tzinfo=datetime.UTC)
    return (value - EPOCH).total_seconds()
