"""Parquet files, read in batches: at most a few thousand rows are in memory twice."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError
from pspo.core.files import parse_json
from pspo.data.columns import Columns
from pspo.data.d4rl_layout import ENCODER, OWN_COLUMNS
from pspo.data.dataset import Dataset
from pspo.data.encode_arrays import FIT, Encoding
from pspo.data.readers.file_checks import naming, require_file, require_room
from pspo.data.readers.number_columns import width_of
from pspo.data.readers.tables import NO_COLUMNS, Table, need_pyarrow, table_dataset

BATCH_ROWS = 1 << 15
METADATA = b"pspo"  # the key of name, task, notes, bounds and encoder, as JSON
MAGIC = b"PAR1"


def load_parquet(path: str | Path, columns: Columns | None = None, encoding: Encoding = FIT) -> Dataset:
    """The dataset of a Parquet file."""
    path, columns = Path(path), columns or Columns()
    table = parquet_table(path, columns)
    with naming(path), _in_one_sentence():
        return table_dataset(table, columns, {"name": path.stem}, encoding)


def parquet_table(
    path: Path, columns: Columns, more: Mapping[str, Any] = NO_COLUMNS, encoding: Encoding = FIT
) -> Table:
    """The table of a Parquet file; nothing but its metadata is read yet."""
    need_pyarrow("reading Parquet files")
    require_file(path)
    with open(path, "rb") as start:
        if start.read(4) != MAGIC:
            raise UserError(f"'{path}' is not a Parquet file: write it with pandas, polars or `pspo data convert`.")
    with naming(path), _in_one_sentence():
        return _table(path)


@contextlib.contextmanager
def _in_one_sentence() -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise UserError(f"the table is truncated or damaged ({reason}): copy or write it again.") from None


def _open(path: Path) -> Any:
    from pyarrow import parquet

    # Buffered: otherwise a row group, which may be the whole file, is read before its first row is decoded.
    return parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False, page_checksum_verification=True)


def _table(path: Path) -> Table:
    with _open(path) as file:
        schema = file.schema_arrow
        labels = read_labels((schema.metadata or {}).get(METADATA))

        rows = file.metadata.num_rows
        if rows != sum(file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)):
            raise UserError("the number of rows contradicts itself, so the table is damaged: copy or write it again.")

        _require_room(file.metadata, path.stat().st_size)

    def batches(names: list[str]) -> Iterator[Any]:
        with _in_one_sentence(), _open(path) as file:
            yield from file.iter_batches(BATCH_ROWS, columns=names, use_threads=False)

    def cells(name: str) -> Iterator[Any]:
        return (cell for batch in batches([name]) for cell in batch.column(name))

    def width(name: str) -> int:
        return width_of(schema.field(name).type, lambda: cells(name))

    def kind(name: str) -> Any:
        return schema.field(name).type

    return Table(schema.names, rows, batches, width, by_column=True, labels=labels, kind=kind)


def _require_room(metadata: Any, stored: int) -> None:
    """A run of equal values takes a few bytes, whatever its length: so count cells, and uncompressed pages.

    Sizes of whole row groups: pyarrow 26 ends the process where it is asked for a column whose statistics are damaged.
    """
    cells = 4 * metadata.num_rows * metadata.num_columns
    pages = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    require_room(max(cells, pages), stored)


def read_labels(text: bytes | None) -> dict[str, Any]:
    """The metadata that `save_parquet` wrote."""
    if text is None:
        return {}
    labels = parse_json(text)
    known = (
        "name",
        "task",
        "notes",
        "reward_name",
        "action_low",
        "action_high",
        "action_labels",
        "action_mask",
        "time_name",
        OWN_COLUMNS,
        ENCODER,
    )
    lists = [] if not isinstance(labels, dict) else [labels.get(key, []) for key in ("notes", OWN_COLUMNS)]
    if not lists or not set(labels) <= set(known) or not all(isinstance(value, list) for value in lists):
        raise UserError("the labels under 'pspo' in the metadata are not what pspo writes: write the file again.")
    return {key: value for key, value in labels.items() if value is not None}
