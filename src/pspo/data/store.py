"""Datasets in NPZ files: written all or nothing, read without ever running pickled code."""

from __future__ import annotations

import os
import secrets
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from pspo.data.d4rl import KNOWN_KEYS
from pspo.data.dataset import Dataset
from pspo.errors import UserError

ZIP_MAGIC = b"PK"
# All that NumPy and zipfile are known to raise on a damaged member; an encrypted one raises RuntimeError.
DAMAGE = (ValueError, OSError, EOFError, KeyError, RuntimeError, SyntaxError, zipfile.BadZipFile, zlib.error)


def save_npz(dataset: Dataset, path: str | Path) -> Path:
    """Write to a temporary neighbour and rename it, so that a reader sees the old file or the new, never a half."""
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise UserError(f"cannot save a dataset as '{path}': give a path that ends in .npz.")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            np.savez(file, **_members(dataset))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"cannot write '{path}': {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def load_npz(path: str | Path) -> Dataset:
    path = Path(path)
    if not path.exists():
        raise UserError(f"there is no file '{path}': check the path.")
    if path.is_dir():
        raise UserError(f"'{path}' is a folder: give the path of an .npz file in it.")
    arrays, unread = _read_members(path)
    try:
        return Dataset.from_arrays({"name": path.stem, **arrays}, unread)
    except UserError as error:
        raise UserError(f"in '{path}', {error}") from None


def _members(dataset: Dataset) -> dict[str, Any]:
    members: dict[str, Any] = {
        "observations": dataset.obs,
        "actions": dataset.action,
        "rewards": dataset.reward,
        "next_observations": dataset.next_obs,
        "terminals": dataset.terminal,
        "timeouts": dataset.timeout,
        "action_low": dataset.action_low,
        "action_high": dataset.action_high,
        "name": np.array(dataset.name),
    }
    if not dataset.next_known.all():
        members["next_known"] = dataset.next_known
    if dataset.task is not None:
        members["task"] = np.array(dataset.task)
    if dataset.notes:
        members["notes"] = np.array(dataset.notes)
    return members


def _read_members(path: Path) -> tuple[dict[str, np.ndarray], list[str]]:
    """The arrays with known names, and the names of the others, which stay on disk."""
    member = "the list of its arrays"
    try:
        with open(path, "rb") as file:  # opened here, as NumPy forgets to close a file that it cannot read
            if file.read(2) != ZIP_MAGIC:
                raise UserError(f"'{path}' is not an NPZ file: write it with numpy.savez or pspo.data.save_npz.")
            file.seek(0)
            with np.load(file, allow_pickle=False) as npz:
                arrays = {}
                for member in sorted(KNOWN_KEYS.intersection(npz.files)):
                    arrays[member] = npz[member]
                return arrays, [key for key in npz.files if key not in KNOWN_KEYS]
    except PermissionError:
        raise UserError(f"'{path}' may not be read: ask for permission to read it.") from None
    except DAMAGE as error:
        if "allow_pickle" in str(error):
            raise UserError(
                f"'{path}' holds pickled objects in '{member}', which are never loaded as they can run code: "
                "save it as an array of numbers."
            ) from None
        raise UserError(f"'{path}' is truncated or damaged, {member} cannot be read: copy or write it again.") from None
