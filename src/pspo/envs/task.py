"""What evaluation needs to know about a task, found by the task's name."""

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
    """A dataset, a policy, or what is known of data that are not here yet."""

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
    """Of a judgement, where the user names no number: as many as the simulator gives in seconds."""
    require: Callable[[], None] = lambda: None
    """Raises a UserError where the simulator is not installed: before hours of training, not after."""

    def require_fit(self, what: str, found: Sized) -> None:
        """For data and policies that meet the simulator, which would say nothing that a user understands."""
        if (found.obs_dim, found.action_dim) != (self.obs_dim, self.action_dim):
            raise UserError(
                f"{what} has {found.obs_dim} numbers per state and {found.action_dim} per action, and the task "
                f"'{self.name}' has {self.obs_dim} and {self.action_dim}: name the task that fits, or none."
            )

    @property
    def optimal_score(self) -> float | None:
        """What no policy exceeds on average, where that is known."""
        return None if self.optimal_return is None else float(self.normalised(self.optimal_return))

    def normalised(self, raw: Any) -> Any:
        """The score on the scale where random is 0 and expert is 100; a number or an array."""
        return 100.0 * (raw - self.random_return) / (self.expert_return - self.random_return)


def require_episodes(count: Any) -> None:
    """For all who play episodes."""
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
        raise UserError(f"episodes={count!r} is out of range: it must be a whole number of at least 1.")


def get_task(name: str) -> Task:
    """The task of that name; the simulator (and with it JAX) is imported only now."""
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

    facts = mujoco.LOCOMOTION[name]
    return Task(
        name=name,
        obs_dim=facts.obs_dim,
        action_dim=facts.action_dim,
        random_return=facts.random_return,
        expert_return=facts.expert_return,
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
    """Names, without importing a simulator."""
    return tuple(_TASKS)
