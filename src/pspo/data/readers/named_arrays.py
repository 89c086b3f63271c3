"""A dataset from named arrays, such as those of an NPZ or HDF5 file, whose roles the user gives as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.data.arrays import frozen_flags, require_same_rows
from pspo.data.columns import Columns, choose, listed
from pspo.data.d4rl_layout import LABELS, fields_from_d4rl, read_notes
from pspo.data.dataset import Dataset
from pspo.data.episode_ends import mark_ends
from pspo.data.readers.tables import D4RL_NAMES, single_columns

FIXED_NAMES = frozenset((*LABELS, "action_low", "action_high", "next_known"))  # these names need no role


def dataset_from_named_arrays(names: Iterable[str], read: Callable[[str], Any], columns: Columns, name: str) -> Dataset:
    """`read` returns the array of a name: one axis is a column, two axes are several columns."""
    names = [str(key) for key in names]
    chosen = choose([key for key in names if key not in FIXED_NAMES], columns)
    arrays: dict[str, Any] = {}
    axes: dict[str, int] = {}
    for role in D4RL_NAMES:
        if role in chosen:
            parts = {key: np.asarray(read(key)) for key in chosen[role]}
            axes |= {key: part.ndim for key, part in parts.items()}
            joined = _side_by_side(parts)
            arrays[D4RL_NAMES[role]] = joined[:, None] if joined.ndim == 1 and role != "reward" else joined
    flags = {role: _flags(chosen[role][0], read, arrays) for role in ("terminal", "timeout") if role in chosen}
    episode = _numbered(chosen["episode"][0], read, arrays) if "episode" in chosen else None
    terminal, timeout, notes = mark_ends(len(arrays["observations"]), chosen, flags, episode)
    fixed = {key: read(key) for key in names if key in FIXED_NAMES}
    used = {key for members in chosen.values() for key in members}
    if unused := [key for key in names if key not in used and key not in FIXED_NAMES]:
        notes.append(f"arrays that are not used: {listed(unused)}.")
    notes = [*read_notes(fixed), *notes]
    column_names: dict[str, Any] = {
        f"{role}_names": single_columns(chosen[role], axes.__getitem__) for role in ("obs", "action")
    }
    labels = {"name": name, **fixed, "terminals": terminal, "timeouts": timeout, "notes": notes}
    return Dataset(**fields_from_d4rl({**labels, **arrays}), **column_names)


def _side_by_side(parts: dict[str, np.ndarray]) -> np.ndarray:
    (first, array), *others = parts.items()
    if single := [key for key, part in parts.items() if part.ndim == 0]:
        raise UserError(f"array '{single[0]}' is a single value: give one row per transition.")
    for key, other in others:
        require_same_rows(key, other, first, array)
    if not others:
        return array
    if any(part.dtype.kind not in "biuf" or part.ndim not in (1, 2) for part in parts.values()):
        raise UserError(f"arrays {listed(parts)} cannot be put side by side: give numbers with one or two axes.")
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which `check` reports as an error
        return np.column_stack([part.astype(np.float32) for part in parts.values()])


def _flags(key: str, read: Callable[[str], Any], arrays: dict[str, Any]) -> np.ndarray:
    array = frozen_flags(key, read(key))
    require_same_rows(key, array, "observations", arrays["observations"])
    return array


def _numbered(key: str, read: Callable[[str], Any], arrays: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The episode number of each row, and the label of each number."""
    array = np.asarray(read(key))
    if array.ndim != 1 or array.dtype.kind not in "biufSU":
        raise UserError(f"array '{key}' cannot number episodes: give it one axis, and numbers or texts.")
    require_same_rows(key, array, "observations", arrays["observations"])
    labels, number = np.unique(array, return_inverse=True)
    return number, labels
