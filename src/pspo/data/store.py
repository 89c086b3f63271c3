"""Datasets in NPZ files: written all or nothing, read without ever running pickled code."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from pspo.data.columns import Columns
from pspo.data.d4rl import KNOWN_KEYS, arrays_for_d4rl
from pspo.data.dataset import Dataset
from pspo.data.mapped import mapped_dataset
from pspo.data.reading import naming, require_file
from pspo.errors import UserError
from pspo.files import replacing

ZIP_MAGIC = b"PK"
# All that NumPy and zipfile are known to raise on a damaged member; an encrypted one raises RuntimeError.
DAMAGE = (
    *(ValueError, OSError, EOFError, KeyError, RuntimeError, SyntaxError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)


def save_npz(dataset: Dataset, path: str | Path) -> Path:
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise UserError(f"cannot save a dataset as '{path}': give a path that ends in .npz.")
    with replacing(path) as temporary, open(temporary, "xb") as file:
        np.savez(file, **_members(dataset))
    return path


def load_npz(path: str | Path, columns: Columns | None = None) -> Dataset:
    path = Path(path)
    require_file(path)
    arrays, others = _read_members(path, columns is None)
    with naming(path):
        if columns is not None:
            return mapped_dataset(arrays, arrays.__getitem__, columns, path.stem)
        return Dataset.from_arrays({"name": path.stem, **arrays}, others)


def _members(dataset: Dataset) -> dict[str, Any]:
    members: dict[str, Any] = {
        **arrays_for_d4rl(dataset),
        "action_low": dataset.action_low,
        "action_high": dataset.action_high,
        "name": np.array(dataset.name),
    }
    if dataset.task is not None:
        members["task"] = np.array(dataset.task)
    if dataset.notes:
        members["notes"] = np.array(dataset.notes)
    return members


def _read_members(path: Path, known_only: bool) -> tuple[dict[str, np.ndarray], list[str]]:
    """The arrays (with known names), and the names of the others, which stay on disk."""
    member = "the list of its arrays"
    try:
        with open(path, "rb") as file:  # opened here, as NumPy forgets to close a file that it cannot read
            if file.read(2) != ZIP_MAGIC:
                raise UserError(f"'{path}' is not an NPZ file: write it with numpy.savez or pspo.data.save_npz.")
            file.seek(0)
            with np.load(file, allow_pickle=False) as npz:
                arrays = {}
                wanted = KNOWN_KEYS.intersection(npz.files) if known_only else npz.files
                for member in sorted(wanted):
                    arrays[member] = npz[member]
                return arrays, [key for key in npz.files if key not in arrays]
    except DAMAGE as error:
        if "allow_pickle" in str(error):
            raise UserError(
                f"'{path}' holds pickled objects in '{member}', which are never loaded as they can run code: "
                "save it as an array of numbers."
            ) from None
        raise UserError(f"'{path}' is truncated or damaged, {member} cannot be read: copy or write it again.") from None
