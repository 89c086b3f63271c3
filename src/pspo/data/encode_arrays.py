"""Observations that are given as arrays of numbers, encoded: by a given encoder, by a file's own, or by a new one."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from pspo.core.column_names import positions
from pspo.core.errors import UserError
from pspo.core.files import parse_json
from pspo.core.masked_arrays import without_mask
from pspo.data.arrays import require_a_name_each
from pspo.data.d4rl_layout import COLUMN_NAMES, ENCODER, read_notes
from pspo.data.encoder import Encoder, encoder_from_json, offset_encoder
from pspo.data.offsets import lost_notes, offsets_of, rounding_notes, subtract

FIT: Literal["fit"] = "fit"
Encoding = Encoder | Literal["fit"] | None
"""How to encode: by this encoder; by one that is fitted to the data, if they need one; or not at all."""


def encode_arrays(arrays: dict[str, Any], encoding: Encoding) -> Encoder | None:
    """Replace the observations of arrays under D4RL's names by encoded ones; returns the encoder, if there is one.

    What cannot be encoded is left as it is, for the dataset to refuse.
    """
    arrays |= {name: without_mask(array) for name, array in arrays.items()}
    stored = arrays.pop(ENCODER, None)
    if stored is not None:
        return require_same(stored_encoder(stored), encoding, str(arrays.get("name", "the dataset")))
    if "observations" not in arrays:
        return None
    rounded = rounding_notes({"action": arrays.get("actions"), "reward": arrays.get("rewards")})
    names = [str(name) for name in np.ravel(arrays.get(COLUMN_NAMES[0], ()))]
    raw = arrays["observations"], arrays.get("next_observations")
    if encoding == FIT:
        offset = offsets_of(*raw)
        if offset is not None:
            require_a_name_each(COLUMN_NAMES[0], names, len(offset))
        encoding = None if offset is None else offset_encoder(offset, names)
    if encoding is not None:
        for key in ("observations", "next_observations"):
            if key in arrays:
                arrays[key] = _encode(key, arrays[key], names, encoding)
    rounded += lost_notes(_raw_offsets(encoding, names), *raw, names)
    if rounded:
        arrays["notes"] = [*read_notes(arrays), *rounded]
    return encoding


def _raw_offsets(encoder: Encoder | None, names: list[str]) -> np.ndarray | None:
    """What is subtracted from each raw column, in the order of `names`; NaN where no number is stored."""
    if encoder is None:
        return None
    offsets = [np.nan if column.cyclic else column.offset for column in encoder.columns]
    if names and encoder.raw_names:
        by_name = dict(zip(encoder.raw_names, offsets, strict=True))
        offsets = [by_name[name] for name in names if name in by_name]
    return np.array(offsets)


def _encode(key: str, table: Any, names: list[str], encoder: Encoder) -> Any:
    """Raw numbers (rows, columns) as encoded ones."""
    table, columns = np.asarray(table), len(encoder.columns)
    if names and encoder.raw_names and names != [*encoder.raw_names]:
        table = table[:, positions(names, [*encoder.raw_names], f"'{key}'")]
    if encoder.takes_texts or table.dtype.kind not in "biuf" or table.ndim != 2 or table.shape[1] != columns:
        raise UserError(
            f"'{key}' has shape {table.shape} and type {table.dtype}, and the data of the run have {columns} columns"
            f"{', some of them texts' if encoder.takes_texts else ''}: give data with the same columns."
        )
    if encoder.only_offsets:
        return subtract(table, encoder.offsets)
    return encoder.encode([column.astype(np.float64) for column in table.T])


def stored_encoder(stored: Any) -> Encoder:
    """The encoder of a file, as JSON."""
    try:
        text = stored.item() if isinstance(stored, np.ndarray) else stored
        return encoder_from_json(parse_json(text) if isinstance(text, str) else text)
    except (ValueError, TypeError) as problem:
        raise UserError(f"the encoder in the file cannot be used ({problem}): write the file again.") from None


def require_same(own: Encoder | None, wanted: Encoding, name: str) -> Encoder | None:
    """Observations that are encoded already can only be used by what has the same encoder."""
    if wanted not in (FIT, own):
        or_build = ", or build the Dataset with encoder=None" if wanted is None else ""
        raise UserError(
            f"'{name}' was not encoded as the data of the run: give the file, the data frame or the arrays "
            f"themselves, which are then encoded as those were{or_build}."
        )
    return own
