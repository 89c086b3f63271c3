"""The replay buffer of the online learner, in memory and on disk.

Nothing is overwritten: there is room for all steps of the run, so that the whole buffer can become a dataset. Every
save writes a new file with the transitions since the last one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.core.files import Corrupt, read_arrays, write_arrays
from pspo.data.batches import Transitions


class Experience:
    """All transitions so far, in order."""

    def __init__(self, capacity: int, obs_dim: int, action_dim: int) -> None:
        self.size, self.saved = 0, 0  # transitions in memory, and on disk
        self.episodes, self.open_start = 0, 0  # finished episodes, and the first transition of the open one
        self.obs, self.next_obs = np.zeros((2, capacity, obs_dim), np.float32)
        self.action = np.zeros((capacity, action_dim), np.float32)
        self.reward = np.zeros(capacity, np.float32)
        self.terminal, self.timeout = np.zeros((2, capacity), bool)

    def add(
        self, obs: np.ndarray, action: np.ndarray, reward: float, next_obs: np.ndarray, ended: tuple[bool, bool]
    ) -> None:
        """Append a transition; `ended` is (terminal, time-out)."""
        index = self.size
        self.obs[index], self.action[index], self.reward[index], self.next_obs[index] = obs, action, reward, next_obs
        self.terminal[index], self.timeout[index] = ended
        self.size += 1
        if any(ended):
            self.episodes, self.open_start = self.episodes + 1, self.size

    def cut(self) -> None:
        """End the open episode at the last transition."""
        self.timeout[self.size - 1] = True
        self.episodes, self.open_start = self.episodes + 1, self.size

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Transitions:
        """Transitions drawn uniformly with replacement."""
        pick = rng.integers(0, self.size, shape)
        parts: tuple[Any, ...] = (self.obs, self.action, self.reward, self.next_obs, self.terminal)
        return Transitions(*(part[pick] for part in parts))

    def arrays(self) -> dict[str, np.ndarray]:
        """All transitions under D4RL's names; an open episode is cut at the end, which is a time-out."""
        arrays = {
            "observations": self.obs,
            "actions": self.action,
            "rewards": self.reward,
            "next_observations": self.next_obs,
            "terminals": self.terminal,
            "timeouts": self.timeout,
        }
        arrays = {name: array[: self.size].copy() for name, array in arrays.items()}
        arrays["timeouts"][-1] |= not arrays["terminals"][-1]
        return arrays

    # On disk

    def save(self, folder: Path, start: int | None = None) -> None:
        """Write the transitions since the last call, or those from `start`."""
        start = self.saved if start is None else start
        if start < self.size:
            new = {name: getattr(self, name)[start : self.size] for name in _FIELDS}
            write_arrays(folder / f"experience-{start:010d}.safetensors", new, {"start": start})
        self.saved = self.size

    def restore(self, folder: Path, size: int) -> None:
        """Read exactly the first `size` transitions. Files that a longer one has replaced are skipped."""
        for path in sorted(folder.glob("experience-*.safetensors")):
            try:
                arrays, metadata = read_arrays(path)
                self._require_shapes(path, arrays)
            except Corrupt as problem:
                raise UserError(f"{problem} Remove '{folder}' and start again.") from None
            if metadata.get("start") != self.size or self.size == size:
                continue
            stop = min(self.size + len(arrays["reward"]), size)
            for name in _FIELDS:
                getattr(self, name)[self.size : stop] = arrays[name][: stop - self.size]
            self.size = stop
        if self.size < size:
            raise UserError(f"'{folder}' lacks transitions {self.size} to {size}: remove it and start again.")
        self.saved = size
        ends = np.flatnonzero((self.terminal | self.timeout)[:size])
        self.episodes, self.open_start = ends.size, int(ends[-1]) + 1 if ends.size else 0

    def _require_shapes(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        size = len(arrays["reward"]) if "reward" in arrays and arrays["reward"].ndim else 0
        for name in _FIELDS:
            wanted = (size, *getattr(self, name).shape[1:])
            if name not in arrays or arrays[name].shape != wanted:
                raise Corrupt(f"{path} lacks '{name}' of shape {wanted}.")


_FIELDS = ("obs", "action", "reward", "next_obs", "terminal", "timeout")
