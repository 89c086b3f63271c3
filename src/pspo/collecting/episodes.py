"""Episodes of a behaviour policy on a task, each a function of (seed, part, index) and of nothing else.

Start and noise have their own random numbers, derived from those three. So the same episodes come out however many
environments run side by side, in whatever order they finish, and after however many interruptions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from pspo.collecting.behaviour import Behaviour
from pspo.core.files import Corrupt, read_arrays, write_arrays
from pspo.envs.mujoco import SLOTS, Episode, borrow_env, play, return_env

KEEP_SECONDS = 5.0  # finished episodes wait no longer than this before they are safe on disk


def dimensions(task: str) -> tuple[int, int]:
    """Length of an observation and of an action."""
    env = borrow_env(task)
    return_env(task, env)
    return env.observation_space.shape[0], env.action_space.shape[0]


def episode_random(seed: int, part: int, index: int) -> tuple[int, np.random.Generator]:
    """The seed of an episode's start, and the generator of its noise."""
    # A spawn key, not a longer list of numbers: lists that differ by trailing zeros give the same stream.
    start, noise = np.random.SeedSequence(seed, spawn_key=(part, index)).spawn(2)
    return int(start.generate_state(1)[0]), np.random.default_rng(noise)


def play_episodes(
    task: str, policy: Behaviour, seed: int, part: int, indices: Iterable[int], slots: int = SLOTS, record: bool = True
) -> Iterator[Episode]:
    """The episodes of those numbers, as they finish."""
    noise: dict[int, np.random.Generator] = {}
    rest = np.random.default_rng(0)  # for slots that have nothing left to play

    def todo() -> Iterator[tuple[int, int]]:
        for index in indices:
            start, noise[index] = episode_random(seed, part, index)
            yield index, start

    def act(obs: np.ndarray, episodes: np.ndarray) -> np.ndarray:
        return policy.sample(obs, np.stack([policy.draw(noise.get(index, rest)) for index in episodes.tolist()]))

    for episode in play(task, act, todo(), slots, record):
        del noise[episode.index]
        yield episode


def collect_episodes(
    task: str,
    policy: Behaviour,
    rows: int,
    seed: int,
    part: int,
    folder: Path,
    progress: Callable[[int, int, dict[str, float]], None],
    say: Callable[[str], None],
    slots: int = SLOTS,
) -> list[Episode]:
    """The episodes 0, 1, 2, ... that first reach `rows` rows together; what `folder` has is not played again."""
    line = Line()
    for episode in _read_kept(folder, part, say):
        line.add(episode)
    fresh: list[Episode] = []
    kept_at = time.monotonic()

    def indices() -> Iterator[int]:
        index = 0
        # All that has finished came before `index`: once it fills the rows, `index` is not needed.
        while line.rows < rows:
            if index not in line.episodes:
                yield index
            index += 1

    if line.rows_in_order < rows:
        for episode in play_episodes(task, policy, seed, part, indices(), slots):
            line.add(episode)
            fresh.append(episode)
            if time.monotonic() - kept_at > KEEP_SECONDS:
                _keep(folder, part, fresh)
                fresh, kept_at = [], time.monotonic()
            progress(min(line.rows_in_order, rows), rows, {"return": line.total / len(line.episodes)})
            if line.rows_in_order >= rows:
                break
    _keep(folder, part, fresh)
    return line.first(rows)


class Line:
    """Episodes by number. Only those before the first gap count: taking what finishes first would prefer falls."""

    def __init__(self) -> None:
        self.episodes: dict[int, Episode] = {}
        self.rows, self.total = 0, 0.0  # of all episodes
        self.rows_in_order, self.gap = 0, 0  # of those before the first gap, and its number

    def add(self, episode: Episode) -> None:
        self.episodes[episode.index] = episode
        self.rows, self.total = self.rows + episode.length, self.total + episode.total
        while self.gap in self.episodes:
            self.rows_in_order += self.episodes[self.gap].length
            self.gap += 1

    def first(self, rows: int) -> list[Episode]:
        chosen, count = [], 0
        while count < rows:
            chosen.append(self.episodes[len(chosen)])
            count += chosen[-1].length
        return chosen


# What a stopped collection has already played, in files of a few seconds each.


def _keep(folder: Path, part: int, episodes: list[Episode]) -> None:
    if not episodes:
        return
    arrays = {
        "index": np.array([e.index for e in episodes]),
        "total": np.array([e.total for e in episodes]),
        "length": np.array([e.length for e in episodes]),
        "terminal": np.array([e.terminal for e in episodes]),
        "obs": np.concatenate([e.obs for e in episodes]),
        "action": np.concatenate([e.action for e in episodes]),
        "reward": np.concatenate([e.reward for e in episodes]),
    }
    write_arrays(folder / f"episodes-{part}-{episodes[0].index:07d}.safetensors", arrays, {})


def _read_kept(folder: Path, part: int, say: Callable[[str], None]) -> Iterator[Episode]:
    for path in sorted(folder.glob(f"episodes-{part}-*.safetensors")):
        try:
            arrays, _ = read_arrays(path)
        except Corrupt as problem:
            say(f"some episodes are played again: {problem}")
            continue
        stops = np.cumsum(arrays["length"])
        for i, (stop, length) in enumerate(zip(stops.tolist(), arrays["length"].tolist(), strict=True)):
            rows, states = slice(stop - length, stop), slice(stop - length + i, stop + i + 1)
            facts = int(arrays["index"][i]), float(arrays["total"][i]), length, bool(arrays["terminal"][i])
            yield Episode(*facts, arrays["obs"][states], arrays["action"][rows], arrays["reward"][rows])
