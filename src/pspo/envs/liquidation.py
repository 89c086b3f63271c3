"""Optimal liquidation: sell 100 units within 20 steps at a mean-reverting price. Environment and logged data.

A state is (t, m, p): steps taken, inventory left, price now. An action in [-1, 1] sells the fraction
clip(action, 0, 1) of the inventory at the current price, before the price moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from pspo.envs.liquidation_rules import (
    ACTION_NAMES,
    EXPERT_RETURN,
    HORIZON,
    INVENTORY,
    MEAN_PRICE,
    MIN_INVENTORY,
    OBS_NAMES,
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
from pspo.errors import UserError

if TYPE_CHECKING:
    from pspo.data.dataset import Dataset

__all__ = [
    "EXPERT_RETURN",
    "HORIZON",
    "OPTIMAL_RETURN",
    "RANDOM_RETURN",
    "LiquidationEnv",
    "behaviour_action",
    "make_dataset",
    "reset_arrays",
    "step_arrays",
]

# Episodes simulated side by side. A fixed number, so that a smaller dataset is the beginning of a larger one.
_BLOCK = 1024


def reset_arrays(rng: np.random.Generator, n: int) -> np.ndarray:
    """First states of `n` episodes, shape (n, 3)."""
    price = rng.normal(START_PRICE, START_PRICE_SD, n).clip(PRICE_LOW, PRICE_HIGH)
    return np.stack([np.zeros(n), np.full(n, INVENTORY), price], axis=-1).astype(np.float32)


def step_arrays(obs: Any, action: Any, noise: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One step for every state at once: next states, rewards and whether the episode ended.

    Shapes (..., 3), (..., 1) and (...); `noise` is standard normal. All arithmetic is in float32, the precision of
    the stored data, so that a stored row steps to exactly the stored next state.
    """
    obs, action, noise = (np.asarray(array, np.float32) for array in (obs, action, noise))
    t, inventory, price = obs[..., 0], obs[..., 1], obs[..., 2]
    kept = inventory * (1 - np.clip(action[..., 0], 0, 1))
    reward = (inventory - kept) * price
    next_price = np.clip(price + REVERSION * (MEAN_PRICE - price) + PRICE_SD * noise, PRICE_LOW, PRICE_HIGH)
    next_obs = np.stack([t + 1, kept, next_price], axis=-1)
    return next_obs, reward, (next_obs[..., 0] >= HORIZON) | (kept < MIN_INVENTORY)


def behaviour_action(rng: np.random.Generator, n: int) -> np.ndarray:
    """Actions of the policy that logged the data, shape (n, 1): mostly holds, now and then sells some fraction."""
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


def make_dataset(size: int = 100_000, seed: int = 0) -> Dataset:
    """Exactly `size` logged steps of the behaviour policy, episode after episode; the same for the same seed.

    The last episode is cut where the size is reached: a timeout, unless it ended just there.
    """
    from pspo.data.dataset import Dataset

    _require_integer("size", size, at_least=1)
    _require_integer("seed", seed, at_least=0)
    rng = np.random.default_rng(seed)
    blocks, rows = [], 0
    while rows < size:
        blocks.append(_behaviour_episodes(rng))
        rows += len(blocks[-1][0])
    obs, action, reward, next_obs, terminal = (np.concatenate(parts)[:size] for parts in zip(*blocks, strict=True))
    timeout = np.zeros(size, bool)
    timeout[-1] = not terminal[-1]
    return Dataset(
        obs=obs,
        action=action,
        reward=reward,
        next_obs=next_obs,
        terminal=terminal,
        timeout=timeout,
        action_low=np.array([-1.0], np.float32),
        action_high=np.array([1.0], np.float32),
        name="liquidation",
        task="liquidation",
        obs_names=OBS_NAMES,
        action_names=ACTION_NAMES,
    )


def _behaviour_episodes(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """One block of whole episodes as rows: obs, action, reward, next_obs, terminal."""
    obs = reset_arrays(rng, _BLOCK)
    alive = np.ones(_BLOCK, bool)
    steps = []
    for _ in range(HORIZON):
        action = behaviour_action(rng, _BLOCK)
        next_obs, reward, terminal = step_arrays(obs, action, rng.standard_normal(_BLOCK))
        steps.append((obs, action, reward, next_obs, terminal, alive))
        obs, alive = next_obs, alive & ~terminal
    # (episode, step, ...) so that masking out the steps after an episode's end lays the episodes end to end.
    *fields, lived = (np.stack(parts, axis=1) for parts in zip(*steps, strict=True))
    return tuple(field[lived] for field in fields)


def _require_integer(name: str, value: Any, at_least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < at_least:
        raise UserError(f"the {name} of a liquidation dataset is a whole number of at least {at_least}, not {value!r}.")
