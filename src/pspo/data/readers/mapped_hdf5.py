"""HDF5 files whose tables stay in the file, because they do not fit into memory: it then maps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pspo.data.mapped import MappedFile

TABLES = ("observations", "actions", "next_observations")  # the rest is one number per row, and read as always
FLOAT32 = np.dtype("<f4")
MAPPED_SHARE = 16
"""Bytes of memory per transition that count for data in a mapped file, where `require_memory` counts the arrays of
others."""


def map_tables(file: Any, path: Path) -> dict[str, np.ndarray]:
    """The tables of an opened file, mapped; none if one of them cannot be.

    They must be there as they are used: float32, in one piece, with the next state of every row. Such a file is
    written by `save_dataset`, or with h5py, piece by piece, where the data are larger than any memory.
    """
    if "next_known" in file or not all(_is_plain(file, name) for name in TABLES):
        return {}
    mapped = MappedFile.of(path)
    tables = {name: mapped.array(file[name].shape, FLOAT32, file[name].id.get_offset()) for name in TABLES}
    return tables if all(_agree(table, file[name]) for name, table in tables.items()) else {}


def _is_plain(file: Any, name: str) -> bool:
    """Whether it is a table of this very file, neither compressed nor in pieces."""
    import h5py

    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        return False
    stored = file[name]
    return (
        isinstance(stored, h5py.Dataset)
        and stored.ndim == 2
        and stored.dtype == FLOAT32
        and not stored.external
        and not stored.is_virtual
        and bool(stored.size)
        and stored.id.get_offset() is not None  # which it is in chunks, compressed ones among them
    )


def _agree(table: np.ndarray, stored: Any) -> bool:
    """Whether the first and last row are what HDF5 reads there."""
    return all(np.array_equal(table[row], stored[row], equal_nan=True) for row in (0, len(table) - 1))
