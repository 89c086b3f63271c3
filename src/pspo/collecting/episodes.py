"""Episodes of a behaviour policy on a task; each depends on (seed, part, index) only.

Start and noise have their own random numbers, derived from these three. So the episodes are the same for any number of
parallel environments, in whatever order they finish, and after any number of interruptions.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from pspo.collecting.behaviour import Behaviour
from pspo.core.files import Corrupt, read_arrays, write_arrays
from pspo.core.progress import Reporter
from pspo.envs.mujoco import SLOTS, Episode, borrow_env, play, return_env

SAVE_SECONDS = 5.0  # finished episodes are saved after at most this time


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
    task: str,
    policy: Behaviour,
    *,
    indices: Iterable[int],
    seed: int,
    part: int,
    slots: int = SLOTS,
    record: bool = True,
) -> Iterator[Episode]:
    """The episodes with these indices, as they finish."""
    noise: dict[int, np.random.Generator] = {}
    unused = np.random.default_rng(0)  # for slots without an episode

    def todo() -> Iterator[tuple[int, int]]:
        for index in indices:
            start, noise[index] = episode_random(seed, part, index)
            yield index, start

    def act(obs: np.ndarray, episodes: np.ndarray) -> np.ndarray:
        return policy.sample(obs, np.stack([policy.draw(noise.get(index, unused)) for index in episodes.tolist()]))

    for episode in play(task, act, todo(), slots, record):
        del noise[episode.index]
        yield episode


def collect_episodes(
    task: str,
    policy: Behaviour,
    *,
    transitions: int,
    seed: int,
    part: int,
    folder: Path,
    reporter: Reporter,
    stage: str = "collecting",
    slots: int = SLOTS,
) -> list[Episode]:
    """The fewest episodes 0, 1, 2, ... with `transitions` in all; those saved in `folder` are not run again."""
    ordered = OrderedEpisodes()
    for episode in _read_saved(folder, part, reporter):
        ordered.add(episode)
    unsaved: list[Episode] = []
    saved_at = time.monotonic()

    def indices() -> Iterator[int]:
        index = 0
        # All finished episodes come before `index`: once they are long enough, `index` is not needed.
        while ordered.length < transitions:
            if index not in ordered.episodes:
                yield index
            index += 1

    if ordered.length_before_gap < transitions:
        for episode in play_episodes(task, policy, indices=indices(), seed=seed, part=part, slots=slots):
            ordered.add(episode)
            unsaved.append(episode)
            if time.monotonic() - saved_at > SAVE_SECONDS:
                _save(folder, part, unsaved)
                unsaved, saved_at = [], time.monotonic()
            done, mean_return = min(ordered.length_before_gap, transitions), ordered.total / len(ordered.episodes)
            reporter.progress(stage, done, transitions, {"return": mean_return})
            if ordered.length_before_gap >= transitions:
                break
    _save(folder, part, unsaved)
    return ordered.first(transitions)


class OrderedEpisodes:
    """Episodes by index. Only those before the first gap count: whatever finishes first would favour short episodes."""

    def __init__(self) -> None:
        self.episodes: dict[int, Episode] = {}
        self.length, self.total = 0, 0.0  # transitions and return of all episodes
        self.length_before_gap, self.gap = 0, 0  # transitions before the first missing index, and that index

    def add(self, episode: Episode) -> None:
        self.episodes[episode.index] = episode
        self.length, self.total = self.length + episode.length, self.total + episode.total
        while self.gap in self.episodes:
            self.length_before_gap += self.episodes[self.gap].length
            self.gap += 1

    def first(self, transitions: int) -> list[Episode]:
        """The fewest first episodes with at least so many transitions."""
        chosen, count = [], 0
        while count < transitions:
            chosen.append(self.episodes[len(chosen)])
            count += chosen[-1].length
        return chosen


# Finished episodes of an interrupted collection, in files of a few seconds each.


def _save(folder: Path, part: int, episodes: list[Episode]) -> None:
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


def _read_saved(folder: Path, part: int, reporter: Reporter) -> Iterator[Episode]:
    for path in sorted(folder.glob(f"episodes-{part}-*.safetensors")):
        try:
            arrays, _ = read_arrays(path)
        except Corrupt as problem:
            reporter.message(f"some episodes are simulated again: {problem}")
            continue
        stops = np.cumsum(arrays["length"])
        for i, (stop, length) in enumerate(zip(stops.tolist(), arrays["length"].tolist(), strict=True)):
            steps, states = slice(stop - length, stop), slice(stop - length + i, stop + i + 1)
            numbers = int(arrays["index"][i]), float(arrays["total"][i]), length, bool(arrays["terminal"][i])
            yield Episode(*numbers, arrays["obs"][states], arrays["action"][steps], arrays["reward"][steps])
