"""Several tables as one: files of a folder, a pattern or a list, Hive partitions, data frames in a list.

Only the chosen columns are read, one batch of one file at a time, straight into the final arrays.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pspo.core.column_names import listed
from pspo.core.errors import UserError
from pspo.data.columns import Columns, choose, natural_key, without_ignored
from pspo.data.encode_arrays import FIT, Encoding
from pspo.data.readers.csv import csv_table
from pspo.data.readers.file_checks import naming
from pspo.data.readers.ipc import ipc_table
from pspo.data.readers.parquet import parquet_table
from pspo.data.readers.tables import Table, need_pyarrow

TABLE_READERS = {".csv": csv_table, ".parquet": parquet_table, ".arrow": ipc_table, ".feather": ipc_table}
PARTITION = re.compile(r"([^/=]+)=([^/]*)")
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def files_in(folder: Path) -> list[Path]:
    """All tables below a folder, in natural order: part-2 before part-10. Hidden files and _SUCCESS are left out."""
    files = [
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in TABLE_READERS
        and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        and path.is_file()
    ]
    if not files:
        raise UserError(
            f"'{folder}' is a folder, and no table is in it: give a folder with {', '.join(TABLE_READERS)} files, or "
            "a file."
        )
    return sorted(files, key=lambda path: natural_key(str(path)))


def table_of_files(paths: Sequence[Path], columns: Columns, root: Path, encoding: Encoding = FIT) -> Table:
    """The rows of all files, one after the other; `month=3` in a folder below `root` is a column."""
    if not paths:
        raise UserError("the list of files is empty: give at least one.")
    tables, partitions = [], _partitions(paths, root)
    for path, constants in zip(paths, partitions, strict=True):
        read = TABLE_READERS.get(path.suffix.lower())
        if read is None:
            raise UserError(
                f"'{path}' cannot be one of several files: give tables ({', '.join(TABLE_READERS)}), or only this file."
            )
        table = read(path, columns, {name: _kind_of(value) for name, value in constants.items()}, encoding)
        tables.append(_with_constants(table, constants))
    return tables[0] if len(tables) == 1 else joined(tables, _short_names(paths), columns)


def joined(tables: Sequence[Table], labels: Sequence[str], columns: Columns) -> Table:
    """One table of the rows of all; `labels` name them in messages. All must have the columns of the first."""
    first = tables[0]
    notes = _require_same_columns(tables, labels, columns)
    pa = need_pyarrow("reading tables")
    lengths = [table.rows for table in tables]

    def batches(names: list[str], wide: bool = False) -> Iterator[Any]:
        for index, (table, label) in enumerate(zip(tables, labels, strict=True)):
            rows = 0
            with naming(label):
                for batch in ((table.wide_batches if wide else None) or table.batches)(names):
                    rows += batch.num_rows
                    yield pa.record_batch([_column(batch, name, kind(name)) for name in names], names=names)
                if table.exact and rows != table.rows:
                    raise UserError(f"there are {rows} rows where the file declares {table.rows}: copy it again.")
            lengths[index] = rows

    def files() -> tuple[tuple[str, int], ...]:
        starts = [sum(lengths[:index]) for index in range(len(tables))]
        return tuple(zip(labels, starts, strict=True))

    def width(name: str) -> int:
        return next((table.width(name) for table in tables if table.rows), 1)

    def kind(name: str) -> Any:
        """A column that one file leaves empty has the type of the others; numbers and texts together are texts."""
        kinds = [table.kind(name) for table in tables]
        known = [kind for kind in kinds if not pa.types.is_null(kind)] or kinds
        return next((kind for kind in known if pa.types.is_string(kind)), known[0])

    return Table(
        names=[name for name in first.names if all(name in table.names for table in tables)],
        rows=sum(lengths),
        batches=batches,
        width=width,
        exact=all(table.exact for table in tables),
        by_column=all(table.by_column for table in tables),
        files=files,
        wide_batches=partial(batches, wide=True),
        kind=kind,
        labels={"notes": notes} if notes else {},
    )


def _require_same_columns(tables: Sequence[Table], labels: Sequence[str], columns: Columns) -> list[str]:
    """All must have the columns of the first; a note on columns that only others have, which are not used."""
    first = tables[0]
    wanted = without_ignored(first.names, columns)
    more: dict[str, str] = {}
    for table, label in zip(tables, labels, strict=True):
        if missing := [name for name in wanted if name not in table.names]:
            raise UserError(
                f"'{label}' lacks {listed(missing)}, which '{labels[0]}' has: give files with the same columns, or "
                "leave these out with --ignore."
            )
        more |= {name: label for name in table.names if name not in first.names and name not in more}
    if not more:
        return []
    chosen = choose([*first.names, *more], columns)
    used = [name for members in chosen.values() for name in members if name in more]
    if used:
        raise UserError(
            f"'{labels[0]}' lacks {listed(used)}, which '{more[used[0]]}' has: give files with the same columns."
        )
    more = {name: label for name, label in more.items() if name in without_ignored([*first.names, *more], columns)}
    if not more:
        return []
    name, label = next(iter(more.items()))
    return [f"columns that '{labels[0]}' does not have are not used: {listed(more)} ('{name}' is in '{label}')."]


def _column(batch: Any, name: str, kind: Any) -> Any:
    """A column of a batch, as text where another file has texts in it."""
    import pyarrow as pa

    column = batch.column(name)
    return column if column.type == kind or not pa.types.is_string(kind) else column.cast(pa.string())


def _kind_of(value: Any) -> Any:
    import pyarrow as pa

    return pa.scalar(value).type


def _with_constants(table: Table, constants: dict[str, Any]) -> Table:
    """The table with further columns that have one value each, as a folder's name gives them."""
    if not constants:
        return table
    import pyarrow as pa

    def batches(names: list[str], wide: bool = False) -> Iterator[Any]:
        stored = [name for name in names if name not in constants]
        # Without a stored column among the names, any one of them tells the number of rows.
        for batch in ((table.wide_batches if wide else None) or table.batches)(stored or table.names[:1]):
            columns = [
                pa.repeat(constants[name], batch.num_rows) if name in constants else batch.column(name)
                for name in names
            ]
            yield pa.record_batch(columns, names=names)

    def width(name: str) -> int:
        return 1 if name in constants else table.width(name)

    def kind(name: str) -> Any:
        return _kind_of(constants[name]) if name in constants else table.kind(name)

    names = [*table.names, *(name for name in constants if name not in table.names)]
    return replace(
        table, names=names, batches=batches, width=width, wide_batches=partial(batches, wide=True), kind=kind
    )


def _partitions(paths: Sequence[Path], root: Path) -> list[dict[str, Any]]:
    """key=value in the folders of each path below the root; values are whole numbers where all are."""
    folders = [dict(PARTITION.findall(os.path.relpath(path.parent, root))) for path in paths]
    keys = [key for key in folders[0] if all(key in values for values in folders)]
    whole = {key for key in keys if all(re.fullmatch(r"-?\d{1,18}", values[key]) for values in folders)}
    return [
        {key: None if values[key] == NO_VALUE else int(values[key]) if key in whole else values[key] for key in keys}
        for values in folders
    ]


def _short_names(paths: Sequence[Path]) -> list[str]:
    """Without the folders that all have in common."""
    parts = [path.parts for path in paths]
    common = 0
    while all(len(p) > common + 1 and p[common] == parts[0][common] for p in parts):
        common += 1
    return ["/".join(p[common:]) for p in parts]
