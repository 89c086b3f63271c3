"""A task that every algorithm must learn within seconds, with a cliff just outside the dataset.

The dataset's actions are 0.5 s plus at most 0.3; further along that direction pays more, up to the edge of the data.
Beyond it the reward falls from 1.6 to -1, which no transition shows: a policy that trusts the critic's extrapolation
falls off.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pspo.data import Dataset

OBS, ACTIONS = 3, 2
REACH, EDGE = 0.3, 0.38
EPISODE = 10


def pay(obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """1 on the dataset's average, 1.6 at its better edge, -1 beyond either."""
    away = action - 0.5 * obs[..., :ACTIONS]
    return np.where(np.abs(away).max(-1) < EDGE, 1.0 + 2.0 * away.mean(-1), -1.0)


def tiny_dataset(rows: int = 4000, seed: int = 0, **changes: Any) -> Dataset:
    """States do not depend on actions; the third column counts. Every second episode ends, the others time out."""
    rng = np.random.default_rng(seed)
    t = np.arange(rows) % EPISODE
    obs = rng.uniform(-1.0, 1.0, (rows, OBS)).astype(np.float32)
    obs[:, 2] = t
    next_obs = np.roll(obs, -1, axis=0)
    next_obs[:, 2] = t + 1
    action = 0.5 * obs[:, :ACTIONS] + rng.uniform(-REACH, REACH, (rows, ACTIONS))
    last, ends = t == EPISODE - 1, np.arange(rows) // EPISODE % 2 == 0
    fields = {
        "obs": obs,
        "action": action.astype(np.float32),
        "reward": pay(obs, action).astype(np.float32),
        "next_obs": next_obs,
        "terminal": last & ends,
        "timeout": last & ~ends,
        "action_low": np.full(ACTIONS, -1.0, np.float32),
        "action_high": np.ones(ACTIONS, np.float32),
        "name": "tiny",
    }
    return Dataset(**(fields | changes))


def extreme_dataset(rows: int = 1000) -> Dataset:
    """Finite, and nothing like usual data: huge and tiny units, outliers, actions at the bounds."""
    rng = np.random.default_rng(1)
    plain = tiny_dataset(rows)
    obs, next_obs = (np.array(part) for part in (plain.obs, plain.next_obs))
    for part in (obs, next_obs):
        part[:, 0] *= 1e5
        part[:, 1] = 7.0  # a constant
    obs[5, 0], next_obs[4, 0] = 1e7, 1e7
    action = np.sign(rng.uniform(-1.0, 1.0, (rows, ACTIONS))).astype(np.float32)
    reward = (rng.standard_normal(rows) * 1e3).astype(np.float32)
    reward[7] = 1e6
    return tiny_dataset(rows, obs=obs, next_obs=next_obs, action=action, reward=reward)


def score(act: Any) -> float:
    """Mean pay of a policy over fresh states."""
    obs = tiny_dataset(2000, seed=99).obs
    return float(pay(obs, act(obs)).mean())
