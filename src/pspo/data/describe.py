"""`pspo data describe`: a first column map for a table, with what its columns hold as comments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from pspo.core.errors import UserError
from pspo.core.terminal import CONTROL, in_one_line, printable
from pspo.data.columns import ENDS, ROLES, SINGLE, Columns
from pspo.data.guess_columns import guess_options, guess_roles
from pspo.data.readers.arrow_files import short_reason
from pspo.data.readers.tables import Table, need_pyarrow

SHOWN_ROWS = 100_000
OTHERS = ("categorical", "cyclic", "discrete", "mask", "action_low", "action_high", "ignore", "sql")


class FirstRows(NamedTuple):
    table: Any  # of Arrow
    rows: int  # of all


def first_rows(source: Any) -> FirstRows:
    """Of a table that is not yet read, or of an Arrow dataset."""
    pa = need_pyarrow("describing a table")
    try:
        if isinstance(source, Table):
            batches = islice(source.batches(source.names), -(-SHOWN_ROWS // (1 << 15)))
            table = pa.Table.from_batches(batches) if source.rows else pa.table({name: [] for name in source.names})
            return FirstRows(table, source.rows)
        return FirstRows(source.head(SHOWN_ROWS), source.count_rows())
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UserError(f"the table cannot be described ({short_reason(error)}): check the file.") from None


def describe(first: FirstRows, name: str, files: int, columns: Columns) -> str:
    """The text of a column map: what the user gives or what names and values suggest, and all columns as comments."""
    table = first.table
    chosen = guess_roles(table, columns)
    others: dict[str, Any] = guess_options(table, chosen, columns) | {
        key: value[0] if key == "sql" else _single(value) for key, value in columns.given().items() if key in OTHERS
    }
    lines = [
        f"# How to read '{name}' ({_count(files, 'file')}, {_count(first.rows, 'row')}).",
        f"# Correct it, and keep it beside the data as {name}.toml: every command then uses it.",
        "[columns]",
    ]
    for role in ROLES:
        members = chosen.get(role, [])
        if members:
            lines.append(f"{role} = {_value(_single(members) if role in SINGLE else members)}")
        elif role in ("obs", "action", "reward") or (role == "episode" and not set(ENDS) & set(chosen)):
            lines.append(f'# {role} = "..."  # name it')
    lines += [f"{key} = {_value(others[key])}" for key in OTHERS if key in others]
    if "discrete" not in others and "action_low" not in others:
        lines += ["# action_low = 0", "# action_high = 1"]
    if "ignore" not in others:
        lines.append('# ignore = "..."')
    lines += ["", f"# The columns, from the first {_count(table.num_rows, 'row')}:"]
    width = max(len(column) for column in table.column_names)
    used = {column: role for role, members in chosen.items() for column in members}
    for column in table.column_names:
        what = _contents(table.column(column))
        lines.append(f"#   {column:<{width}}  {used.get(column, 'not used'):<10}  {what}")
    # Names of columns and files come from elsewhere: none of them may end a comment, or change how the text is shown.
    return "\n".join(in_one_line(printable(line)) for line in lines)


def _single(members: Sequence[str]) -> str | Sequence[str]:
    """The only column of a role; in a list where its name would be read as several."""
    return members[0] if len(members) == 1 and "," not in members[0] else members


def _value(value: bool | str | Sequence[str]) -> str:
    """As TOML: JSON, with escapes for the characters that TOML or a terminal would not take as text."""
    text = json.dumps(value, ensure_ascii=False)
    return CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _contents(column: Any) -> str:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, missing = column.type, column.null_count
    about = f", {missing / len(column):.2g} missing" if missing else ""
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        values = [str(value) for value in column.unique().to_pylist() if value is not None]
        shown = ", ".join(repr(value)[:20] for value in values[:4]) + (", ..." if len(values) > 4 else "")
        return f"text, {_count(len(values), 'value')}: {shown}{about}"
    if pa.types.is_nested(kind) or missing == len(column):
        return f"{kind}{about}"
    ends = pc.call_function("min_max", [column]).as_py()
    return f"{kind}, {_shown(ends['min'])} to {_shown(ends['max'])}{about}"


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
