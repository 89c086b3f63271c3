"""Which columns vary: by more than float32 rounds their values, however small the numbers themselves are."""

from __future__ import annotations

import numpy as np

ROUNDING = float(np.finfo(np.float32).eps)  # relative distance between neighbouring float32 numbers
TINY = float(np.finfo(np.float32).tiny)  # below it devices round to zero, and a division gives infinity


def varies(std: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Whether a column with this standard deviation and largest absolute value is more than a rounded constant."""
    return std > np.maximum(ROUNDING * largest, TINY)


def too_small(values: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Which columns of a table, as wide as given, vary only by less than devices can tell from zero."""
    small = width < 1e6 * TINY  # of all others the standard deviation need not be known
    small[small] = values[:, small].std(axis=0, dtype=np.float64) <= TINY
    return small


def std_or_one(std: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Standard deviations to divide by: 1 for a constant column."""
    return np.where(varies(std, largest), std, 1.0)


def largest_states(obs: np.ndarray, next_obs: np.ndarray) -> np.ndarray:
    """(columns,): the largest absolute value of each column before or after a step."""
    return np.maximum(*(np.maximum(-part.min(axis=0), part.max(axis=0)) for part in (obs, next_obs))).astype(np.float64)
