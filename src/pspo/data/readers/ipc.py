"""Arrow's own files (.arrow, .feather), mapped into memory; and Arrow datasets, read by their scanner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError
from pspo.data.columns import Columns
from pspo.data.encode_arrays import FIT, Encoding
from pspo.data.readers.file_checks import naming, require_file
from pspo.data.readers.number_columns import width_of
from pspo.data.readers.tables import NO_COLUMNS, Table, need_pyarrow

BATCH_ROWS = 1 << 15


def ipc_table(path: Path, columns: Columns, more: Mapping[str, Any] = NO_COLUMNS, encoding: Encoding = FIT) -> Table:
    """The table in an Arrow file; nothing but its structure is read yet."""
    pa = need_pyarrow("reading Arrow files")
    require_file(path)

    def opened() -> Any:
        return pa.ipc.open_file(pa.memory_map(str(path)))

    def batches(names: list[str]) -> Iterator[Any]:
        reader = opened()
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number).select(names)

    with naming(path):
        try:
            reader = opened()
            rows = sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))
        except (pa.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())[:160].rstrip(".")
            raise UserError(f"the file is no Arrow file, or is damaged ({reason}): write it again.") from None
    return _table(reader.schema, rows, batches)


def is_arrow_dataset(source: Any) -> bool:
    """Whether this is a pyarrow.dataset.Dataset."""
    return type(source).__module__.startswith("pyarrow") and hasattr(source, "scanner")


def arrow_dataset_table(source: Any) -> Table:
    """The table of a pyarrow.dataset.Dataset."""

    def batches(names: list[str]) -> Iterator[Any]:
        # Few batches ahead, and no threads: memory stays bounded, and rows stay in their order.
        yield from source.scanner(
            columns=names, batch_size=BATCH_ROWS, batch_readahead=1, fragment_readahead=1, use_threads=False
        ).to_batches()

    return _table(source.schema, source.count_rows(), batches, by_column=True)


def _table(schema: Any, rows: int, batches: Any, by_column: bool = False) -> Table:
    def width(name: str) -> int:
        return width_of(schema.field(name).type, lambda: (c for batch in batches([name]) for c in batch.column(name)))

    return Table(schema.names, rows, batches, width, by_column=by_column, kind=lambda name: schema.field(name).type)
