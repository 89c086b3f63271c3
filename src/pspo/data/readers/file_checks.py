"""Checks that all file readers share: the file exists, can be read and fits into memory; errors name the file."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path

from pspo.core.errors import UserError
from pspo.core.memory import memory_limit

# Noisy numbers hardly compress: a file that claims to expand by more than this is made to fill the memory. Anything
# below the second number, in bytes, is harmless, and small files of zeros are common.
MAX_EXPANSION, ALWAYS_FITS = 200, 1 << 28
PEAK = 5
"""Memory that reading and checking a dataset takes at most, in sizes of its arrays; a slow test measures it."""


def require_room(declared: int, stored: int) -> None:
    """Refuse a file of `stored` bytes that declares more than it can hold, before anything is allocated."""
    if declared > ALWAYS_FITS and declared > MAX_EXPANSION * stored:
        raise UserError(
            f"{_gib(declared)} are declared by {stored:,} bytes, more than the file can hold "
            f"(at most {MAX_EXPANSION} times its size is accepted): write it again, uncompressed if need be."
        )


def fits_into_memory(arrays: int) -> bool:
    """Whether this process may use enough memory to work with a dataset whose arrays take so many bytes."""
    return PEAK * arrays <= memory_limit()


def require_memory(arrays: int) -> None:
    """Refuse a dataset whose arrays take so many bytes, where working with them would exceed the memory."""
    if not fits_into_memory(arrays):
        raise UserError(
            f"the arrays take {_gib(arrays)}, and reading and checking them {PEAK} times that, where this process may "
            f"use {_gib(memory_limit())} of memory: split the data, allow it more, or keep them in an .hdf5 file that "
            "can be mapped (docs/data.md)."
        )


def bytes_in_memory(sizes: dict[str, int]) -> int:
    """Of a dataset whose columns have these numbers of values: float32, and the states twice, as next states too."""
    has_next = any("next" in name.lower() for name in sizes)
    return 4 * sum(sizes.values()) * (1 if has_next else 2)


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"


def require_file(path: Path) -> None:
    """Refuse a path that is not a readable file."""
    if not path.exists():
        raise UserError(f"there is no file '{path}': check the path.")
    if path.is_dir():
        raise UserError(f"'{path}' is a folder: give the path of a file in it.")
    if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for a writer, for ever if there is none
        raise UserError(f"'{path}' is a pipe or a device, and data are read more than once: write them to a file.")
    try:
        with open(path, "rb"):
            pass
    except PermissionError:
        raise UserError(f"'{path}' may not be read: ask for permission to read it.") from None


@contextlib.contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Add the name of the file to errors about its content."""
    try:
        yield
    except UserError as error:
        raise UserError(f"in '{path}', {error}") from None
