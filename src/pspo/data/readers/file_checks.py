"""Checks that all file readers share: the file exists, can be read and fits into memory; errors name the file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pspo.core.errors import UserError

# Noisy numbers hardly compress: a file that claims to expand by more than this is made to fill the memory. Anything
# below the second number, in bytes, is harmless, and small files of zeros are common.
MAX_EXPANSION, ALWAYS_FITS = 200, 1 << 28


def require_room(needed: int, stored: int) -> None:
    """Refuse a file of `stored` bytes whose arrays take `needed` bytes of memory, before any is allocated."""
    if needed > ALWAYS_FITS and needed > MAX_EXPANSION * stored:
        raise UserError(
            f"{_gib(needed)} are declared by {stored:,} bytes, more than the file can hold "
            f"(at most {MAX_EXPANSION} times its size is accepted): write it again, uncompressed if need be."
        )
    if needed > (memory := _memory()):
        raise UserError(
            f"{_gib(needed)} are needed and this machine has {_gib(memory)} of memory: split the data, "
            "or take a larger machine."
        )


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def require_file(path: Path) -> None:
    """Refuse a path that is not a readable file."""
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
    """Add the name of the file to errors about its content."""
    try:
        yield
    except UserError as error:
        raise UserError(f"in '{path}', {error}") from None
