"""A dataset from named arrays, such as those of an NPZ or HDF5 file, whose roles the user gives as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pspo.core.column_names import listed
from pspo.core.errors import UserError
from pspo.data.action_mask import with_mask
from pspo.data.arrays import frozen_flags, require_same_rows
from pspo.data.columns import Columns, choose, without_ignored
from pspo.data.d4rl_layout import (
    COLUMN_NAMES,
    DISCRETE,
    ENCODER,
    LABELS,
    PER_ROW,
    TIME_LABELS,
    fields_from_d4rl,
    read_notes,
)
from pspo.data.dataset import Dataset
from pspo.data.encode_arrays import FIT, Encoding, encode_arrays
from pspo.data.episode_ends import mark_ends
from pspo.data.offsets import float32_keeps_less, is_wide
from pspo.data.readers.identifiers import episodes_from_arrays, times_from_array
from pspo.data.readers.tables import D4RL_NAMES, ONE_NUMBER, single_columns
from pspo.data.row_keys import row_keys
from pspo.data.row_names import row_name
from pspo.data.time_order import order_in_time

# These need no role.
FIXED_NAMES = frozenset((*LABELS, *COLUMN_NAMES, *DISCRETE, ENCODER, "action_low", "action_high", "next_known"))
FIXED_NAMES |= {*PER_ROW, *TIME_LABELS}


def fixed_names(columns: Columns) -> frozenset[str]:
    """Those of arrays that need no role here. What a file of our own tells of its rows has a role where it is named: a
    user's array may be called row_times.
    """
    named = {pattern for patterns in (*columns.roles().values(), columns.ignore) for pattern in patterns}
    return FIXED_NAMES - named.intersection((*PER_ROW, *TIME_LABELS))


def dataset_from_named_arrays(
    names: Iterable[str],
    read: Callable[[str], Any],
    columns: Columns,
    name: str,
    read_exactly: Callable[[str], Any] | None = None,
    encoding: Encoding = FIT,
) -> Dataset:
    """`read` returns the array of a name: one axis is a column, two axes are several columns.

    `read_exactly` does the same without rounding to float32, for episodes and times.
    """
    names = [str(key) for key in names]
    read_exactly = read_exactly or read
    without_role = fixed_names(columns)
    chosen = choose([key for key in names if key not in without_role], columns)
    arrays, axes = _chosen_arrays(chosen, read)
    flags = {role: _flags(chosen[role][0], read, arrays) for role in ("terminal", "timeout") if role in chosen}
    rows, origin, cut, notes = len(arrays["observations"]), {}, None, []
    identifiers = {
        key: _identifier(key, read_exactly, rows) for role in ("episode", "time") for key in chosen.get(role, ())
    }
    episode = episodes_from_arrays({k: identifiers[k] for k in chosen["episode"]}) if "episode" in chosen else None
    if "time" in chosen:
        times = times_from_array(chosen["time"][0], identifiers[chosen["time"][0]], row_name)
        order = order_in_time(times, episode and episode[0], _keys(arrays, flags), row_name)
        arrays = {key: array[order.rows] for key, array in arrays.items()}
        flags = {role: array[order.rows] for role, array in flags.items()}
        episode = episode and (episode[0][order.rows], episode[1])
        rows, cut, notes = len(order.rows), order.cut, order.notes
        origin = {"source_rows": order.rows, "row_times": times.array[order.rows], "time_name": times.column}
    terminal, timeout, more = mark_ends(
        rows, chosen, flags, episode, cut, lambda row: row_name(int(origin["source_rows"][row]) if origin else row)
    )
    notes += more
    # Names of columns that a file holds are those of its own layout, not of the columns that were chosen.
    own_layout = (*COLUMN_NAMES, *PER_ROW, *TIME_LABELS)  # of its own rows, which may be others now
    fixed = {key: read(key) for key in names if key in without_role and key not in own_layout}
    used = {key for members in chosen.values() for key in members}
    visible = without_ignored(names, columns)
    if unused := [key for key in visible if key not in used and (key in PER_ROW or key not in without_role)]:
        notes.append(f"arrays that are not used: {listed(unused)}.")
    notes = [*read_notes(fixed), *notes]
    column_names: dict[str, Any] = {
        f"{role}_names": single_columns(chosen[role], axes.__getitem__) for role in ("obs", "action")
    }
    labels = {
        "name": name,
        **fixed,
        **({} if chosen["reward"] == ["rewards"] else {"reward_name": chosen["reward"][0]}),
        **columns.bounds(),
        **origin,
        "terminals": terminal,
        "timeouts": timeout,
        "notes": notes,
    }
    arrays = {**labels, **arrays, **column_names}
    encoder = encode_arrays(arrays, encoding)
    return with_mask(Dataset(**fields_from_d4rl(arrays, discrete=columns.is_discrete), encoder=encoder), columns.mask)


def _chosen_arrays(chosen: dict[str, list[str]], read: Callable[[str], Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """Arrays by D4RL's names, and how many axes each array of the file has."""
    arrays: dict[str, Any] = {}
    axes: dict[str, int] = {}
    for role in D4RL_NAMES:
        if role in chosen:
            parts = {key: np.asarray(read(key)) for key in chosen[role]}
            axes |= {key: part.ndim for key, part in parts.items()}
            joined = _side_by_side(parts)
            arrays[D4RL_NAMES[role]] = joined[:, None] if joined.ndim == 1 and role not in ONE_NUMBER else joined
    return arrays, axes


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
        return np.column_stack([_narrow(part) for part in parts.values()])


def _narrow(part: np.ndarray) -> np.ndarray:
    """As float32; unchanged if float32 would round away how its numbers differ."""
    columns, narrow = part.reshape(len(part), -1), part.astype(np.float32)
    return part if is_wide(part) and float32_keeps_less(narrow, lambda c: columns[:, c]) else narrow


def _flags(key: str, read: Callable[[str], Any], arrays: dict[str, Any]) -> np.ndarray:
    array = frozen_flags(key, read(key))
    require_same_rows(key, array, "observations", arrays["observations"])
    return array


def _identifier(key: str, read: Callable[[str], Any], rows: int) -> np.ndarray:
    """An array of episodes or times."""
    array = np.asarray(read(key))
    if array.ndim != 1 or array.dtype.kind not in "biufSUM":
        raise UserError(f"array '{key}' cannot number episodes or times: give it one axis, and numbers or texts.")
    if len(array) != rows:
        raise UserError(
            f"array '{key}' has {len(array)} rows where 'observations' has {rows}: give one per transition."
        )
    return array


def _keys(arrays: dict[str, Any], flags: dict[str, np.ndarray]) -> np.ndarray:
    """A hash per row."""
    with np.errstate(over="ignore"):
        return row_keys([np.ascontiguousarray(part, np.float32) for part in (*arrays.values(), *flags.values())])
