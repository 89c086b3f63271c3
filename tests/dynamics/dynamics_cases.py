"""Small models and data for the dynamics tests, and what the models predict, in plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from pspo.data import Dataset
from pspo.data.normalise import Normaliser
from pspo.dynamics.ensemble import Ensemble
from pspo.dynamics.prediction_range import PredictionRange
from pspo.nets.mlp import MLP
from tests.arrays import f32


def made_ensemble(
    seed: int = 0, members: int = 3, inputs: int = 3, targets: int = 3, width: int = 5, scale: float = 0.8
) -> Ensemble:
    """Random members with one hidden layer; the clamp's bounds differ between members and targets."""
    rng = np.random.default_rng(seed)
    shapes = [(inputs, width), (width, 2 * targets)]
    weights = [f32(rng.normal(scale=scale, size=(members, *shape))) for shape in shapes]
    biases = [f32(rng.normal(scale=scale, size=(members, shape[1]))) for shape in shapes]
    return Ensemble(
        MLP(weights, biases, "silu"),
        log_std_low=f32(rng.uniform(-3.0, -2.0, size=(members, targets))),
        log_std_high=f32(rng.uniform(-0.5, 0.5, size=(members, targets))),
        target_mean=f32(rng.normal(size=targets)),
        target_std=f32(rng.uniform(0.5, 2.0, size=targets)),
    )


def member_by_hand(models: Ensemble, m: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normalised mean and log-std of one member, in double precision."""
    (w0, w1), (b0, b1) = (
        [np.asarray(leaf[m], np.float64) for leaf in leaves] for leaves in (models.net.weights, models.net.biases)
    )
    hidden = x @ w0 + b0
    out = (hidden / (1.0 + np.exp(-hidden))) @ w1 + b1
    targets = out.shape[-1] // 2
    mean, raw = out[..., :targets], out[..., targets:]
    low, high = np.asarray(models.log_std_low[m], np.float64), np.asarray(models.log_std_high[m], np.float64)
    capped = high - np.log1p(np.exp(high - raw))
    return mean, low + np.log1p(np.exp(capped - low))


def predict_by_hand(models: Ensemble, m: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of one member in raw units."""
    mean, log_std = member_by_hand(models, m, x)
    scale = np.asarray(models.target_std, np.float64)
    return mean * scale + np.asarray(models.target_mean, np.float64), np.exp(log_std) * scale


def plain_norm(obs_dim: int = 2, action_dim: int = 1, reach: float = 100.0) -> Normaliser:
    """No grids, scales that are not one, and bounds that are far away."""
    return Normaliser(
        obs_mean=np.linspace(-0.5, 0.5, obs_dim, dtype=np.float32),
        obs_std=np.linspace(1.0, 2.0, obs_dim, dtype=np.float32),
        obs_low=np.full(obs_dim, -reach, np.float32),
        obs_high=np.full(obs_dim, reach, np.float32),
        grid_column=np.zeros(0, np.int32),
        grid_points=np.zeros((0, 0), np.float32),
        action_low=np.full(action_dim, 1.0, np.float32),
        action_high=np.full(action_dim, 3.0, np.float32),
        reward_scale=np.asarray(2.0, np.float32),
    )


def unlimited(obs_dim: int = 2, **changes: float) -> PredictionRange:
    """Any prediction is allowed, but for `changes`, the same in every column."""
    rewards = {name: changes.pop(name, end) for name, end in (("reward_low", -np.inf), ("reward_high", np.inf))}
    ends = {"edge_low": -np.inf, "edge_high": np.inf, "far_low": -np.inf, "far_high": np.inf} | changes
    columns = {name: np.full(obs_dim, end, np.float32) for name, end in ends.items()}
    return PredictionRange(**columns, **{name: np.asarray(end, np.float32) for name, end in rewards.items()})


A = np.array([[0.9, 0.1], [-0.2, 0.8]])
B = np.array([[0.5], [-0.3]])
NOISE = np.array([0.2, 0.1])
REWARD_NOISE = 0.3


def linear_mean(obs: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Expected next observation and reward of the linear system."""
    return obs @ A.T + action @ B.T, obs[:, 0] - 0.5 * action[:, 0]


def linear_dataset(rows: int = 3000, seed: int = 0, **changes: Any) -> Dataset:
    """Episodes of ten steps of a linear system with Gaussian noise."""
    rng = np.random.default_rng(seed)
    episodes = rows // 10
    obs, action = np.empty((episodes, 10, 2)), rng.uniform(-1, 1, size=(episodes, 10, 1))
    next_obs, reward = np.empty((episodes, 10, 2)), np.empty((episodes, 10))
    now = rng.normal(size=(episodes, 2))
    for t in range(10):
        mean, mean_reward = linear_mean(now, action[:, t])
        obs[:, t] = now
        now = mean + NOISE * rng.standard_normal((episodes, 2))
        next_obs[:, t], reward[:, t] = now, mean_reward + REWARD_NOISE * rng.standard_normal(episodes)
    fields = {
        "obs": obs.reshape(-1, 2),
        "action": action.reshape(-1, 1),
        "reward": reward.reshape(-1),
        "next_obs": next_obs.reshape(-1, 2),
        "terminal": np.zeros(10 * episodes, bool),
        "timeout": np.arange(10 * episodes) % 10 == 9,
        "action_low": np.array([-1.0]),
        "action_high": np.array([1.0]),
    }
    return Dataset(**(fields | changes))
