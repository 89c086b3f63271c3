"""The built-in dataset: episodes of the liquidation task under its behaviour policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.data.dataset import Dataset
from pspo.data.readers.file_checks import bytes_in_memory, require_memory
from pspo.envs.liquidation import behaviour_action, reset_arrays, step_arrays
from pspo.envs.liquidation_rules import ACTION_NAMES, HORIZON, OBS_NAMES

# Episodes simulated together. A fixed number, so that a smaller dataset is the beginning of a larger one.
_EPISODES_AT_ONCE = 1024


def make_dataset(size: int = 100_000, seed: int = 0) -> Dataset:
    """Exactly `size` transitions of the behaviour policy, episode by episode; the same for the same seed.

    The last episode is cut at `size`: a time-out, unless it ends just there.
    """
    _require_integer("size", size, at_least=1)
    _require_integer("seed", seed, at_least=0)
    require_memory(bytes_in_memory({name: size for name in (*OBS_NAMES, *ACTION_NAMES, "reward", "terminal")}))
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
    """Complete episodes as rows of obs, action, reward, next_obs and terminal."""
    obs = reset_arrays(rng, _EPISODES_AT_ONCE)
    alive = np.ones(_EPISODES_AT_ONCE, bool)
    steps = []
    for _ in range(HORIZON):
        action = behaviour_action(rng, _EPISODES_AT_ONCE)
        next_obs, reward, terminal = step_arrays(obs, action, rng.standard_normal(_EPISODES_AT_ONCE))
        steps.append((obs, action, reward, next_obs, terminal, alive))
        obs, alive = next_obs, alive & ~terminal
    # (episode, step, ...), so that masking out the steps after an episode's end gives one episode after the other.
    *fields, lived = (np.stack(parts, axis=1) for parts in zip(*steps, strict=True))
    return tuple(field[lived] for field in fields)


def _require_integer(name: str, value: Any, at_least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < at_least:
        raise UserError(f"the {name} of a liquidation dataset is a whole number of at least {at_least}, not {value!r}.")
