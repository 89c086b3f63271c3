"""NPZ files: written atomically, never unpickled, and never larger in memory than the file can hold."""

from __future__ import annotations

import json
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from pspo.core.errors import UserError
from pspo.core.files import one_line, replacing
from pspo.data.columns import Columns
from pspo.data.d4rl_layout import ENCODER, KNOWN_KEYS, arrays_for_d4rl, stored_actions, time_labels
from pspo.data.dataset import Dataset
from pspo.data.encode_arrays import FIT, Encoding
from pspo.data.readers.file_checks import bytes_in_memory, naming, require_file, require_memory, require_room
from pspo.data.readers.named_arrays import dataset_from_named_arrays

ZIP_MAGIC = b"PK"
# What NumPy and zipfile can raise on a damaged member; an encrypted one raises RuntimeError.
DAMAGE = (
    *(ValueError, OSError, EOFError, KeyError, RuntimeError, SyntaxError, MemoryError, OverflowError, TypeError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)


def save_npz(dataset: Dataset, path: str | Path) -> Path:
    """Write a dataset to an NPZ file, under D4RL's names."""
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise UserError(f"cannot save a dataset as '{path}': give a path that ends in .npz.")
    with replacing(path) as temporary, open(temporary, "xb") as file:
        np.savez(file, **_members(dataset))
    return path


def load_npz(path: str | Path, columns: Columns | None = None, encoding: Encoding = FIT) -> Dataset:
    """The dataset of an NPZ file."""
    path = Path(path)
    require_file(path)
    with naming(path), open(path, "rb") as file:
        arrays, others = read_members(file, lambda name: columns is not None or name in KNOWN_KEYS)
        if columns is not None:
            return dataset_from_named_arrays(arrays, arrays.__getitem__, columns, path.stem, encoding=encoding)
        return Dataset.from_arrays({"name": path.stem, **arrays}, others, encoding)


def _members(dataset: Dataset) -> dict[str, Any]:
    members: dict[str, Any] = {
        **arrays_for_d4rl(dataset),
        **stored_actions(dataset),
        "name": np.array(dataset.name),
    }
    if dataset.task is not None:
        members["task"] = np.array(dataset.task)
    if dataset.reward_name:
        members["reward_name"] = np.array(dataset.reward_name)
    members |= {key: np.array(text) for key, text in time_labels(dataset).items()}
    if dataset.notes:
        members["notes"] = np.array(dataset.notes)
    if dataset.encoder is not None:
        members[ENCODER] = np.array(json.dumps(dataset.encoder.as_json()))
    names = {"obs_names": dataset.obs_names, "action_names": dataset.action_names}
    return members | {key: np.array(texts) for key, texts in names.items() if texts}


def read_members(file: IO[bytes], wanted: Callable[[str], bool]) -> tuple[dict[str, np.ndarray], list[str]]:
    """The wanted arrays, and the names of the others, which are not read."""
    file.seek(0)
    if file.read(2) != ZIP_MAGIC:
        raise UserError("nothing can be read, as it is not an NPZ file: write it with numpy.savez.")
    stored = file.seek(0, 2)
    file.seek(0)
    member = "the list of its arrays"
    try:
        with zipfile.ZipFile(file) as archive:
            entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            if len(entries) < len(archive.infolist()):
                raise ValueError("an array is in it twice")
            require_room(sum(entry.file_size for name, entry in entries.items() if wanted(name)), stored)
            counts = {}
            for member in filter(wanted, entries):
                counts[member] = _count(archive, entries[member])
            require_memory(bytes_in_memory(counts))
            arrays = {}
            for member in filter(wanted, entries):
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
    """One array. NumPy allocates what its header declares, so that must be what the archive holds."""
    with archive.open(entry) as start:
        declared = _declared(start)
        if declared and start.tell() + declared.bytes != entry.file_size:
            raise ValueError(f"it declares {declared.bytes} bytes where {entry.file_size - start.tell()} are")
    with archive.open(entry) as content:
        return np.lib.format.read_array(content, allow_pickle=False)


def _count(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> int:
    """How many numbers an array has, by its header."""
    with archive.open(entry) as start:
        declared = _declared(start)
        return declared.numbers if declared else 0


class _Declared(NamedTuple):
    numbers: int
    bytes: int


def _declared(start: IO[bytes]) -> _Declared | None:
    """Reads the header: what follows it; None for objects, which are refused later."""
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
    return None if kind.hasobject else _Declared(count, count * kind.itemsize)
