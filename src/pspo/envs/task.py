"""Tasks by name: reference scores, termination rule and simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from pspo.core.errors import UserError, unknown_name


@dataclass(frozen=True)
class Simulation:
    """The outcome of simulated episodes, one entry per episode."""

    returns: np.ndarray
    """Undiscounted return, shape (episodes,)."""
    regret: np.ndarray | None
    """Value lost to the exact optimum along the episode, shape (episodes,); None where no optimum is known."""
    lengths: np.ndarray
    """Number of steps taken, shape (episodes,)."""
    trajectory: np.ndarray | None = None
    """State then action of each step, shape (episodes, horizon, obs + action), NaN after the end; if asked for."""


class Sized(Protocol):
    """A dataset, a policy, or anything else with these dimensions."""

    @property
    def obs_dim(self) -> int: ...

    @property
    def action_dim(self) -> int: ...


@dataclass(frozen=True)
class Task:
    """A task with known reference scores, known termination and a simulator."""

    name: str
    obs_dim: int
    action_dim: int
    random_return: float
    expert_return: float
    optimal_return: float | None
    terminated: Callable[..., Any]
    """(obs, action, next_obs) -> bool array; JAX, any leading shape."""
    simulate: Callable[..., Simulation]
    """(act, key, episodes) -> Simulation."""
    default_episodes: int = 10_000
    """Episodes of a final evaluation by default: as many as the simulator runs in seconds."""
    require: Callable[[], None] = lambda: None
    """Raises a UserError if the simulator is not installed: before training, not after."""

    def require_fit(self, what: str, given: Sized) -> None:
        """Refuse data or a policy with other dimensions than the simulator."""
        if (given.obs_dim, given.action_dim) != (self.obs_dim, self.action_dim):
            raise UserError(
                f"{what} has {given.obs_dim} numbers per state and {given.action_dim} per action, and the task "
                f"'{self.name}' has {self.obs_dim} and {self.action_dim}: name the task that fits, or none."
            )
        if getattr(given, "encoder", None) is not None:
            raise UserError(
                f"{what} has columns that are encoded (`pspo data info` shows them), and the simulator of the task "
                f"'{self.name}' gives plain float32 numbers: name no task."
            )

    @property
    def optimal_score(self) -> float | None:
        """The score of the optimal policy, if it is known."""
        return None if self.optimal_return is None else float(self.normalised(self.optimal_return))

    def normalised(self, raw: Any) -> Any:
        """The score on the scale where random is 0 and expert is 100; a number or an array."""
        return 100.0 * (raw - self.random_return) / (self.expert_return - self.random_return)


def require_episodes(count: Any) -> None:
    """Refuse anything but a positive whole number of episodes."""
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
        raise UserError(f"episodes={count!r} is out of range: it must be a whole number of at least 1.")


def get_task(name: str) -> Task:
    """The task of that name; imports its simulator, and with it JAX."""
    if name not in _TASKS:
        raise unknown_name("task", name, _TASKS)
    return _TASKS[name]()


def _liquidation() -> Task:
    from pspo.envs import liquidation, liquidation_jax

    return Task(
        name="liquidation",
        obs_dim=3,
        action_dim=1,
        random_return=liquidation.RANDOM_RETURN,
        expert_return=liquidation.EXPERT_RETURN,
        optimal_return=liquidation.OPTIMAL_RETURN,
        terminated=liquidation_jax.terminated,
        simulate=liquidation_jax.simulate,
    )


def _locomotion(name: str) -> Task:
    from pspo.envs import mujoco

    task = mujoco.LOCOMOTION[name]
    return Task(
        name=name,
        obs_dim=task.obs_dim,
        action_dim=task.action_dim,
        random_return=task.random_return,
        expert_return=task.expert_return,
        optimal_return=None,
        terminated=mujoco.TERMINATED[name],
        simulate=partial(mujoco.simulate, name),
        default_episodes=50,
        require=partial(mujoco.require, name),
    )


_TASKS: dict[str, Callable[[], Task]] = {
    "liquidation": _liquidation,
    "hopper": partial(_locomotion, "hopper"),
    "walker2d": partial(_locomotion, "walker2d"),
    "halfcheetah": partial(_locomotion, "halfcheetah"),
}


def known_tasks() -> tuple[str, ...]:
    """The names of all tasks; imports no simulator."""
    return tuple(_TASKS)
