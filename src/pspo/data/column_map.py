"""A column map: a TOML file beside the data that says how to read them, such as logs.toml for the folder logs.

    [columns]
    obs = ["price", "stock"]
    action = ["order"]
    reward = "profit"
    episode = ["store", "week"]
    time = "date"
    action_low = 0
    action_high = 60

Options that a user gives replace single entries. `describe` writes a first version.
"""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError, unknown_name
from pspo.core.files import one_line
from pspo.data.columns import ROLES, Columns, as_columns

KEY = "columns"


def map_beside(source: str) -> Path | None:
    """log.toml for log.csv, logs.toml for the folder logs and for logs/*.parquet; None if there is none."""
    path = Path(source.split(",")[0])
    folder = next((p for p in (path, *path.parents) if not any(letter in p.name for letter in "*?[")), path)
    if folder != path or "," in source:
        folder = folder.parent if folder.is_file() else folder
    candidate = folder.parent / f"{folder.stem if folder.is_file() else folder.name}.toml"
    return candidate if candidate.is_file() and read_map(candidate) else None


def read_map(path: Path) -> dict[str, Any]:
    """The entries of a column map; empty if the file is another kind of TOML."""
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as problem:
        raise UserError(f"the column map '{path}' cannot be read ({one_line(problem)}): correct it.") from None
    if outside := [name for name in ROLES if name in content]:  # it would be left aside without a word
        raise UserError(f"'{outside[0]}' in '{path}' is in no table: write [{KEY}] in a line above it.")
    entries = content.get(KEY, {})
    if not isinstance(entries, dict):
        raise UserError(f"'{KEY}' in '{path}' is not a table: write [{KEY}] and one line per role.")
    known = [field.name for field in fields(Columns)]
    for name in entries:
        if name not in known:
            raise UserError(f"in '{path}', {unknown_name('role of a column', name, known)}")
    return entries


def with_map(source: str, columns: Columns | None) -> tuple[Columns | None, list[str]]:
    """The columns with the entries of the map beside the source, and a note that says so."""
    path = map_beside(source)
    if path is None:
        return columns, []
    try:
        entries = as_columns(read_map(path))
    except UserError as problem:
        raise UserError(f"in '{path}', {problem}") from None
    given = columns.given() if columns else {}
    return as_columns({**entries.given(), **given}), [f"columns are those of '{path}'."]
