"""The three MuJoCo tasks of the D4RL benchmark: reference scores, where episodes end, and a simulator on all cores.

gymnasium's v4 environments are the closest to the physics that D4RL's data were recorded in. Nearly all time
of a step is spent inside MuJoCo, which releases Python's lock: threads over environments use every core.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from pspo.core.compute import cores
from pspo.core.errors import UserError
from pspo.envs.task import Simulation, require_episodes

HORIZON = 1000
SLOTS = 16  # parallel environments; their actions come from one batched call of the policy


@dataclass(frozen=True)
class Locomotion:
    """One task; the reference returns are D4RL's."""

    env_id: str
    obs_dim: int
    action_dim: int
    random_return: float
    expert_return: float


LOCOMOTION = {
    "hopper": Locomotion("Hopper-v4", 11, 3, -20.272305, 3234.3),
    "walker2d": Locomotion("Walker2d-v4", 17, 6, 1.629008, 4592.3),
    "halfcheetah": Locomotion("HalfCheetah-v4", 17, 6, -280.178953, 12135.0),
}


# Ends of episodes, from the state that was reached: (obs, action, next_obs) -> bool, any leading shape.


def hopper_terminated(obs: Any, action: Any, next_obs: Any) -> Any:
    """The hopper fell, or the state diverged. Bounds are two-sided: negative speeds count like positive ones."""
    xp = next_obs.__array_namespace__()
    height, angle = next_obs[..., 0], next_obs[..., 1]
    sane = (xp.abs(next_obs[..., 1:]) < 100).all(axis=-1) & xp.isfinite(next_obs).all(axis=-1)
    return ~(sane & (height > 0.7) & (xp.abs(angle) < 0.2))


def walker2d_terminated(obs: Any, action: Any, next_obs: Any) -> Any:
    """The walker fell, or the state diverged."""
    xp = next_obs.__array_namespace__()
    height, angle = next_obs[..., 0], next_obs[..., 1]
    sane = (xp.abs(next_obs) < 100).all(axis=-1)
    return ~(sane & (height > 0.8) & (height < 2.0) & (xp.abs(angle) < 1.0))


def halfcheetah_terminated(obs: Any, action: Any, next_obs: Any) -> Any:
    """The task itself never ends; this only stops a rollout that diverged."""
    xp = next_obs.__array_namespace__()
    return ~(xp.abs(next_obs) < 100).all(axis=-1)


TERMINATED: dict[str, Callable[..., Any]] = {
    "hopper": hopper_terminated,
    "walker2d": walker2d_terminated,
    "halfcheetah": halfcheetah_terminated,
}


_spare: dict[str, list[Any]] = defaultdict(list)  # unused environments: making one takes 50 ms


def borrow_env(task: str) -> Any:
    """An environment without time limit or checks; `reset(seed=...)` makes a used one equal to a new one."""
    return _spare[task].pop() if _spare[task] else _make_env(task)


def require(task: str) -> None:
    """Raise an error that says how to install the simulator, if it is missing."""
    return_env(task, borrow_env(task))


def return_env(task: str, env: Any) -> None:
    """Give a borrowed environment back."""
    _spare[task].append(env)


