"""The arrays of an NPZ file: never unpickled, and never larger in memory than the file can honestly hold."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Callable
from typing import IO

import numpy as np

from pspo.core.errors import UserError
from pspo.core.files import one_line
from pspo.data.readers.reading import require_room

ZIP_MAGIC = b"PK"
# All that NumPy and zipfile are known to raise on a damaged member; an encrypted one raises RuntimeError.
DAMAGE = (
    *(ValueError, OSError, EOFError, KeyError, RuntimeError, SyntaxError, MemoryError, OverflowError, TypeError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)


def read_members(file: IO[bytes], wanted: Callable[[str], bool]) -> tuple[dict[str, np.ndarray], list[str]]:
    """The arrays that are wanted, and the names of the others, which stay on disk."""
    file.seek(0)
    if file.read(2) != ZIP_MAGIC:
        raise UserError("nothing can be read, as it is not an NPZ file: write it with numpy.savez.")
    stored = file.seek(0, 2)
    file.seek(0)
    member = "the list of its arrays"
    try:
        with zipfile.ZipFile(file) as archive:
            entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            require_room(sum(entry.file_size for name, entry in entries.items() if wanted(name)), stored)
            arrays = {}
            for member in sorted(filter(wanted, entries)):
                arrays[member] = _array(archive, entries[member])
            return arrays, [name for name in entries if name not in arrays]
    except DAMAGE as problem:
        if isinstance(problem, ValueError) and "allow_pickle" in str(problem):
            raise UserError(
                f"'{member}' holds pickled objects, which are never loaded as they can run code: "
                "save it as an array of numbers."
            ) from None
        raise UserError(
            f"{member if ' ' in member else repr(member)} cannot be read, as the file is truncated or damaged "
            f"({one_line(problem)}): copy or write it again."
        ) from None


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    """NumPy allocates what an array's header promises: that must be what the archive holds."""
    with archive.open(entry) as start:
        promised = _promised(start)
        if promised is not None and start.tell() + promised != entry.file_size:
            raise ValueError(f"it promises {promised} bytes where {entry.file_size - start.tell()} are")
    with archive.open(entry) as content:
        return np.lib.format.read_array(content, allow_pickle=False)


def _promised(start: IO[bytes]) -> int | None:
    """Bytes of the numbers after the header, which is read by this; None for objects, which are refused later."""
    version = np.lib.format.read_magic(start)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"arrays of version {version} hold no plain numbers")
    shape, _, kind = readers[version](start)
    if any(length < 0 for length in shape):
        raise ValueError(f"its shape is {shape}")
    count = 1
    for length in shape:
        count *= int(length)
    return None if kind.hasobject else count * kind.itemsize
