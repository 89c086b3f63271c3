"""Datasets in D4RL's HDF5 layout: one array per quantity at the top level, written all or nothing."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pspo.data.dataset import Dataset
from pspo.errors import UserError

SUFFIXES = (".hdf5", ".h5")


def save_hdf5(dataset: Dataset, path: str | Path, attributes: Mapping[str, Any]) -> Path:
    """Arrays under D4RL's names; name, task, action bounds and `attributes` (texts and numbers) beside them.

    Not compressed: noisy floats hardly shrink, and reading stays as fast as the disk.
    """
    import h5py

    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"cannot save a dataset as '{path}': give a path that ends in .hdf5.")
    arrays = {
        "observations": dataset.obs,
        "actions": dataset.action,
        "rewards": dataset.reward,
        "next_observations": dataset.next_obs,
        "terminals": dataset.terminal,
        "timeouts": dataset.timeout,
    }
    facts = {"name": dataset.name, "task": dataset.task or ""}
    facts |= {"action_low": dataset.action_low, "action_high": dataset.action_high, **attributes}
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with h5py.File(temporary, "x") as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array)
            for name, value in facts.items():
                file.attrs[name] = value
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"cannot write '{path}': {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)
    return path
