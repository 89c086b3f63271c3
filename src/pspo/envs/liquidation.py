"""Optimal liquidation, as a gymnasium environment: sell 100 units within 20 steps at a mean-reverting price.

A state is (t, m, p): steps taken, inventory left, price now. An action in [-1, 1] sells the fraction
clip(action, 0, 1) of the inventory at the current price, before the price moves.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from pspo.core.errors import UserError
from pspo.envs.liquidation_rules import (
    EXPERT_RETURN,
    HORIZON,
    INVENTORY,
    MEAN_PRICE,
    MIN_INVENTORY,
    OPTIMAL_RETURN,
    PRICE_HIGH,
    PRICE_LOW,
    PRICE_SD,
    RANDOM_RETURN,
    REVERSION,
    SALE_PROBABILITY,
    START_PRICE,
    START_PRICE_SD,
)

__all__ = [
    "EXPERT_RETURN",
    "HORIZON",
    "OPTIMAL_RETURN",
    "RANDOM_RETURN",
    "LiquidationEnv",
    "behaviour_action",
    "reset_arrays",
    "step_arrays",
]


def reset_arrays(rng: np.random.Generator, n: int) -> np.ndarray:
    """First states of `n` episodes, shape (n, 3)."""
    price = rng.normal(START_PRICE, START_PRICE_SD, n).clip(PRICE_LOW, PRICE_HIGH)
    return np.stack([np.zeros(n), np.full(n, INVENTORY), price], axis=-1).astype(np.float32)


def step_arrays(obs: Any, action: Any, noise: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One step for a batch of states: next states, rewards and whether the episode ended.

    Shapes (..., 3), (..., 1) and (...); `noise` is standard normal. All arithmetic is in float32, the precision of
    the stored data, so that a stored transition is reproduced exactly.
    """
    obs, action, noise = (np.asarray(array, np.float32) for array in (obs, action, noise))
    t, inventory, price = obs[..., 0], obs[..., 1], obs[..., 2]
    kept = inventory * (1 - np.clip(action[..., 0], 0, 1))
    reward = (inventory - kept) * price
    next_price = np.clip(price + REVERSION * (MEAN_PRICE - price) + PRICE_SD * noise, PRICE_LOW, PRICE_HIGH)
    next_obs = np.stack([t + 1, kept, next_price], axis=-1)
    return next_obs, reward, (next_obs[..., 0] >= HORIZON) | (kept < MIN_INVENTORY)


def behaviour_action(rng: np.random.Generator, n: int) -> np.ndarray:
    """Actions of the behaviour policy, shape (n, 1): it mostly holds and sometimes sells a random fraction."""
    sells = rng.random(n) < SALE_PROBABILITY
    # 1 - [0, 1) lies in (0, 1], so a sale always sells something; minus one more it is a hold in (-1, 0].
    fraction = 1 - rng.random(n)
    return np.where(sells, fraction, fraction - 1)[:, None].astype(np.float32)


class LiquidationEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """The task as a gymnasium environment; also `gymnasium.make("pspo/Liquidation-v0")`."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - gymnasium's own convention

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(
            np.array([0, 0, PRICE_LOW], np.float32), np.array([HORIZON, INVENTORY, PRICE_HIGH], np.float32)
        )
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._obs: np.ndarray | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        obs = reset_arrays(self.np_random, 1)[0]
        self._obs = obs
        return obs.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._obs is None:
            raise gymnasium.error.ResetNeeded("call reset() before step(): no episode is running.")
        action = np.asarray(action, np.float32)
        if action.shape != (1,) or not np.isfinite(action[0]):
            raise UserError(f"a liquidation action is one finite number of shape (1,), not {action!r}.")
        obs, reward, terminal = step_arrays(self._obs, action, self.np_random.standard_normal())
        self._obs = None if terminal else obs
        return obs.copy(), float(reward), bool(terminal), False, {}
