"""Datasets in D4RL's HDF5 layout: one array per quantity at the top level, read in place, written all or nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.core.files import parse_json, replacing, require_space
from pspo.data.columns import Columns
from pspo.data.d4rl_layout import KNOWN_KEYS, arrays_for_d4rl
from pspo.data.dataset import Dataset
from pspo.data.readers.mapped import mapped_dataset
from pspo.data.readers.reading import naming, require_file, require_room

SUFFIXES = (".hdf5", ".h5")
USUAL_GROUPS = ("infos", "metadata")  # of D4RL's own files; nothing in them is needed
TEXTS = "pspo"  # the attribute with name, task and notes as JSON; files of others may have them one by one
BLOCK_BYTES = 1 << 24
OVERHEAD_BYTES = 1 << 14  # of a file's structure and texts, about
MOST_TEXTS = 1000  # in one array: names and notes, and each may be as long as the file
# All that h5py is known to raise on a damaged file.
DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, MemoryError, OverflowError)


def load_hdf5(path: str | Path, columns: Columns | None = None) -> Dataset:
    import h5py

    path = Path(path)
    require_file(path)
    if not h5py.is_hdf5(path):
        raise UserError(f"'{path}' is not an HDF5 file: check how it was written.")
    with naming(path):
        try:
            with h5py.File(path, "r") as file:
                return _read(file, path, columns)
        except DAMAGE as error:
            raise UserError(f"the file is truncated or damaged ({_reason(error)}): copy or write it again.") from None


def _read(file: Any, path: Path, columns: Columns | None) -> Dataset:
    labels = {"name": path.stem, **_labels(file.attrs)}
    names = [str(key) for key in file]
    _require_room(file, path, names if columns is not None else [key for key in names if key in KNOWN_KEYS])
    if columns is not None:
        arrays = [key for key in names if key not in USUAL_GROUPS]
        return mapped_dataset(
            [*labels, *arrays], lambda key: labels[key] if key in labels else _array(file, key), columns, path.stem
        )
    unread = [key for key in names if key not in KNOWN_KEYS and key not in USUAL_GROUPS]
    return Dataset.from_arrays(labels | {key: _array(file, key) for key in names if key in KNOWN_KEYS}, unread)


def _require_room(file: Any, path: Path, names: list[str]) -> None:
    """For the arrays that may be read, together; links are refused when it comes to them."""
    import h5py

    plain = [name for name in names if isinstance(file.get(name, getlink=True), h5py.HardLink)]
    arrays = [found for name in plain if isinstance(found := file[name], h5py.Dataset)]
    require_room(sum(int(array.nbytes) for array in arrays if array.shape is not None), path.stat().st_size)


def _labels(attributes: Any) -> dict[str, Any]:
    found = {key: attributes[key] for key in ("action_low", "action_high") if key in attributes}
    if TEXTS in attributes:
        found |= parse_json(attributes[TEXTS])
    else:
        found |= {key: _label(attributes[key]) for key in ("name", "task", "notes") if key in attributes}
    return {key: value for key, value in found.items() if value is not None and not _is_empty(value)}


def _array(file: Any, key: str) -> Any:
    """One array, block by block straight into its final form; nothing outside of the file is ever opened."""
    import h5py

    link = file.get(key, getlink=True)
    if isinstance(link, h5py.SoftLink | h5py.ExternalLink):
        raise UserError(f"'{key}' is a link to '{link.path}', and links are not followed: copy the array itself.")
    found = file[key]
    if not isinstance(found, h5py.Dataset):
        raise UserError(f"'{key}' is a group: give an array.")
    if found.external or found.is_virtual:
        raise UserError(f"'{key}' is kept in another file, which is not opened: copy the array itself.")
    if found.shape is None:
        raise UserError(f"'{key}' is empty: give an array of numbers.")
    if found.dtype.kind not in "biuf":
        if (count := int(np.prod(found.shape))) > MOST_TEXTS:
            raise UserError(f"'{key}' holds {count} texts, and at most {MOST_TEXTS} are read: give numbers.")
        return _label(found[()])
    return _in_blocks(found)


def _in_blocks(found: Any) -> np.ndarray:
    if not found.shape:
        return found[()]
    array = np.empty(found.shape, bool if found.dtype.kind == "b" else np.float32)
    step = max(1, BLOCK_BYTES * len(found) // max(found.nbytes, 1)) if len(found) else 1
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which `check` reports as an error
        for start in range(0, len(found), step):
            array[start : start + step] = found[start : start + step]
    array.setflags(write=False)  # nobody else has it: the dataset need not copy it
    return array


def _label(value: Any) -> Any:
    """Texts come as bytes or as objects, alone or in arrays; numbers are left as they are."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.ndarray) and value.dtype.kind in "OS":
        return [_label(item) for item in value.reshape(-1).tolist()]
    return value


def _is_empty(value: Any) -> bool:
    return isinstance(value, str | list) and not value


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:160].rstrip(".") or type(error).__name__


def save_hdf5(dataset: Dataset, path: str | Path, attributes: Mapping[str, Any] | None = None) -> Path:
    """Arrays under D4RL's names; name, task, action bounds and `attributes` (texts and numbers) beside them.

    Not compressed: noisy floats hardly shrink, and reading stays as fast as the disk.
    """
    import h5py

    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"cannot save a dataset as '{path}': give a path that ends in .hdf5.")
    texts = {"name": dataset.name, "task": dataset.task, "notes": list(dataset.notes)}
    facts: dict[str, Any] = {"name": dataset.name, "task": dataset.task or ""}
    facts |= {"action_low": dataset.action_low, "action_high": dataset.action_high, **(attributes or {})}
    # This version of the format has checksums in its structure, so that damage is noticed where the library might
    # otherwise crash on it. Texts of any length lie outside of it: what the reader needs is one of a fixed length.
    arrays = arrays_for_d4rl(dataset)
    with replacing(path) as temporary:
        require_space(temporary, OVERHEAD_BYTES + sum(array.nbytes for array in arrays.values()))
        try:
            with h5py.File(temporary, "w", libver=("v110", "v110")) as file:
                for name, array in arrays.items():
                    file.create_dataset(name, data=array)
                for name, value in {**facts, TEXTS: np.bytes_(json.dumps(texts))}.items():
                    file.attrs[name] = value
        except RuntimeError as error:  # h5py's word for a disk that is full when the file is closed
            raise OSError(str(error)) from error
    return path
