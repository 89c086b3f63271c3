"""Data frames in memory - pandas, polars, Arrow - through Arrow, so that none of these libraries is required."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pspo.core.errors import UserError
from pspo.data.columns import Columns
from pspo.data.dataset import Dataset
from pspo.data.encode_arrays import FIT, Encoding
from pspo.data.readers.number_columns import width_of
from pspo.data.readers.tables import Table, need_pyarrow, table_dataset

FRAME_METHODS = ("__arrow_c_stream__", "to_arrow", "__dataframe__")


def is_frame(source: Any) -> bool:
    """Whether this is a data frame of some library."""
    return not isinstance(source, type) and any(hasattr(source, method) for method in FRAME_METHODS)


def frame_dataset(frame: Any, columns: Columns, encoding: Encoding = FIT) -> Dataset:
    """The dataset of a data frame."""
    return table_dataset(frame_table(frame), columns, {"name": "dataset"}, encoding)


def frame_table(frame: Any) -> Table:
    """A data frame of any library as a table."""
    table = as_arrow(frame)

    def batches(names: list[str]) -> Iterator[Any]:
        return iter(table.select(names).to_batches())

    def width(name: str) -> int:
        return width_of(table.schema.field(name).type, lambda: table.column(name))

    def kind(name: str) -> Any:
        return table.schema.field(name).type

    return Table(table.column_names, table.num_rows, batches, width, kind=kind)


def as_arrow(frame: Any) -> Any:
    """A data frame of any library as an Arrow table."""
    pa = need_pyarrow("reading a data frame")
    try:
        return _converted(frame, pa)
    except (pa.ArrowException, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise UserError(f"the {type(frame).__name__} cannot be read as a table ({reason}): give numbers.") from None


def _converted(frame: Any, pa: Any) -> Any:
    if isinstance(frame, pa.Table):
        return frame
    if hasattr(frame, "__arrow_c_stream__"):
        return pa.table(frame)
    if hasattr(frame, "to_arrow"):
        table = frame.to_arrow()
        return table if isinstance(table, pa.Table) else pa.table(table)
    from pyarrow.interchange import from_dataframe

    return from_dataframe(frame)
