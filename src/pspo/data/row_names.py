"""How messages name a row: by its number in the file that it was read from, from 0."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence


def row_name(row: int, files: Sequence[tuple[str, int]] = ()) -> str:
    """`row` counts through all files; `files` are their names and first rows, if there are several."""
    if not files:
        return f"row {row}"
    name, first = files[bisect_right([first for _, first in files], row) - 1]
    return f"row {row - first} of '{name}'"
