"""Normalisers: the units of the observations, actions and rewards that networks are trained on.

They are computed once from a dataset and saved with what was trained, so that a policy file is complete by itself.
`encode` and the action maps work on NumPy and JAX arrays alike.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from pspo.data.column_statistics import Table, column_statistics, distinct_values
from pspo.data.dataset import Dataset
from pspo.data.scales import std_or_one, varies

Array = Any  # a NumPy or JAX array

GRID_MAX_VALUES = 32
"""A column with at most this many distinct values (a step counter, a mode flag) is a grid column."""

GRID_MAX_FEATURES = 1024
"""Hat functions of all grid columns together. Beyond that, columns of two values go without: theirs are linear."""

ZSCORE_FLOOR = 1e-3
"""Added to standard deviations where an algorithm standardises states as TD3+BC does; never more than they are."""

FLAG_STD = 0.1
"""Least scale of a category's or indicator's column: a rare 1 is not a hundred standard deviations from a 0."""

ACTION_MARGIN = 0.02
"""The network's unit range reaches this far past the bounds, so that a squashed policy can act exactly at them."""


class Normaliser(NamedTuple):
    """Observation, action and reward scales of one dataset, as NumPy arrays (constants to a compiled program).

    Grid columns get, beside their z-score, one hat function per distinct value: exactly one-hot on
    the values themselves, linear in between. A smooth network cannot follow a jump between two
    consecutive steps of a counter; with hats it need not be smooth there.
    """

    obs_mean: Array  # (obs_dim,)
    obs_std: Array
    obs_low: Array  # the range of the data
    obs_high: Array
    grid_column: Array  # (g,) int: which columns are grids
    grid_points: Array  # (g, k) ascending; short grids repeat their last point
    action_low: Array  # (action_dim,)
    action_high: Array
    reward_scale: Array  # (): rewards are divided by it
    one_hot: Array | None = None  # (categories' columns, 3) int: first, last + 1, whether all may be 0; None: no such

    @property
    def features(self) -> int:
        """Length of an encoded observation."""
        return int(self.obs_mean.shape[0] + self.grid_points.shape[0] * self.grid_points.shape[1])

    def encode(self, obs: Array) -> Array:
        """Raw observations (..., obs_dim) to network features (..., features)."""
        xp = obs.__array_namespace__()
        standard = (obs - self.obs_mean) / self.obs_std
        if not len(self.grid_column):
            return standard
        hats = _hats(xp, obs[..., self.grid_column], self.grid_points)
        flat = hats.reshape(*obs.shape[:-1], self.grid_points.size)  # not -1, which an empty batch leaves open
        return xp.concatenate([standard, flat], axis=-1)

    def snap(self, obs: Array) -> Array:
        """Move grid columns of predicted observations to the nearest value of their grid, categories to a valid one."""
        xp = obs.__array_namespace__()
        for first, stop, may_be_none in [] if self.one_hot is None else self.one_hot.tolist():
            part = obs[..., first:stop]
            nearest = (xp.arange(stop - first) == xp.argmax(part, axis=-1)[..., None]).astype(obs.dtype)
            if may_be_none:  # zeros are nearer than a one where no column is above a half
                nearest = nearest * (part > 0.5)
            obs = xp.concatenate([obs[..., :first], nearest, obs[..., stop:]], axis=-1)
        return self._snap_grids(xp, obs)

    def _snap_grids(self, xp: Any, obs: Array) -> Array:
        if not len(self.grid_column):
            return obs
        columns = obs.shape[-1]
        distance = xp.abs(obs[..., self.grid_column, None] - self.grid_points)
        points = xp.broadcast_to(xp.asarray(self.grid_points), distance.shape)
        nearest = xp.take_along_axis(points, xp.argmin(distance, axis=-1)[..., None], axis=-1)[..., 0]
        source = np.arange(columns)
        source[self.grid_column] = columns + np.arange(len(self.grid_column))
        return xp.concatenate([obs, nearest], axis=-1)[..., source]

    def unit_action(self, action: Array) -> Array:
        """Actions to [-1, 1] by their bounds: the form that critics and models take."""
        return 2.0 * (action - self.action_low) / (self.action_high - self.action_low) - 1.0

    def presquash(self, action: Array) -> Array:
        """Actions to the unbounded space in which policies are Gaussian mixtures."""
        return unsquash(self.unit_action(action))

    def from_unit(self, unit: Array) -> Array:
        """Unit actions to the bounds, exactly so at the ends: rounding must not reach past them."""
        xp = unit.__array_namespace__()
        between = self.action_low + 0.5 * (unit + 1.0) * (self.action_high - self.action_low)
        between = xp.clip(between, self.action_low, self.action_high)
        return xp.where(unit >= 1.0, self.action_high, xp.where(unit <= -1.0, self.action_low, between))


def squash(x: Array) -> Array:
    """Pre-squash values to unit actions in [-1, 1], bounds included."""
    xp = x.__array_namespace__()
    return xp.clip((1.0 + ACTION_MARGIN) * xp.tanh(x), -1.0, 1.0)


def unsquash(unit: Array) -> Array:
    """Unit actions to pre-squash values, finite at the bounds too."""
    xp = unit.__array_namespace__()
    return xp.arctanh(xp.clip(unit, -1.0, 1.0) / (1.0 + ACTION_MARGIN))


