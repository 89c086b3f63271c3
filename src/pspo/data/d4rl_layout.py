"""Arrays under D4RL's names, to and from a dataset; what data often lack is filled in."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pspo.core.errors import UserError
from pspo.data.arrays import frozen_flags, frozen_floats, require_same_columns, require_same_rows
from pspo.data.discrete import label_array, one_hot_actions
from pspo.data.next_states import complete_next_states
from pspo.data.time_order import SECONDS

if TYPE_CHECKING:
    from pspo.data.dataset import Dataset

REQUIRED = ("observations", "actions", "rewards", "terminals")
OPTIONAL_ARRAYS = ("next_observations", "next_known", "timeouts", "action_low", "action_high", "propensity")
ORIGIN = ("source_rows", "files")  # of rows in a table: known to its reader, never stored
LABELS = ("name", "task", "notes", "reward_name")
PER_ROW = ("row_times", "last_reward")  # what else a dataset knows of its rows: only files of our own have it
OWN_COLUMNS = "own_columns"  # of a Parquet file of our own: which of PER_ROW are columns of it
TIME_LABELS = ("time_name", "time_unit")  # the unit of datetime64, as files hold the times as numbers
COLUMN_NAMES = ("obs_names", "action_names")
ENCODER = "encoder"  # of files whose observations are encoded: the encoder as JSON
MAX_CHARACTERS = 1_000_000  # of all names or notes together: 20,000 columns may have names
DISCRETE = ("action_labels", "action_mask")
KNOWN_KEYS = frozenset(
    (*REQUIRED, *OPTIONAL_ARRAYS, *LABELS, *COLUMN_NAMES, *DISCRETE, ENCODER, *PER_ROW, *TIME_LABELS)
)


def fields_from_d4rl(
    arrays: dict[str, Any], unread: Iterable[str] = (), discrete: bool | None = None
) -> dict[str, Any]:
    """The arguments of `Dataset`. `unread` names arrays that the source has but that were not loaded; `discrete` says
    whether actions are labels or quantities, where the user said so.

    Arrays are removed from `arrays`, so that memory is freed early where rows are dropped.
    """
    unread = [*unread, *(str(key) for key in arrays if key not in KNOWN_KEYS and key not in ORIGIN)]
    _require_keys(arrays, unread)
    notes = read_notes(arrays)
    if unread:
        notes.append(_unread_note(unread))

    known = arrays.get("action_labels", ())
    coded, action_notes = one_hot_actions(arrays["actions"], discrete, known)
    notes.extend(action_notes)
    actions = arrays.pop("actions")
    if coded is None and discrete is False and np.ndim(actions) == 1:
        actions = np.asarray(actions)[:, None]
    fields: dict[str, Any] = {
        "obs": frozen_floats("observations", arrays.pop("observations"), axes=2),
        "action": frozen_floats("actions", coded.one_hot() if coded else actions, axes=2),
        "reward": frozen_floats("rewards", arrays.pop("rewards"), axes=1),
        "terminal": frozen_flags("terminals", arrays["terminals"]),
    }
    no_timeouts = np.zeros(len(fields["obs"]), dtype=bool)
    fields["timeout"] = frozen_flags("timeouts", arrays.get("timeouts", no_timeouts))
    for key, array in zip((*REQUIRED[1:], "timeouts"), list(fields.values())[1:], strict=True):
        require_same_rows(key, array, "observations", fields["obs"])
    if arrays.get("propensity") is not None:
        fields["propensity"] = frozen_floats("propensity", arrays.pop("propensity"), axes=1)
        require_same_rows("propensity", fields["propensity"], "observations", fields["obs"])
    fields |= {key: arrays[key] for key in ORIGIN if key in arrays} | _per_row(arrays, fields["timeout"])
    if coded:
        fields["action_low"] = fields["action_high"] = None
    else:
        fields["action_low"], fields["action_high"], bounds_note = _bounds(arrays, fields["action"])
        notes.extend(bounds_note)
    fields, next_notes = _next_states(arrays, fields)
    notes.extend(next_notes)

    labels = {key: _text(key, arrays[key]) for key in ("name", "task", "reward_name") if arrays.get(key) is not None}
    names = {key: _texts(key, arrays[key]) for key in COLUMN_NAMES if key in arrays}
    if coded:
        fields |= {"action_labels": coded.labels, "action_mask": arrays.get("action_mask", ())}
    return {**fields, **labels, **names, "notes": tuple(notes)}


def _per_row(arrays: dict[str, Any], timeout: np.ndarray) -> dict[str, Any]:
    """Times and rewards of dropped last rows, as the reader of a table or a file of our own has them."""
    fields: dict[str, Any] = {}
    if "last_reward" in arrays:
        last = fields["last_reward"] = frozen_floats("last_reward", arrays["last_reward"], axes=1)
        require_same_rows("last_reward", last, "timeouts", timeout)
        if elsewhere := np.flatnonzero(~np.isnan(last) & ~timeout).tolist():  # such as the reward of the row before
            raise UserError(
                f"the array 'last_reward' is {last[elsewhere[0]]:g} at row {elsewhere[0]}, where no episode is cut, "
                "so it is not what pspo writes: rename it or leave it out."
            )
    if "row_times" in arrays:
        times, unit = np.asarray(arrays["row_times"]), arrays.get("time_unit")
        if unit is not None and times.dtype.kind in "iu" and _text("time_unit", unit) in SECONDS:
            times = times.astype(np.int64).view(f"datetime64[{_text('time_unit', unit)}]")
        elif unit is not None or times.dtype.kind not in "iufM":
            raise UserError("the array 'row_times' is not what pspo writes: leave it out, or write the file again.")
        require_same_rows("row_times", times, "timeouts", timeout)
        fields |= {"row_times": times, "time_name": _text("time_name", arrays.get("time_name", ""))}
    return fields


def read_notes(arrays: Mapping[str, Any]) -> list[str]:
    """The notes of a file."""
    return _texts("notes", arrays.get("notes", ()))


def _texts(key: str, texts: Any) -> list[str]:
    """One text, or several in a list or in an array of any shape."""
    if isinstance(texts, np.ndarray):
        texts = texts.reshape(-1).tolist()
    elif isinstance(texts, str):
        texts = [texts]
    if not isinstance(texts, list | tuple):
        raise UserError(f"'{key}' is {type(texts).__name__}: give a list of texts.")
    strings = [str(text) for text in texts]
    if sum(map(len, strings)) > MAX_CHARACTERS:
        raise too_long(key)
    return strings


def too_long(key: str) -> UserError:
    """Notes are printed, and a file may claim any number of them."""
    return UserError(f"the texts of '{key}' have more than {MAX_CHARACTERS:,} characters: shorten them.")


def arrays_for_d4rl(dataset: Dataset) -> dict[str, np.ndarray]:
    """One row per transition; `next_known` only if some next states are unknown. Without bounds and labels.

    Discrete actions are one column: of numbers, or, where labels are texts, of their indices.
    """
    actions = dataset.action
    if dataset.discrete:
        codes, labels = dataset.action_codes, dataset.action_labels
        actions = codes if isinstance(labels[0], str) else label_array(labels)[codes]
    arrays = {
        "observations": dataset.obs,
        "actions": actions,
        "rewards": dataset.reward,
        "next_observations": dataset.next_obs,
        "terminals": dataset.terminal,
        "timeouts": dataset.timeout,
    }
    if dataset.propensity is not None:
        arrays["propensity"] = dataset.propensity
    if dataset.last_reward is not None:
        arrays["last_reward"] = dataset.last_reward
    if dataset.row_times is not None:
        dates = dataset.row_times.dtype.kind == "M"
        arrays["row_times"] = dataset.row_times.view(np.int64) if dates else dataset.row_times
    return arrays if dataset.next_known.all() else {**arrays, "next_known": dataset.next_known}


def time_labels(dataset: Dataset) -> dict[str, str]:
    """The name and the unit of the times in a file."""
    if dataset.row_times is None:
        return {}
    kind = dataset.row_times.dtype
    unit = {"time_unit": np.datetime_data(kind)[0]} if kind.kind == "M" else {}
    return {"time_name": dataset.time_name, **unit}


def stored_actions(dataset: Dataset) -> dict[str, np.ndarray]:
    """What a file keeps about the actions besides their rows: bounds, or labels and masks."""
    if not dataset.discrete:
        return {"action_low": dataset.action_low, "action_high": dataset.action_high}
    mask = {"action_mask": np.array(dataset.action_mask, np.float64)} if dataset.action_mask else {}
    return {"action_labels": label_array(dataset.action_labels), **mask}


def _require_keys(arrays: Mapping[str, Any], unread: list[str]) -> None:
    for key in REQUIRED:
        if key not in arrays:
            nearest = difflib.get_close_matches(key, unread, n=1, cutoff=0.4)
            present = ", ".join([*map(str, arrays), *(name for name in unread if name not in arrays)]) or "nothing"
            hint = f"rename '{nearest[0]}' if that is what it holds" if nearest else f"found only {present}"
            raise UserError(f"the array '{key}' is missing: {hint}.")
    # An optional array under a slightly wrong name would be ignored silently, and change what is learned.
    for key in OPTIONAL_ARRAYS:
        nearest = difflib.get_close_matches(key, unread, n=1, cutoff=0.85)
        if key not in arrays and nearest:
            raise UserError(f"the array '{nearest[0]}' would not be read: rename it to '{key}'.")


def _unread_note(unread: list[str]) -> str:
    shown = ", ".join(f"'{key}'" for key in sorted(unread)[:5])
    more = f" and {len(unread) - 5} more" if len(unread) > 5 else ""
    return f"arrays that are not used: {shown}{more}."


def _next_states(arrays: Mapping[str, Any], fields: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    if "next_observations" not in arrays:
        return complete_next_states(fields, np.zeros(len(fields["obs"]), dtype=bool))
    known = frozen_flags("next_known", arrays["next_known"]) if "next_known" in arrays else None
    if known is None or known.all():
        return {**fields, "next_obs": arrays["next_observations"]}, []
    next_obs = frozen_floats("next_observations", arrays["next_observations"], axes=2)
    require_same_rows("next_observations", next_obs, "observations", fields["obs"])
    require_same_columns("next_observations", next_obs, "observations", fields["obs"])
    require_same_rows("next_known", known, "observations", fields["obs"])
    return complete_next_states({**fields, "next_obs": next_obs}, known)


def _bounds(arrays: Mapping[str, Any], action: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
    given = [key for key in ("action_low", "action_high") if key in arrays]
    if len(given) == 1:
        raise UserError(f"only '{given[0]}' is given: give both 'action_low' and 'action_high', or neither.")
    columns = action.shape[1]
    if given:
        low, high = (_one_per_column(arrays[key], columns) for key in given)
        return low, high, []
    return guess_bounds(action)


BOUNDS_NOTE = "action bounds were not given"  # how the notes below begin
ENOUGH_ROWS = 100  # with fewer rows, the absence of negative actions may be chance


def guess_bounds(action: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """0 and 1, or -1 and 1, if all actions are within, else each column's smallest and largest; and a note."""
    columns = action.shape[1]
    finite = np.isfinite(action)
    low = action.min(axis=0, where=finite, initial=np.inf)
    high = action.max(axis=0, where=finite, initial=-np.inf)
    if len(action) >= ENOUGH_ROWS and (low >= 0).all() and (high <= 1).all():
        unit = np.zeros(columns, np.float32), np.ones(columns, np.float32)
        return *unit, ["action bounds were not given and are 0 and 1, as all actions are within."]
    if (low >= -1).all() and (high <= 1).all():
        return np.full(columns, -1, np.float32), np.full(columns, 1, np.float32), []
    if not (low < high).all():
        column = int((low >= high).argmax())
        raise UserError(
            f"bounds of the actions cannot be guessed, as column {column} of 'actions' never changes: "
            "give 'action_low' and 'action_high', or leave that column out."
        )
    return low, high, ["action bounds were not given and are the smallest and largest action of each column."]


def _one_per_column(bound: Any, columns: int) -> Any:
    """One number stands for all columns; everything else is checked by `Dataset`."""
    return np.full(columns, bound) if np.ndim(bound) == 0 else bound


def _text(key: str, value: Any) -> str:
    text = value.item() if isinstance(value, np.ndarray) and value.size == 1 else value
    if not isinstance(text, str):
        raise UserError(f"'{key}' is {type(text).__name__}: give it as text.")
    return text
