"""A dataset of logged transitions, immutable: what every algorithm trains on and every report refers to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.core.masked_arrays import without_mask
from pspo.data.action_mask import MaskRule, require_rules
from pspo.data.arrays import (
    frozen_flags,
    frozen_floats,
    require_a_name_each,
    require_same_columns,
    require_same_rows,
)
from pspo.data.d4rl_layout import fields_from_d4rl
from pspo.data.discrete import Label, shown, with_labels
from pspo.data.encode_arrays import FIT, Encoding, encode_arrays
from pspo.data.encoder import Encoder
from pspo.data.mapped import MappedFile, mapped_file, row_blocks
from pspo.data.row_names import row_name

SUMMED_ROWS = 1 << 18  # at once
HASHED_ARRAYS = ("obs", "action", "reward", "next_obs", "terminal", "timeout", "action_low", "action_high")
PROBABILITY_SLACK = 1e-3  # of a softmax in low precision


@dataclass(frozen=True, eq=False)
class Dataset:
    """Logged transitions. Arrays have one row per transition, are copied to float32 and are read-only.

    Transitions of an episode are consecutive; an episode ends at a terminal, at a time-out or at the last transition.

    Actions are quantities, or, with `action_labels`, discrete: they are given as one column of labels and kept as
    one-hot vectors, whose bounds are -1 and 1, so that a vector is its own unit action.

    Values that are not finite are allowed here, so that `check` can load and report them; training refuses them.
    """

    obs: np.ndarray  # (n, obs_dim) float32
    action: np.ndarray  # (n, action_dim) float32; one-hot where actions are discrete
    reward: np.ndarray  # (n,) float32
    next_obs: np.ndarray  # (n, obs_dim) float32
    terminal: np.ndarray  # (n,) bool: the task is over, next_obs has no value
    timeout: np.ndarray  # (n,) bool: the episode was cut here, next_obs still has value
    # (action_dim,) float32 each; needed unless actions are discrete
    action_low: np.ndarray = None  # pyright: ignore[reportAssignmentType]
    action_high: np.ndarray = None  # pyright: ignore[reportAssignmentType]
    name: str = "dataset"
    task: str | None = None  # a known simulator that can evaluate a policy, such as "liquidation"
    notes: tuple[str, ...] = ()  # what was assumed or dropped while reading the data
    obs_names: tuple[str, ...] = ()  # of the state's columns, where they are known
    action_names: tuple[str, ...] = ()
    # What raw columns became columns of obs, where they are not the same: None if obs are to be stored as they are.
    # Left out, obs and next_obs are raw: columns whose differences float32 would round away get an offset.
    encoder: Encoder | None = FIT  # pyright: ignore[reportAssignmentType]
    # (n,) bool: false where the next state of a terminal was never logged; next_obs then repeats obs, and no model
    # may learn from it. All true unless given.
    next_known: np.ndarray = None  # pyright: ignore[reportAssignmentType]
    # (n,) float32: the density, or for discrete actions the probability, with which the logged action was chosen, in
    # the units of the dataset; None where it was not logged.
    propensity: np.ndarray | None = None
    # (n,) float32: at the end of a cut episode, the reward of its last row if that was dropped because it has no next
    # state; else NaN. Nothing learns from it, but it belongs to the return of the episode. None if there is none.
    last_reward: np.ndarray | None = None
    # (n,) the row of the file that each transition was read from, where that is not its index; and, if there are
    # several files, the name and first row of each. For messages only.
    source_rows: np.ndarray | None = None
    files: tuple[tuple[str, int], ...] = ()
    reward_name: str = ""  # of its column, where it is known: for messages only
    # (n,) numbers or datetime64: the time of each transition, where its column was named. For hold-outs and messages.
    row_times: np.ndarray | None = None
    time_name: str = ""
    held_out_rows: np.ndarray | None = None  # like `source_rows`: the part that was held out from these data
    action_labels: tuple[Label, ...] = ()  # of discrete actions; none where actions are quantities
    action_mask: tuple[MaskRule, ...] = ()  # where discrete actions are available; without rules always

    def __post_init__(self) -> None:
        if not isinstance(self.encoder, Encoder | None) and self.encoder != FIT:
            raise UserError(f"the encoder is a {type(self.encoder).__name__}: give that of a dataset, or None.")
        if len(self.action_labels):
            self._code_actions()
        if self.encoder == FIT:
            self._encode()
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
        self._freeze_propensity()
        if self.last_reward is not None:
            self._set("last_reward", frozen_floats("last_reward", self.last_reward, axes=1))
            require_same_rows("last_reward", self.last_reward, "obs", self.obs)
        if self.row_times is not None:
            require_same_rows("row_times", self.row_times, "obs", self.obs)
        self._freeze_bounds()
        self._set("notes", tuple(self.notes))
        if self.encoder is not None:
            if self.encoder.width != self.obs_dim:
                raise UserError(
                    f"the encoder gives {self.encoder.width} columns where obs has {self.obs_dim}: give both or none."
                )
            self._set("obs_names", self.encoder.names)
        self._freeze_names("obs_names", self.obs_dim)
        self._freeze_names("action_names", 1 if self.discrete else self.action_dim)
        self._set("action_mask", require_rules(self.action_mask, len(self.action_labels), self.obs_dim))

    def _code_actions(self) -> None:
        coded = with_labels(without_mask(self.action), self.action_labels)
        self._set("action_labels", coded.labels)
        self._set("action", coded.one_hot())
        for field, bound in (("action_low", -1.0), ("action_high", 1.0)):
            self._set(field, np.full(len(coded.labels), bound, np.float32))

    def _encode(self) -> None:
        """What readers do to arrays before they make a dataset of them."""
        fields = {"observations": "obs", "next_observations": "next_obs", "actions": "action", "rewards": "reward"}
        fields |= {"obs_names": "obs_names", "name": "name", "notes": "notes"}
        arrays = {name: getattr(self, field) for name, field in fields.items()}
        self._set("encoder", encode_arrays(arrays, FIT))
        for name, field in fields.items():
            self._set(field, arrays[name])

    def _freeze_names(self, field: str, columns: int) -> None:
        names = tuple(str(name) for name in getattr(self, field))
        require_a_name_each(field, names, columns)
        if len(set(names)) < len(names):
            raise UserError(f"'{field}' has two columns of one name among {', '.join(names)}: give different names.")
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

    def _freeze_propensity(self) -> None:
        if self.propensity is None:
            return
        self._set("propensity", frozen_floats("propensity", self.propensity, axes=1))
        require_same_rows("propensity", self.propensity, "obs", self.obs)
        wrong = ~(self.propensity > 0) | ~np.isfinite(self.propensity)
        if wrong.any():
            row = int(wrong.argmax())
            raise UserError(
                f"the propensity is {self.propensity[row]!s} at {self.row_name(row)} (rows affected: {wrong.sum()}): "
                "give the density or probability of the logged action, which is above zero, not its logarithm."
            )
        if self.discrete and (self.propensity > 1.0 + PROBABILITY_SLACK).any():
            row = int((self.propensity > 1.0 + PROBABILITY_SLACK).argmax())
            raise UserError(
                f"the propensity is {self.propensity[row]!s} at {self.row_name(row)}, and that of a discrete action is "
                "a probability: give one between 0 and 1."
            )

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
    def from_arrays(cls, arrays: Mapping[str, Any], unread: Iterable[str] = (), encoder: Encoding = FIT) -> Dataset:
        """From D4RL names: observations, actions, rewards, terminals; optional are next_observations, next_known,
        timeouts, action_low, action_high, name and task. Assumptions are listed in `notes`.

        `unread` names arrays of the source that were not loaded. Observations are encoded by `encoder`; by default by
        one that is fitted to them, if they need one.
        """
        arrays = dict(arrays)
        fitted = encode_arrays(arrays, encoder)
        return cls(**fields_from_d4rl(arrays, unread), encoder=fitted)

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

    @property
    def mapped_file(self) -> MappedFile | None:
        """The file that the transitions stay in; None if they are in memory."""
        return mapped_file(self.obs)

    @property
    def raw_obs_names(self) -> tuple[str, ...]:
        """Names of the raw columns of an observation: those that a policy is called with."""
        return self.obs_names if self.encoder is None else self.encoder.raw_names

    @property
    def discrete(self) -> bool:
        """Whether actions are labels and not quantities."""
        return bool(self.action_labels)

    @property
    def action_codes(self) -> np.ndarray:
        """(n,): of discrete actions, the index of each row's label."""
        return self.action.argmax(axis=1)

    # Rows and columns in messages

    def row_name(self, row: int) -> str:
        """A transition by its row in the file that it was read from, such as "row 12 of 'may.csv'"."""
        return row_name(row if self.source_rows is None else int(self.source_rows[row]), self.files)

    def index_of_row(self, row: int) -> int:
        """The transition that was read from a row of the file; rows of several files are counted through."""
        if self.held_out_rows is not None and row in self.held_out_rows:
            raise UserError(
                f"row {row} of '{self.name}' is in the hold-out, which was not trained on: give the whole dataset with "
                "--data, or take another row."
            )
        last = self.size - 1 if self.source_rows is None else int(self.source_rows.max())
        if not 0 <= row <= last:
            raise UserError(f"row {row} is out of range: '{self.name}' has rows 0 to {last}.")
        if self.source_rows is None:
            return row
        matches = np.flatnonzero(self.source_rows == row)
        if not matches.size:
            raise UserError(f"row {row} of '{self.name}' was left out when it was read: take the row before it.")
        return int(matches[0])

    def column_name(self, role: str, column: int) -> str:
        """A column of "obs" or "action" by its name in quotes, or by its number where it has none."""
        names = self.obs_names if role in ("obs", "next_obs") else self.action_names
        return f"'{names[column]}'" if names else f"{column}"

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
        """The undiscounted sum of rewards of every episode's transitions, float64."""
        return np.add.reduceat(self.reward.astype(np.float64), self.episode_starts)

    def logged_rewards(self) -> tuple[np.ndarray, np.ndarray]:
        """Rewards of all logged steps, float64, and the number of steps of every episode: transitions, and the last
        row of a cut episode where it has no next state."""
        reward, lengths = self.reward.astype(np.float64), self.episode_lengths()
        if self.last_reward is None:
            return reward, lengths
        kept = np.flatnonzero(self.episode_end & ~np.isnan(self.last_reward))
        more = np.isin(np.flatnonzero(self.episode_end), kept)
        return np.insert(reward, kept + 1, self.last_reward[kept]), lengths + more

    def logged_returns(self) -> np.ndarray:
        """The undiscounted sum of all logged rewards of every episode, float64."""
        reward, lengths = self.logged_rewards()
        return np.add.reduceat(reward, np.cumsum(lengths) - lengths)

    def returns_to_go(self, gamma: float) -> np.ndarray:
        """(n,) float64: the discounted sum of rewards from each transition to the end of its episode."""
        if not 0 <= gamma <= 1:
            raise UserError(f"the discount is {gamma}: give a number from 0 to 1.")
        return discounted_sums(self.reward, self.episode_end, gamma)

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
            canonical = array.dtype.newbyteorder("<")  # the same on every machine
            digest.update(f"{field} {canonical.str} {array.shape}\n".encode())
            for rows in row_blocks(array):
                digest.update(array[rows].astype(canonical, copy=False).data)
        if self.encoder is not None:
            digest.update(f"encoder {json.dumps(self.encoder.as_json(), sort_keys=True)}\n".encode())
        if self.discrete:
            digest.update(f"labels {self.action_labels!r} mask {[tuple(rule) for rule in self.action_mask]!r}".encode())
        return digest.hexdigest()

    def summary(self) -> dict[str, Any]:
        """Plain numbers and texts for printing; a NaN in the rewards shows as NaN."""
        with np.errstate(invalid="ignore"):  # infinite rewards give NaN here: which is correct
            returns = self.logged_returns()
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
            "action_dim": f"1, with the labels {shown(self.action_labels)}" if self.discrete else self.action_dim,
            "return_mean": mean,
            "return_std": std,
            "return_min": float(returns.min()),
            "return_max": float(returns.max()),
            "reward_min": float(self.reward.min()),
            "reward_max": float(self.reward.max()),
            "hash": self.hash[:12],
        }


def discounted_sums(values: np.ndarray, ends: np.ndarray, factor: float) -> np.ndarray:
    """(n,) float64: from each row to the end of its episode, the sum of the values times factor^0, factor^1, ..."""
    total, sums = 0.0, np.empty(len(values))
    # Plain floats are faster than array elements here: about 0.1 s for a million, however short the episodes. They take
    # eight times the memory, so there are never many.
    for start in reversed(range(0, len(values), SUMMED_ROWS)):
        rows, backwards = slice(start, start + SUMMED_ROWS), []
        numbers = values[rows].astype(np.float64).tolist()
        for number, is_end in zip(reversed(numbers), reversed(ends[rows].tolist()), strict=True):
            total = number if is_end else number + factor * total
            backwards.append(total)
        sums[rows] = backwards[::-1]
    return sums
