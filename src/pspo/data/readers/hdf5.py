"""Datasets in D4RL's HDF5 layout: one array per quantity at the top level. Files are written atomically."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.core.files import parse_json, replacing, require_space
from pspo.data.columns import Columns, natural_key
from pspo.data.d4rl_layout import (
    ENCODER,
    KNOWN_KEYS,
    MAX_CHARACTERS,
    arrays_for_d4rl,
    stored_actions,
    time_labels,
    too_long,
)
from pspo.data.dataset import Dataset
from pspo.data.encode_arrays import FIT, Encoding
from pspo.data.offsets import float32_keeps_less, is_wide
from pspo.data.readers.file_checks import (
    bytes_in_memory,
    fits_into_memory,
    naming,
    require_file,
    require_memory,
    require_room,
)
from pspo.data.readers.mapped_hdf5 import MAPPED_SHARE, map_tables
from pspo.data.readers.named_arrays import dataset_from_named_arrays

SUFFIXES = (".hdf5", ".h5")
USUAL_GROUPS = ("infos", "metadata")  # of D4RL's own files; nothing in them is needed
TEXTS = "pspo"  # the attribute with name, task and notes as JSON; files of other programs may have one attribute each
BLOCK_BYTES = 1 << 24
OVERHEAD_BYTES = 1 << 14  # of a file's structure and texts, roughly
MAX_TEXTS, MAX_NOTES = 1000, 100  # in one array, in one attribute; each text may be as long as the file
# All that h5py is known to raise on a damaged file.
DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, MemoryError, OverflowError)


def load_hdf5(path: str | Path, columns: Columns | None = None, encoding: Encoding = FIT) -> Dataset:
    """The dataset of an HDF5 file."""
    import h5py

    path = Path(path)
    require_file(path)
    if not h5py.is_hdf5(path):
        raise UserError(f"'{path}' is not an HDF5 file: check how it was written.")
    with naming(path):
        try:
            with h5py.File(path, "r") as file:
                return _read(file, path, columns, encoding)
        except DAMAGE as error:
            raise UserError(f"the file is truncated or damaged ({_reason(error)}): copy or write it again.") from None


def _read(file: Any, path: Path, columns: Columns | None, encoding: Encoding) -> Dataset:
    labels = {"name": path.stem, **_labels(file.attrs)}
    names = [str(key) for key in file]
    if not file["/"].id.get_create_plist().get_link_creation_order():  # then names are listed by alphabet
        names.sort(key=natural_key)
    wanted = names if columns is not None else [key for key in names if key in KNOWN_KEYS]
    size = _require_room(file, path, wanted)
    tables: dict[str, Any] = {}
    if not fits_into_memory(size):
        tables = {} if columns is not None else map_tables(file, path)
        require_memory(MAPPED_SHARE * len(tables["observations"]) if tables else size)
    if columns is not None:
        arrays = [key for key in names if key not in USUAL_GROUPS]
        return dataset_from_named_arrays(
            [*labels, *arrays],
            lambda key: labels[key] if key in labels else _array(file, key),
            columns,
            path.stem,
            lambda key: _array(file, key, exact=True),
            encoding,
        )
    unread = [key for key in names if key not in KNOWN_KEYS and key not in USUAL_GROUPS]
    loaded = {key: _array(file, key, exact=key == "row_times") for key in wanted if key not in tables}
    loaded = labels | loaded | tables
    return Dataset.from_arrays(loaded, unread, encoding)


def _require_room(file: Any, path: Path, names: list[str]) -> int:
    """The bytes in memory of all arrays that may be read, which the file must hold; links are refused later."""
    import h5py

    plain = [name for name in names if isinstance(file.get(name, getlink=True), h5py.HardLink)]
    arrays = [item for name in plain if isinstance(item := file[name], h5py.Dataset)]
    arrays = [array for array in arrays if array.shape is not None]
    require_room(sum(int(array.nbytes) for array in arrays), path.stat().st_size)
    return bytes_in_memory({str(array.name): int(np.prod(array.shape)) for array in arrays})


def _labels(attributes: Any) -> dict[str, Any]:
    stored = {key: attributes[key] for key in ("action_low", "action_high") if key in attributes}
    if TEXTS in attributes:
        stored |= parse_json(attributes[TEXTS])
    else:
        stored |= {key: _text_attribute(attributes, key) for key in ("name", "task", "notes") if key in attributes}
    return {key: value for key, value in stored.items() if value is not None and not _is_empty(value)}


def _text_attribute(attributes: Any, key: str) -> Any:
    """An attribute is read as a whole, so its number of texts is checked first."""
    if int(np.prod(attributes.get_id(key).shape or ())) > MAX_NOTES:
        raise too_long(key)
    return _label(attributes[key])


def _array(file: Any, key: str, exact: bool = False) -> Any:
    """One array, read block by block, `exact` in its own type; nothing outside of the file is ever opened."""
    import h5py

    link = file.get(key, getlink=True)
    if isinstance(link, h5py.SoftLink | h5py.ExternalLink):
        raise UserError(f"'{key}' is a link to '{link.path}', and links are not followed: copy the array itself.")
    stored = file[key]
    if not isinstance(stored, h5py.Dataset):
        raise UserError(f"'{key}' is a group: give an array.")
    if stored.external or stored.is_virtual:
        raise UserError(f"'{key}' is kept in another file, which is not opened: copy the array itself.")
    if stored.shape is None:
        raise UserError(f"'{key}' is empty: give an array of numbers.")
    if key == "actions" and stored.ndim == 1 and stored.dtype.kind in "biu":
        return stored[()]  # labels keep their digits
    if stored.dtype.kind not in "biuf":
        return _texts(key, stored)
    return stored[()] if exact else _read_numbers(stored)


def _texts(key: str, stored: Any) -> Any:
    """Read one by one: many texts may be one long text of the file, which would take its size many times."""
    import h5py

    if h5py.check_string_dtype(stored.dtype) is None:
        kind = "references or lists" if stored.dtype.kind == "O" else f"values of type {stored.dtype}"
        raise UserError(f"'{key}' holds {kind}: give real numbers.")
    if (count := int(np.prod(stored.shape))) > MAX_TEXTS:
        raise UserError(f"'{key}' holds {count} texts, and at most {MAX_TEXTS} are read: give numbers.")
    if stored.dtype.kind != "O" or not stored.shape:
        return _label(stored[()])
    texts, length = [], 0
    for index in np.ndindex(stored.shape):
        texts.append(_label(stored[index]))
        if (length := length + len(str(texts[-1]))) > MAX_CHARACTERS:
            raise too_long(key)
    return texts


def _read_numbers(stored: Any) -> np.ndarray:
    """As float32; or in float64, if float32 would round away how the numbers of a column differ."""
    if not stored.shape:
        return stored[()]
    array = _read_blocks(stored, np.dtype(bool if stored.dtype.kind == "b" else np.float32))
    if not is_wide(stored) or stored.ndim > 2 or not array.size:
        return array
    rounded = float32_keeps_less(array, lambda c: stored[:, c] if stored.ndim == 2 else stored[:])
    return _read_blocks(stored, np.dtype(np.float64)) if rounded else array


def _read_blocks(stored: Any, dtype: np.dtype) -> np.ndarray:
    array = np.empty(stored.shape, dtype)
    step = max(1, BLOCK_BYTES * len(stored) // max(stored.nbytes, 1)) if len(stored) else 1
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which `check` reports as an error
        for start in range(0, len(stored), step):
            array[start : start + step] = stored[start : start + step]
    array.setflags(write=False)  # no other references: the dataset need not copy it
    return array


def _label(value: Any) -> Any:
    """Texts, which come as bytes or objects, alone or in arrays; numbers are returned unchanged."""
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
    names: dict[str, Any] = {"obs_names": list(dataset.obs_names), "action_names": list(dataset.action_names)}
    names |= {"reward_name": dataset.reward_name, **time_labels(dataset)}
    texts |= {key: value for key, value in names.items() if value}
    texts |= {} if dataset.encoder is None else {ENCODER: dataset.encoder.as_json()}
    metadata: dict[str, Any] = {"name": dataset.name, "task": dataset.task or ""}
    if dataset.discrete:
        texts |= {key: array.tolist() for key, array in stored_actions(dataset).items()}
    else:
        metadata |= stored_actions(dataset)
    metadata |= attributes or {}
    # This version of the format has checksums in its structure, so that damage is noticed where the library might
    # otherwise crash. Texts of variable length are not covered: what the reader needs has a fixed length.
    arrays = arrays_for_d4rl(dataset)
    with replacing(path) as temporary:
        require_space(temporary, OVERHEAD_BYTES + sum(array.nbytes for array in arrays.values()))
        try:
            with h5py.File(temporary, "w", libver=("v110", "v110")) as file:
                for name, array in arrays.items():
                    file.create_dataset(name, data=array)
                for name, value in {**metadata, TEXTS: np.bytes_(json.dumps(texts))}.items():
                    file.attrs[name] = value
        except RuntimeError as error:  # what h5py raises if the disk is full when the file is closed
            raise OSError(str(error)) from error
    return path