def _make_env(task: str) -> Any:
    try:
        import gymnasium
        import mujoco
    except ImportError:
        raise UserError(f"the task '{task}' needs MuJoCo: pip install 'pspo[mujoco]'.") from None
    # "v4 is out of date" and "attribute is deprecated" are known; MuJoCo would even leave a log file behind.
    warn: Any = mujoco
    before = warn.get_mju_user_warning()
    warn.set_mju_user_warning(lambda _: None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return gymnasium.make(LOCOMOTION[task].env_id, disable_env_checker=True).unwrapped
    finally:
        warn.set_mju_user_warning(before)


@dataclass(frozen=True)
class Episode:
    """One finished episode; transitions only if they were recorded."""

    index: int
    total: float  # undiscounted return
    length: int
    terminal: bool  # ended by the task, not by the time limit
    obs: np.ndarray  # (length + 1, obs_dim) float32, the last one included; empty unless recorded
    action: np.ndarray  # (length, action_dim)
    reward: np.ndarray  # (length,)


class Slot:
    """One environment that runs episodes one after the other."""

    def __init__(self, task: str, todo: Iterator[tuple[int, int]], record: bool):
        self.env, self.todo, self.record = borrow_env(task), todo, record
        self.action = np.zeros(self.env.action_space.shape, np.float32)  # of the coming step
        self.begin()

    def begin(self) -> None:
        self.episode, seed = next(self.todo, (-1, 0))
        self.idle, self.over, self.terminal = self.episode < 0, False, False
        self.obs, _ = self.env.reset(seed=seed)
        self.age, self.total = 0, 0.0
        self.path: list[tuple[np.ndarray, np.ndarray, float]] = []

    def step(self) -> None:
        if self.idle:
            return
        before = self.obs
        self.obs, reward, self.terminal, _, _ = self.env.step(self.action)
        self.age, self.total = self.age + 1, self.total + float(reward)
        self.over = self.terminal or self.age == HORIZON
        if self.record:
            self.path.append((before, self.action, float(reward)))

    def finished(self) -> Episode:
        obs, action, reward = zip(*self.path, strict=True) if self.path else ((), (), ())
        rows = [np.asarray(part, np.float32) for part in ((*obs, self.obs) if obs else (), action, reward)]
        return Episode(self.episode, self.total, self.age, bool(self.terminal), *rows)


def play(
    task: str,
    act: Callable[[np.ndarray, np.ndarray], np.ndarray],
    todo: Iterable[tuple[int, int]],
    slots: int = SLOTS,
    record: bool = False,
) -> Iterator[Episode]:
    """Episodes as they finish, for (index, seed) pairs. `act` maps observations (slots, obs_dim) and the index of the
    episode of each (-1 if none is left) to actions (slots, action_dim), always of the same shape.
    """
    queue = iter(todo)
    rows = [Slot(task, queue, record) for _ in range(slots)]
    threads = min(cores(), slots)
    shares = [rows[first::threads] for first in range(threads)]
    try:
        with ThreadPoolExecutor(threads) as workers:
            while not all(slot.idle for slot in rows):
                obs = np.asarray([slot.obs for slot in rows], np.float32)
                actions = np.asarray(act(obs, np.array([slot.episode for slot in rows])))
                for slot, action in zip(rows, actions, strict=True):
                    slot.action = action
                list(workers.map(_step_all, shares))
                for slot in rows:
                    if slot.over:
                        yield slot.finished()
                        slot.begin()
    finally:
        for slot in rows:
            return_env(task, slot.env)


def _step_all(slots: list[Slot]) -> None:
    for slot in slots:
        slot.step()


def simulate(task: str, act: Callable[..., Any], key: Any, episodes: int, stochastic: bool = False) -> Simulation:
    """Undiscounted returns; `act` maps observations to actions, with a key where it is stochastic."""
    import equinox as eqx
    import jax

    require_episodes(episodes)
    start_key, act_key = jax.random.split(key)
    seeds = np.asarray(jax.random.randint(start_key, (episodes,), 0, 2**31 - 1)).tolist()
    call = eqx.filter_jit(_act)
    step = 0

    def decide(obs: np.ndarray, _: np.ndarray) -> np.ndarray:
        nonlocal step
        step += 1
        return np.asarray(call(act, obs, *([jax.random.fold_in(act_key, step)] if stochastic else [])))

    returns, lengths = np.zeros(episodes), np.zeros(episodes, int)
    for episode in play(task, decide, enumerate(seeds), min(SLOTS, episodes)):
        returns[episode.index], lengths[episode.index] = episode.total, episode.length
    return Simulation(returns=returns, regret=None, lengths=lengths)


def _act(act: Callable[..., Any], obs: Any, *key: Any) -> Any:
    return act(obs, *key)
