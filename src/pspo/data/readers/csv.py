"""CSV files, read by Arrow as float32; an error names the cell that is not a number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError
from pspo.data.columns import Columns, choose
from pspo.data.dataset import Dataset
from pspo.data.readers.file_checks import naming, require_file
from pspo.data.readers.tables import Table, need_pyarrow, table_dataset

DELIMITERS = ",;\t"
EMPTY_CELLS = ["", "NA", "N/A", "null", "NULL"]  # nan is not among them: it is a value, not a missing one


def load_csv(path: str | Path, columns: Columns | None = None) -> Dataset:
    """The dataset of a CSV file."""
    pa = need_pyarrow("reading CSV files")
    path = Path(path)
    require_file(path)
    with naming(path):
        try:
            return _read(path, columns or Columns())
        except (pa.ArrowException, UnicodeError, MemoryError, OSError) as error:
            reason = str(error).split("\n")[0].removeprefix("CSV parse error: ")[:200].rstrip(".")
            raise UserError(f"the CSV cannot be read ({reason}): correct or write it again.") from None


def _read(path: Path, columns: Columns) -> Dataset:
    import pyarrow as pa
    from pyarrow import csv

    parse = csv.ParseOptions(delimiter=_delimiter(path))
    with csv.open_csv(path, parse_options=parse) as start:
        schema = start.schema  # as guessed from the first block
    kinds = {}
    for role, names in choose(schema.names, columns).items():
        for name in names:
            kinds[name] = _kind(role, schema.field(name).type)

    def batches(names: list[str]) -> Iterator[Any]:
        with _open(path, parse, {name: kinds[name] for name in names}) as reader:
            yield from reader

    try:
        return table_dataset(
            Table(schema.names, _count_lines(path), batches, exact=False), columns, {"name": path.stem}
        )
    except pa.ArrowInvalid:
        _raise_for_bad_cell(path, parse, kinds)
        raise


def _kind(role: str, guessed: Any) -> Any:
    """The Arrow type of a column: 0 and 1 are numbers, true and false are booleans."""
    import pyarrow as pa

    if role == "episode":
        return pa.string()
    words = pa.types.is_boolean(guessed) or (role in ("terminal", "timeout") and pa.types.is_string(guessed))
    return pa.bool_() if words else pa.float32()


def _open(path: Path, parse: Any, kinds: dict[str, Any]) -> Any:
    from pyarrow import csv

    convert = csv.ConvertOptions(
        include_columns=list(kinds), column_types=kinds, null_values=EMPTY_CELLS, strings_can_be_null=True
    )
    return csv.open_csv(path, parse_options=parse, convert_options=convert)


def _count_lines(path: Path) -> int:
    """An upper bound of the number of rows."""
    lines = returns = 1
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            lines += block.count(b"\n")
            returns += block.count(b"\r")
    return max(lines, returns)


def _raise_for_bad_cell(path: Path, parse: Any, kinds: dict[str, Any]) -> None:
    """Raise an error that names the first cell of the wrong type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    with _open(path, parse, dict.fromkeys(kinds, pa.string())) as reader:
        texts = reader.read_all()
    for name, kind in kinds.items():
        cells = pc.call_function("utf8_trim_whitespace", [texts[name].combine_chunks()])
        if _casts(cells, kind):
            continue
        low, high = 0, len(cells)  # the first bad cell is in cells[low:high]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _casts(cells[low:middle], kind) else (low, middle)
        cell, wanted = str(cells[low])[:40], "a number" if kind == pa.float32() else "true or false"
        raise UserError(f"column '{name}' holds '{cell}' at row {low} (line {low + 2}), which is not {wanted}.")


def _casts(cells: Any, kind: Any) -> bool:
    import pyarrow as pa

    try:
        cells.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _delimiter(path: Path) -> str:
    """The most frequent candidate in the header."""
    with open(path, "rb") as file:
        header = file.readline(1 << 20)
    return max(DELIMITERS, key=lambda delimiter: header.count(delimiter.encode()))
