"""CSV files, read by Arrow as float32; an error names the cell that is not a number."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError
from pspo.data.columns import Columns, choose
from pspo.data.dataset import Dataset
from pspo.data.encode_arrays import FIT, Encoding
from pspo.data.readers.file_checks import naming, require_file
from pspo.data.readers.label_columns import is_number, is_text
from pspo.data.readers.state_columns import STATES, state_kinds
from pspo.data.readers.tables import NO_COLUMNS, Table, need_pyarrow, table_dataset

DELIMITERS = ",;\t"
OTHER_FORMATS = {
    b"\x1f\x8b": ("compressed", "unpack it"),
    b"PK\x03\x04": ("a zip archive", "unpack it"),
    b"PAR1": ("a Parquet file", "name it .parquet"),
    b"\xff\xfe": ("in UTF-16", "save it as UTF-8"),
    b"\xfe\xff": ("in UTF-16", "save it as UTF-8"),
}
EMPTY_CELLS = ["", "NA", "N/A", "null", "NULL"]  # nan is not among them: it is a value, not a missing one


def load_csv(path: str | Path, columns: Columns | None = None, encoding: Encoding = FIT) -> Dataset:
    """The dataset of a CSV file."""
    path, columns = Path(path), columns or Columns()
    table = csv_table(path, columns, encoding=encoding)
    with naming(path), _in_one_sentence():
        return table_dataset(table, columns, {"name": path.stem}, encoding)


def csv_table(path: Path, columns: Columns, more: Mapping[str, Any] = NO_COLUMNS, encoding: Encoding = FIT) -> Table:
    """The table of a CSV file; nothing but its header and the types of its columns is read yet.

    `more` are columns that are known from elsewhere, and may have a role: Arrow types by name.
    """
    need_pyarrow("reading CSV files")
    require_file(path)
    _refuse_other_formats(path)
    with naming(path), _in_one_sentence():
        return _table(path, columns, more, encoding)


def _refuse_other_formats(path: Path) -> None:
    with open(path, "rb") as file:
        begin = file.read(4)
    for mark, (what, remedy) in OTHER_FORMATS.items():
        if begin.startswith(mark):
            raise UserError(f"'{path}' is no CSV file but {what}: {remedy}.")


@contextlib.contextmanager
def _in_one_sentence() -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, UnicodeError, MemoryError, OSError) as error:
        reason = str(error).split("\n")[0].removeprefix("CSV parse error: ")[:200].rstrip(".")
        if "straddles two block" in reason:
            reason = "a line is longer than 1 MiB"
        raise UserError(f"the CSV cannot be read ({reason}): correct or write it again.") from None


def _table(path: Path, columns: Columns, more: Mapping[str, Any], encoding: Encoding) -> Table:
    import pyarrow as pa
    from pyarrow import csv

    parse = csv.ParseOptions(delimiter=delimiter_of(path))
    with csv.open_csv(path, parse_options=parse, convert_options=_convert({})) as start:
        schema = start.schema  # as guessed from the first block
        first = next(iter(start), None)
    names, types = (
        schema.names,
        dict(zip(schema.names, schema.types, strict=True)),
    )  # a schema makes new lists each time

    def guess(name: str) -> Any:
        """Texts that are mostly numbers are numbers, of which some are wrong."""
        if name not in types:
            return more[name]
        kind = types[name]
        if first is not None and pa.types.is_string(kind) and _are_mostly_numbers(first.column(name)):
            return pa.float32()
        return kind

    chosen = choose([*names, *(name for name in more if name not in types)], columns)
    states = state_kinds(chosen, guess, columns, encoding)
    kinds = {}
    for role, members in sorted(chosen.items(), key=lambda item: item[0] == "time"):
        for name in types.keys() & members:  # a time last: it keeps its digits where it is part of the state
            state = states.get(name) if role in STATES else None
            kind = guess(name) if role == "action" and not columns.is_discrete else types[name]
            kinds[name] = _state_kind(state, guess(name)) if state else _kind(role, kind, columns.is_discrete)

    def batches(names: list[str]) -> Iterator[Any]:
        wanted = {name: kinds.get(name, types[name]) for name in names}
        with _in_one_sentence():
            try:
                with _open(path, parse, wanted) as reader:
                    yield from reader
            except pa.ArrowInvalid:
                _raise_for_bad_cell(path, parse, wanted)
                raise

    def wide_batches(names: list[str]) -> Iterator[Any]:
        wide = {name: pa.float64() if kinds[name] == pa.float32() else kinds[name] for name in names}
        with _open(path, parse, wide) as reader:
            yield from reader

    def declared(name: str) -> Any:
        """Of actions what they are in the file: labels are read as float64."""
        return guess(name) if name in chosen["action"] else kinds.get(name, types[name])

    return Table(names, _count_lines(path), batches, exact=False, wide_batches=wide_batches, kind=declared)


def _kind(role: str, guessed: Any, discrete: bool | None) -> Any:
    """The Arrow type of a column: 0 and 1 are numbers, true and false are booleans."""
    import pyarrow as pa

    if role == "action" and discrete is not False:
        if is_text(guessed):
            return pa.string()
        if discrete or pa.types.is_integer(guessed):
            return pa.float64()  # labels keep their digits
    if role == "episode":
        return pa.string()
    if role == "time":
        return pa.float64() if pa.types.is_null(guessed) else guessed
    words = pa.types.is_boolean(guessed) or (role in ("terminal", "timeout") and pa.types.is_string(guessed))
    return pa.bool_() if words else pa.float32()


def _state_kind(state: str, guessed: Any) -> Any:
    """The Arrow type of a column of the state that is no number: a category is text, a time is what it looks like."""
    import pyarrow as pa

    if state == "category":
        return pa.string()
    return guessed if pa.types.is_temporal(guessed) or pa.types.is_string(guessed) else pa.float64()


def _are_mostly_numbers(cells: Any) -> bool:
    texts = [text for text in cells.unique().to_pylist() if text is not None]
    return sum(map(is_number, texts)) > 0.5 * len(texts) > 0


def _open(path: Path, parse: Any, kinds: dict[str, Any]) -> Any:
    from pyarrow import csv

    return csv.open_csv(path, parse_options=parse, convert_options=_convert(kinds))


def _convert(kinds: dict[str, Any]) -> Any:
    from pyarrow import csv

    return csv.ConvertOptions(
        include_columns=list(kinds), column_types=kinds, null_values=EMPTY_CELLS, strings_can_be_null=True
    )


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
        cell = str(cells[low])[:40]
        wanted = {pa.float32(): "a number", pa.bool_(): "true or false"}.get(kind, f"of type {kind} as before")
        raise UserError(f"column '{name}' holds '{cell}' at row {low} (line {low + 2}), which is not {wanted}.")


def _casts(cells: Any, kind: Any) -> bool:
    import pyarrow as pa

    try:
        cells.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def delimiter_of(path: Path) -> str:
    """The most frequent candidate in the header."""
    with open(path, "rb") as file:
        header = file.readline(1 << 20)
    return max(DELIMITERS, key=lambda delimiter: header.count(delimiter.encode()))
