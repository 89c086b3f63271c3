"""Normalisers: the units of the observations, actions and rewards that networks are trained on.

They are computed once from a dataset and saved with what was trained, so that a policy file is complete by itself.
`encode` and the action maps work on NumPy and JAX arrays alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pspo.data.dataset import Dataset

Array = Any  # a NumPy or JAX array

GRID_MAX_VALUES = 32
"""A column with at most this many distinct values (a step counter, a mode flag) is a grid column."""

ZSCORE_FLOOR = 1e-3
"""Added to standard deviations where an algorithm standardises states as TD3+BC does."""

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

    @property
    def features(self) -> int:
        """Length of an encoded observation."""
        return int(self.obs_mean.shape[0] + self.grid_points.shape[0] * self.grid_points.shape[1])

    def encode(self, obs: Array) -> Array:
        """Raw observations (..., obs_dim) to network features (..., features)."""
        xp = obs.__array_namespace__()
        parts = [(obs - self.obs_mean) / self.obs_std]
        parts += [_hats(xp, obs[..., c], self.grid_points[g]) for g, c in enumerate(self.grid_column.tolist())]
        return xp.concatenate(parts, axis=-1)

    def snap(self, obs: Array) -> Array:
        """Move grid columns of predicted observations to the nearest value of their grid."""
        xp = obs.__array_namespace__()
        for g, c in enumerate(self.grid_column.tolist()):
            points = self.grid_points[g]
            nearest = xp.take(points, xp.argmin(xp.abs(obs[..., c, None] - points), axis=-1))
            obs = xp.concatenate([obs[..., :c], nearest[..., None], obs[..., c + 1 :]], axis=-1)
        return obs

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
    """Linear interpolation weights of x on ascending points; constant beyond the ends."""
    gap = points[1:] - points[:-1]
    gap = xp.where(gap > 0, gap, 1.0)  # repeated padding points: their hat must be zero, not NaN
    real = xp.concatenate([xp.ones_like(points[:1]), (points[1:] > points[:-1]).astype(points.dtype)])
    rise = (x[..., None] - points[:-1]) / gap
    up = xp.concatenate([xp.ones_like(rise[..., :1]), xp.clip(rise, 0.0, 1.0)], axis=-1)
    last = xp.concatenate([real[1:], xp.zeros_like(real[:1])])  # 1 where a right neighbour exists
    fall = xp.concatenate([xp.clip(rise, 0.0, 1.0), xp.zeros_like(rise[..., :1])], axis=-1)
    return up * real - fall * last


def fit_normaliser(dataset: Dataset, gamma: float = 0.99) -> Normaliser:
    """Scales of a dataset.

    Rewards are divided by the standard deviation of the dataset's discounted returns-to-go: values then have a
    standard deviation of about one on every task, so temperatures and learning rates keep their meaning.
    """
    known = dataset.next_known
    both = np.concatenate([dataset.obs, dataset.next_obs if known.all() else dataset.next_obs[known]])
    std = both.std(axis=0, dtype=np.float64)
    return_std = dataset.returns_to_go(gamma).std()
    columns, points = _grids(both)
    f32 = np.float32
    return Normaliser(
        obs_mean=both.mean(axis=0, dtype=np.float64).astype(f32),
        obs_std=np.where(std > 1e-6, std, 1.0).astype(f32),
        obs_low=both.min(axis=0),
        obs_high=both.max(axis=0),
        grid_column=np.asarray(columns, dtype=np.int32),
        grid_points=points,
        action_low=np.array(dataset.action_low),
        action_high=np.array(dataset.action_high),
        reward_scale=np.asarray(return_std if return_std > 1e-8 else 1.0, dtype=f32),
    )


def normaliser_in(dataset: Dataset, states: str, rewards: str, gamma: float) -> Normaliser:
    """Scales in the units of published algorithms: see `states` and `rewards` in pspo.algorithms.common.settings."""
    norm = fit_normaliser(dataset, gamma)
    if states != "features":
        empty = {"grid_column": np.zeros(0, np.int32), "grid_points": np.zeros((0, 0), np.float32)}
        mean, std = dataset.obs.mean(0, dtype=np.float64), dataset.obs.std(0, dtype=np.float64) + ZSCORE_FLOOR
        if states == "raw":
            mean, std = np.zeros_like(mean), np.ones_like(std)
        norm = norm._replace(obs_mean=mean.astype(np.float32), obs_std=std.astype(np.float32), **empty)
    if rewards != "std":
        returns = dataset.episode_returns()
        span = float(np.ptp(returns)) / 1000.0 if rewards == "range" else 1.0
        rounding = 1e-6 * float(np.abs(returns).max())  # returns that differ by less are equal
        norm = norm._replace(reward_scale=np.asarray(span if 1000.0 * span > rounding else 1.0, np.float32))
    return norm


def _grids(obs: np.ndarray) -> tuple[list[int], np.ndarray]:
    """Columns with few distinct values, and those values, padded to one length."""
    grids = {}
    for c in range(obs.shape[1]):
        if len(np.unique(obs[:1000, c])) > GRID_MAX_VALUES:
            continue  # the first rows are enough to say no
        values = np.unique(obs[:, c])
        if 2 <= len(values) <= GRID_MAX_VALUES and len(obs) >= 20 * len(values):
            grids[c] = values
    width = max((len(v) for v in grids.values()), default=0)
    points = [np.pad(v, (0, width - len(v)), mode="edge") for v in grids.values()]
    return list(grids), np.asarray(points, dtype=np.float32).reshape(len(grids), width)
