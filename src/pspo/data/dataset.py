"""A dataset of logged transitions, immutable: what every algorithm trains on and every report refers to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.data.arrays import frozen_flags, frozen_floats, require_same_columns, require_same_rows
from pspo.data.d4rl_layout import fields_from_d4rl

HASHED_ARRAYS = ("obs", "action", "reward", "next_obs", "terminal", "timeout", "action_low", "action_high")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Logged transitions. Arrays have one row per transition, are copied to float32 and are read-only.

    Transitions of an episode are consecutive; an episode ends at a terminal, at a time-out or at the last transition.

    Values that are not finite are allowed here, so that `check` can load and report them; training refuses them.
    """

    obs: np.ndarray  # (n, obs_dim) float32
    action: np.ndarray  # (n, action_dim) float32
    reward: np.ndarray  # (n,) float32
    next_obs: np.ndarray  # (n, obs_dim) float32
    terminal: np.ndarray  # (n,) bool: the task is over, next_obs has no value
    timeout: np.ndarray  # (n,) bool: the episode was cut here, next_obs still has value
    action_low: np.ndarray  # (action_dim,) float32
    action_high: np.ndarray  # (action_dim,) float32
    name: str = "dataset"
    task: str | None = None  # a known simulator that can evaluate a policy, such as "liquidation"
    notes: tuple[str, ...] = ()  # what was assumed or dropped while reading the data
    obs_names: tuple[str, ...] = ()  # of the state's columns, where they are known
    action_names: tuple[str, ...] = ()
    # (n,) bool: false where the next state of a terminal was never logged; next_obs then repeats obs, and no model
    # may learn from it. All true unless given.
    next_known: np.ndarray = None  # pyright: ignore[reportAssignmentType]

    def __post_init__(self) -> None:
        for field, axes in (("obs", 2), ("action", 2), ("reward", 1), ("next_obs", 2)):
            self._set(field, frozen_floats(field, getattr(self, field), axes))
        for field in ("terminal", "timeout"):
            self._set(field, frozen_flags(field, getattr(self, field)))
        for field in ("action", "reward", "next_obs", "terminal", "timeout"):
            require_same_rows(field, getattr(self, field), "obs", self.obs)
        require_same_columns("next_obs", self.next_obs, "obs", self.obs)
        if (self.terminal & self.timeout).any():
            # A terminal that falls on the time limit is a terminal: there is nothing left to bootstrap from.
            self._set("timeout", frozen_flags("timeout", self.timeout & ~self.terminal))
        self._freeze_next_known()
        self._freeze_bounds()
        self._set("notes", tuple(self.notes))
        self._freeze_names("obs_names", self.obs_dim)
        self._freeze_names("action_names", self.action_dim)

    def _freeze_names(self, field: str, columns: int) -> None:
        names = tuple(str(name) for name in getattr(self, field))
        if names and len(names) != columns:
            raise UserError(f"'{field}' are {len(names)} where there are {columns} columns: name all, or none.")
        self._set(field, names)

    def _freeze_next_known(self) -> None:
        given = np.ones(self.size, dtype=bool) if self.next_known is None else self.next_known
        known = frozen_flags("next_known", given)
        require_same_rows("next_known", known, "obs", self.obs)
        self._set("next_known", known)
        needed = ~known & ~self.terminal
        if needed.any():
            row = int(needed.argmax())
            raise UserError(f"'next_known' is false at row {row}, which is not terminal: give its next state.")
        lost = np.flatnonzero(~known)
        if (self.next_obs[lost] != self.obs[lost]).any():
            placeholder = self.next_obs.copy()  # always the same placeholder, so that equal data have equal hashes
            placeholder[lost] = self.obs[lost]
            self._set("next_obs", frozen_floats("next_obs", placeholder, axes=2))

    def _freeze_bounds(self) -> None:
        for field in ("action_low", "action_high"):
            bound = frozen_floats(field, getattr(self, field), axes=1)
            require_same_columns(field, bound, "action", self.action)
            if not np.isfinite(bound).all():
                column = int((~np.isfinite(bound)).argmax())
                raise UserError(f"'{field}' is {bound[column]} in column {column}: give finite bounds.")
            self._set(field, bound)
        wrong = self.action_low >= self.action_high
        if wrong.any():
            column = int(wrong.argmax())
            raise UserError(
                f"'action_low' is {self.action_low[column]!s} and 'action_high' is {self.action_high[column]!s} "
                f"in column {column}: the lower bound must be below the upper one."
            )

    def _set(self, field: str, value: Any) -> None:
        object.__setattr__(self, field, value)  # a frozen dataclass allows nothing else; used during construction only

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], unread: Iterable[str] = ()) -> Dataset:
        """From D4RL names: observations, actions, rewards, terminals; optional are next_observations, next_known,
        timeouts, action_low, action_high, name and task. Assumptions are listed in `notes`.

        `unread` names arrays of the source that were not loaded.
        """
        return cls(**fields_from_d4rl(dict(arrays), unread))

    # Sizes

    @property
    def size(self) -> int:
        """Number of transitions."""
        return len(self.obs)

    @property
    def obs_dim(self) -> int:
        """Length of an observation."""
        return self.obs.shape[1]

    @property
    def action_dim(self) -> int:
        """Length of an action."""
        return self.action.shape[1]

    # Episodes

    @cached_property
    def episode_end(self) -> np.ndarray:
        """(n,) bool, true at the last transition of every episode."""
        end = self.terminal | self.timeout
        end[-1] = True
        end.setflags(write=False)
        return end

    @cached_property
    def episode_starts(self) -> np.ndarray:
        """Index of the first transition of every episode, ascending."""
        starts = np.concatenate(([0], np.flatnonzero(self.episode_end)[:-1] + 1))
        starts.setflags(write=False)
        return starts

    def episodes(self) -> list[slice]:
        """The transitions of every episode, as slices."""
        stops = np.flatnonzero(self.episode_end) + 1
        return [slice(start, stop) for start, stop in zip(self.episode_starts.tolist(), stops.tolist(), strict=True)]

    def episode_lengths(self) -> np.ndarray:
        """Number of transitions of every episode."""
        return np.diff(self.episode_starts, append=self.size)

    def ages(self) -> np.ndarray:
        """(n,): steps since the start of the episode."""
        return np.arange(self.size) - np.repeat(self.episode_starts, self.episode_lengths())

    def episode_returns(self) -> np.ndarray:
        """The undiscounted sum of rewards of every episode, float64."""
        return np.add.reduceat(self.reward.astype(np.float64), self.episode_starts)

    def returns_to_go(self, gamma: float) -> np.ndarray:
        """(n,) float64: the discounted sum of rewards from each transition to the end of its episode."""
        if not 0 <= gamma <= 1:
            raise UserError(f"the discount is {gamma}: give a number from 0 to 1.")
        to_go = 0.0
        backwards = []
        # Plain floats are faster than array elements here: about 0.1 s for a million, however short the episodes.
        rewards = self.reward.astype(np.float64).tolist()
        for reward, is_end in zip(reversed(rewards), reversed(self.episode_end.tolist()), strict=True):
            to_go = reward if is_end else reward + gamma * to_go
            backwards.append(to_go)
        return np.array(backwards[::-1], dtype=np.float64)

    def split(self, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Random (train, hold-out) indices, ascending; `fraction` of all transitions, but at least one, is held out."""
        if not 0 < fraction < 1:
            raise UserError(f"the hold-out fraction is {fraction}: give a number between 0 and 1.")
        if self.size < 2:
            raise UserError(f"dataset '{self.name}' has one transition: give at least two to hold one out.")
        held_out = min(max(round(fraction * self.size), 1), self.size - 1)
        shuffled = np.random.default_rng(seed).permutation(self.size)
        return np.sort(shuffled[held_out:]), np.sort(shuffled[:held_out])

    # Identity

    @cached_property
    def hash(self) -> str:
        """SHA-256 of all that can change what is learned: the arrays, the bounds and the task, but not the name."""
        digest = hashlib.sha256(f"task={self.task!r}\n".encode())
        # Left out if all next states are known: such data keep the hash of earlier versions.
        for field in HASHED_ARRAYS if self.next_known.all() else (*HASHED_ARRAYS, "next_known"):
            array = getattr(self, field)
            canonical = array.astype(array.dtype.newbyteorder("<"), copy=False)  # the same on every machine
            digest.update(f"{field} {canonical.dtype.str} {canonical.shape}\n".encode())
            digest.update(canonical.data)
        return digest.hexdigest()

    def summary(self) -> dict[str, Any]:
        """Plain numbers and texts for printing; a NaN in the rewards shows as NaN."""
        with np.errstate(invalid="ignore"):  # infinite rewards give NaN here: which is correct
            returns = self.episode_returns()
            mean, std = float(returns.mean()), float(returns.std())
        unknown = self.size - int(self.next_known.sum())
        return {
            "name": self.name,
            "task": self.task,
            "transitions": self.size,
            "episodes": len(returns),
            "terminals": int(self.terminal.sum()),
            "timeouts": int(self.timeout.sum()),
            **({"without_next_state": unknown} if unknown else {}),
            "obs_dim": self.obs_dim,
            "action_dim": self.action_dim,
            "return_mean": mean,
            "return_std": std,
            "return_min": float(returns.min()),
            "return_max": float(returns.max()),
            "reward_min": float(self.reward.min()),
            "reward_max": float(self.reward.max()),
            "hash": self.hash[:12],
        }
