"""Arrays that stay in their file, mapped into memory: read in blocks or by row, and given back at once.

The system counts every page that was read to the memory of the process until it is given back. Nothing is lost by
that: pages are read again from the file, or from the system's cache of it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pspo.core.errors import UserError

BLOCK_ROWS = 1 << 16  # of a table, read in one go
READ_ROWS = 1 << 12  # from different places: each may bring some pages of 4 KiB around it


class MappedFile(mmap.mmap):
    """A file in memory, read-only. It must not change while it is in use: what was read would no longer be the data
    whose hash the run names."""

    path: Path
    state: tuple[int, ...]

    @classmethod
    def of(cls, path: Path) -> MappedFile:
        with open(path, "rb") as file:
            mapping = cls(file.fileno(), 0, access=mmap.ACCESS_READ)
        mapping.path, mapping.state = path, _state(path)
        return mapping

    def array(self, shape: tuple[int, ...], dtype: np.dtype, offset: int) -> np.ndarray:
        """The numbers from there on."""
        return np.ndarray(shape, dtype, buffer=self, offset=offset)

    def give_back(self) -> None:
        if hasattr(mmap, "MADV_DONTNEED"):
            self.madvise(mmap.MADV_DONTNEED)

    def require_unchanged(self) -> None:
        try:
            now = _state(self.path)
        except OSError:
            now = ()
        if now != self.state:
            raise UserError(f"'{self.path}' has changed while its rows were in use: restore it, and start again.")


def _state(path: Path) -> tuple[int, ...]:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def mapped_file(array: Any) -> MappedFile | None:
    """The file that an array, or the array that it is a view of, stays in; None for an array in memory."""
    while isinstance(array, np.ndarray):
        array = array.base
    if isinstance(array, memoryview):
        array = array.obj
    return array if isinstance(array, MappedFile) else None


def give_back(array: np.ndarray) -> None:
    """Let the system take back the memory of an array that stays in its file."""
    if (file := mapped_file(array)) is not None:
        file.give_back()


def row_blocks(array: np.ndarray) -> Iterator[slice]:
    """All rows of an array, block by block; each block is given back before the next one."""
    for start in range(0, len(array), BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, len(array)))
        give_back(array)


def read_rows(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """array[rows], for rows in ascending order.

    Through the mapping: a system call for each row (`os.preadv`) took almost five times as much processor time, for
    64,000 of 20,000,000 rows in the system's cache.
    """
    if mapped_file(array) is None:
        return array[rows]
    read = np.empty((len(rows), *array.shape[1:]), array.dtype)
    for start in range(0, len(rows), READ_ROWS):
        part = slice(start, start + READ_ROWS)
        read[part] = array[rows[part]]
        give_back(array)
    return read