def _hats(xp: Any, x: Array, points: Array) -> Array:
    """Linear interpolation weights of x (..., g) on ascending points (g, k); constant beyond the ends."""
    gap = points[:, 1:] - points[:, :-1]
    ascends = (gap > 0).astype(points.dtype)
    gap = xp.where(gap > 0, gap, 1.0)  # repeated padding points: their hat must be zero, not NaN
    real = xp.concatenate([xp.ones_like(points[:, :1]), ascends], axis=-1)
    rise = (x[..., None] - points[:, :-1]) / gap
    up = xp.concatenate([xp.ones_like(rise[..., :1]), xp.clip(rise, 0.0, 1.0)], axis=-1)
    last = xp.concatenate([real[:, 1:], xp.zeros_like(real[:, :1])], axis=-1)  # 1 where a right neighbour exists
    fall = xp.concatenate([xp.clip(rise, 0.0, 1.0), xp.zeros_like(rise[..., :1])], axis=-1)
    return up * real - fall * last


def fit_normaliser(dataset: Dataset, gamma: float = 0.99) -> Normaliser:
    """Scales of a dataset.

    Rewards are divided by the standard deviation of the dataset's discounted returns-to-go: values then have a
    standard deviation of about one on every task, so temperatures and learning rates keep their meaning.
    """
    known = dataset.next_known
    both = (dataset.obs, None), (dataset.next_obs, None if known.all() else known)
    mean, std, low, high = column_statistics(*both)
    to_go = dataset.returns_to_go(gamma)
    encoder = dataset.encoder
    if encoder is not None:
        std = np.where(encoder.flags & (std > 0), np.maximum(std, FLAG_STD), std)
    columns, points = _grids(*both, without=() if encoder is None else encoder.columns_without_grid)
    f32 = np.float32
    return Normaliser(
        obs_mean=mean.astype(f32),
        obs_std=std_or_one(std, np.maximum(-low, high)).astype(f32),
        obs_low=low,
        obs_high=high,
        grid_column=np.asarray(columns, dtype=np.int32),
        grid_points=points,
        action_low=np.array(dataset.action_low),
        action_high=np.array(dataset.action_high),
        reward_scale=np.asarray(std_or_one(to_go.std(), np.abs(to_go).max()), dtype=f32),
        one_hot=None if encoder is None else encoder.one_hot,
    )


def normaliser_in(dataset: Dataset, states: str, rewards: str, gamma: float) -> Normaliser:
    """Scales in the units of published algorithms: see `states` and `rewards` in pspo.algorithms.common.settings."""
    norm = fit_normaliser(dataset, gamma)
    if states != "features":
        empty = {"grid_column": np.zeros(0, np.int32), "grid_points": np.zeros((0, 0), np.float32)}
        mean, std, low, high = column_statistics((dataset.obs, None))
        floor = np.where(varies(std, np.maximum(-low, high)), np.minimum(std, ZSCORE_FLOOR), ZSCORE_FLOOR)
        std = std + floor
        if dataset.encoder is not None:
            std = np.where(dataset.encoder.flags, np.maximum(std, FLAG_STD), std)
        if states == "raw":
            mean, std = np.zeros_like(mean), np.ones_like(std)
        norm = norm._replace(obs_mean=mean.astype(np.float32), obs_std=std.astype(np.float32), **empty)
    if rewards != "std":
        returns = dataset.episode_returns()
        span = float(np.ptp(returns)) / 1000.0 if rewards == "range" else 1.0
        rounding = 1e-6 * float(np.abs(returns).max())  # returns that differ by less are equal
        norm = norm._replace(reward_scale=np.asarray(span if 1000.0 * span > rounding else 1.0, np.float32))
    return norm


def _grids(*tables: Table, without: Collection[int] = ()) -> tuple[list[int], np.ndarray]:
    """Columns with few distinct values, and those values, padded to one length.

    Some columns of an encoder go `without`: the hats of 0 and 1, say, are the column itself and its complement.
    """
    grids = {}
    rows = sum(len(table) if counts is None else int(counts.sum()) for table, counts in tables)
    for c in range(tables[0][0].shape[1]):
        if c in without:
            continue
        values = distinct_values(tables, c, GRID_MAX_VALUES)
        if values is not None and len(values) >= 2 and rows >= 20 * len(values):
            grids[c] = values
    grids = _within_cap(grids)
    width = max((len(v) for v in grids.values()), default=0)
    points = [np.pad(v, (0, width - len(v)), mode="edge") for v in grids.values()]
    return list(grids), np.asarray(points, dtype=np.float32).reshape(len(grids), width)


def _within_cap(grids: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    """All grids of ordinary data; of hundreds, those with more than two values, and only the first of them."""
    if _hats_of(grids.values()) > GRID_MAX_FEATURES:
        grids = {column: values for column, values in grids.items() if len(values) > 2}
    while _hats_of(grids.values()) > GRID_MAX_FEATURES:
        grids.pop(max(grids))
    return grids


def _hats_of(grids: Collection[np.ndarray]) -> int:
    return len(grids) * max(map(len, grids), default=0)
