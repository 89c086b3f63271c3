"""`pspo data describe`: a first column map for a table, with what its columns hold as comments."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError
from pspo.data.columns import ENDS, ROLES, SINGLE, TIME_NAME, Columns, detect, without_ignored
from pspo.data.readers.tables import need_pyarrow

SHOWN_ROWS = 100_000
PROPENSITY_NAME = re.compile(r".*(propensity|prob(ability)?)s?", re.IGNORECASE)
EPISODE_NAME = re.compile(r"(.*_)?(id|site|store|unit|session|customer|user|plant|machine)(_id)?", re.IGNORECASE)
FORMATS = {".csv": "csv", ".parquet": "parquet", ".arrow": "feather", ".feather": "feather"}


def describe(files: Sequence[Path], name: str, columns: Columns) -> str:
    """The text of a column map: roles that the user gives or that names suggest, and all columns as comments."""
    table, rows = _first_rows(files)
    chosen = _roles(table, columns)
    lines = [
        f"# How to read '{name}' ({_count(len(files), 'file')}, {_count(rows, 'row')}).",
        f"# Correct it, and keep it beside the data as {name}.toml: every command then uses it.",
        "[columns]",
    ]
    for role in ROLES:
        members = chosen.get(role, [])
        if members:
            lines.append(f"{role} = {_value(members if role not in SINGLE else members[0])}")
        elif role in ("obs", "action", "reward") or (role == "episode" and not set(ENDS) & set(chosen)):
            lines.append(f'# {role} = "..."  # name it')
    lines += ["# action_low = 0", "# action_high = 1", '# ignore = "..."']
    lines += ["", f"# The columns, from the first {_count(table.num_rows, 'row')}:"]
    width = max(len(column) for column in table.column_names)
    used = {column: role for role, members in chosen.items() for column in members}
    for column in table.column_names:
        what = _contents(table.column(column))
        lines.append(f"#   {column:<{width}}  {used.get(column, 'not used'):<10}  {what}")
    return "\n".join(lines)


def _first_rows(files: Sequence[Path]) -> tuple[Any, int]:
    pa = need_pyarrow("describing a table")
    from pyarrow import dataset

    formats = {FORMATS.get(path.suffix.lower()) for path in files}
    if len(formats) != 1 or None in formats:
        raise UserError(f"'{files[0]}' cannot be described: give tables of one kind ({', '.join(FORMATS)}).")
    try:
        source = dataset.dataset([str(path) for path in files], format=formats.pop(), partitioning="hive")
        return source.head(SHOWN_ROWS), source.count_rows()
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise UserError(f"'{files[0]}' cannot be described ({reason}): check the file.") from None


def _roles(table: Any, columns: Columns) -> dict[str, list[str]]:
    """What is given, then what names say, then guesses; everything else is taken for the state."""
    import pyarrow as pa

    names = without_ignored(table.column_names, columns)
    chosen = {role: [name for name in names if name in patterns] for role, patterns in columns.roles().items()}

    def free() -> list[str]:
        used = {name for members in chosen.values() for name in members}
        return [name for name in names if name not in used]

    for role in ROLES:
        if role not in chosen and (members := _detected(role, free())):
            chosen[role] = members
    kinds = {name: table.schema.field(name).type for name in names}
    guesses = {
        "time": [n for n in free() if pa.types.is_temporal(kinds[n])] or [n for n in free() if TIME_NAME.fullmatch(n)],
        "propensity": [name for name in free() if PROPENSITY_NAME.fullmatch(name)],
    }
    for role, members in guesses.items():
        if role not in chosen and members:
            chosen[role] = members[:1]
    if "episode" not in chosen and (members := [name for name in free() if EPISODE_NAME.fullmatch(name)]):
        chosen["episode"] = members
    if "obs" not in chosen and free():
        chosen["obs"] = free()
    return {role: members for role, members in chosen.items() if members}


def _detected(role: str, names: list[str]) -> list[str]:
    try:
        return detect(role, names)
    except UserError:  # two families of names: the user has to choose
        return []


def _value(value: str | list[str]) -> str:
    return json.dumps(value, ensure_ascii=False)  # texts and lists of texts are the same in TOML


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
