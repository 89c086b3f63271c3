"""What every reader of files has in common: the file is there and may be read, fits into memory, and is named."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pspo.core.errors import UserError

# Noisy numbers hardly shrink. What unfolds to so many times its size is made to fill the memory; less than the second
# number is no harm, and small files of zeros are common.
MOST_EXPANSION, ALWAYS_FITS = 200, 1 << 28


def require_room(promised: int, stored: int) -> None:
    """Refuse a file of `stored` bytes that promises arrays of so many, before any of them is made."""
    if promised > ALWAYS_FITS and promised > MOST_EXPANSION * stored:
        raise UserError(
            f"{_gib(promised)} are promised by {stored:,} bytes, more than the file can hold "
            f"(at most {MOST_EXPANSION} times its size is believed): write it again, uncompressed if need be."
        )
    if promised > (memory := _memory()):
        raise UserError(
            f"{_gib(promised)} are promised and this machine has {_gib(memory)} of memory: split the data, "
            "or take a larger machine."
        )


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


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
