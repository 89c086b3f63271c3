"""What every reader of files has in common: the file is there and may be read, and messages name it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pspo.errors import UserError


def require_file(path: Path) -> None:
    if not path.exists():
        raise UserError(f"there is no file '{path}': check the path.")
    if path.is_dir():
        raise UserError(f"'{path}' is a folder: give the path of a file in it.")
    try:
        with open(path, "rb"):
            pass
    except PermissionError:
        raise UserError(f"'{path}' may not be read: ask for permission to read it.") from None


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """A problem with the content is told together with the file it is in."""
    try:
        yield
    except UserError as error:
        raise UserError(f"in '{path}', {error}") from None
