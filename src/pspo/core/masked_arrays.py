"""NumPy's masked arrays, as netCDF and HDF5 give them: for datasets, and for policies, which import no dataset."""

from __future__ import annotations

from typing import Any

import numpy as np


def without_mask(values: Any) -> Any:
    """A masked array with NaN, or None for what is no number, where NumPy would show what is behind the mask."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if values.dtype.kind in "biuf":
        hidden = np.ma.getmaskarray(values)
        return np.where(hidden, np.nan, values.data.astype(np.float64)) if hidden.any() else values.data
    if values.dtype.kind in "mM":  # as objects, nanoseconds would be plain whole numbers
        return np.where(np.ma.getmaskarray(values), np.array("NaT", values.dtype), values.data)
    shown = np.array(values.data, dtype=object)
    shown[np.ma.getmaskarray(values)] = None
    return shown
