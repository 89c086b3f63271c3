"""A hash per row of several arrays, to find rows that are equal in all of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def row_keys(arrays: Iterable[np.ndarray]) -> np.ndarray:
    """(rows,) uint64 for float32 and bool arrays with one row each: sorting these is much faster than sorting rows.

    Two of a million different rows share a hash with a probability of about 3e-8, which is good enough for a warning.
    """
    key: np.ndarray | None = None
    for values in arrays:
        key = np.zeros(len(values), dtype=np.uint64) if key is None else key
        columns = values.reshape(len(values), -1)
        for column in columns.view(np.uint32 if columns.dtype == np.float32 else np.uint8).T:
            key ^= column
            key *= np.uint64(0x9E3779B97F4A7C15)  # odd, so that no bit is lost; overflows at 2**64
            key ^= key >> np.uint64(29)  # bring the well mixed high bits down to where the next column enters
    assert key is not None
    return key
