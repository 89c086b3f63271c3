"""Files of tables as one Arrow dataset, as a query or a description takes them: types are guessed, roles not needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pspo.core.column_names import listed
from pspo.core.errors import UserError
from pspo.data.readers.csv import EMPTY_CELLS, delimiter_of
from pspo.data.readers.file_checks import require_file
from pspo.data.readers.tables import need_pyarrow

FORMATS = {"arrow": "feather"}
"""What pyarrow calls a kind of file, where that is not its suffix."""


def arrow_dataset_of(files: Sequence[Path], root: Path) -> Any:
    """A pyarrow.dataset.Dataset of files of one kind with the same columns; folders below `root` may be partitions."""
    pa = need_pyarrow("reading tables")
    from pyarrow import dataset

    suffixes = [path.suffix.lower().removeprefix(".") for path in files]
    formats = {FORMATS.get(suffix, suffix) for suffix in suffixes}
    if len(formats) != 1:
        raise UserError(
            f"'{files[0]}' cannot be read with others: give tables of one kind, not {listed(set(suffixes))}."
        )
    for path in files:
        require_file(path)
    kind: Any = formats.pop()
    try:
        source = dataset.dataset(
            [os.path.abspath(path) for path in files],
            format=_csv(files[0]) if kind == "csv" else kind,
            partitioning="hive",
            partition_base_dir=os.path.abspath(root),
        )
        _require_same_columns(source)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UserError(f"'{files[0]}' cannot be read ({short_reason(error)}): check the file.") from None
    return source


def short_reason(error: BaseException) -> str:
    """The message of a library, in one line."""
    return " ".join(str(error).split())[:200].rstrip(".")


def _csv(path: Path) -> Any:
    from pyarrow import csv, dataset

    return dataset.CsvFileFormat(
        parse_options=csv.ParseOptions(delimiter=delimiter_of(path)),
        convert_options=csv.ConvertOptions(null_values=EMPTY_CELLS, strings_can_be_null=True),
    )


def _require_same_columns(source: Any) -> None:
    """Arrow takes the columns of the first file; what others lack would be empty, and what they add be dropped."""
    first, *others = source.get_fragments()
    names = set(first.physical_schema.names)
    for other in others:
        if differing := names ^ set(other.physical_schema.names):
            lacks, has = (other, first) if differing & names else (first, other)
            raise UserError(
                f"'{lacks.path}' lacks {listed(sorted(differing & names or differing))}, which '{has.path}' has: give "
                "files with the same columns."
            )
