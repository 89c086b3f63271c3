"""The inspected state: given by its numbers, or as a row of a dataset with the logged action and what followed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pspo.core.errors import UserError
from pspo.data.batches import returns_known
from pspo.data.dataset import Dataset

LONGEST_NAME = 48  # of a figure's file; longer states are named by a hash


class LoggedTransition(NamedTuple):
    """The dataset's record of the inspected row."""

    action: list[float]
    reward: float
    next_obs: list[float] | None  # None if unknown
    terminal: bool
    return_to_go: float
    """The discounted return that followed."""
    return_to_go_known: bool
    """False if a time-out cuts it off."""


class StateQuery(NamedTuple):
    obs: np.ndarray  # (obs_dim,) float32, raw
    row: int | None = None
    of: Dataset | None = None  # the dataset of the row


def make_query(own: Dataset, other: Dataset | None, state: Any, row: int | None) -> StateQuery:
    """`row` is a row of `other` if there is one, else of the run's `own` dataset."""
    if (state is None) == (row is None):
        raise UserError("one state is inspected: give either --state 3,80,1.2 or --row 120.")
    if row is None:
        if other is not None:
            raise UserError("--data names a file to take a row from: give --row with --data, or leave --data out.")
        return StateQuery(_numbers(state, own))
    data = own if other is None else other
    if data.obs_dim != own.obs_dim or data.action_dim != own.action_dim:
        raise UserError(
            f"'{data.name}' has {data.obs_dim} observation and {data.action_dim} action columns, and the run's data "
            f"{own.obs_dim} and {own.action_dim}: give data with the same columns."
        )
    if not 0 <= row < data.size:
        raise UserError(f"row {row} is out of range: '{data.name}' has rows 0 to {data.size - 1}.")
    return StateQuery(data.obs[row], row, data)


def _numbers(state: Any, data: Dataset) -> np.ndarray:
    parts = state.split(",") if isinstance(state, str) else np.ravel(state).tolist()
    try:
        numbers = [float(part) for part in parts]
    except (TypeError, ValueError):
        raise UserError(f"the state {_shown(parts)} is not a list of numbers: give it as 3,80,1.2.") from None
    if len(numbers) != data.obs_dim:
        raise UserError(
            f"the state has {len(numbers)} numbers, and '{data.name}' has {data.obs_dim} columns: give all."
        )
    with np.errstate(over="ignore"):
        obs = np.asarray(numbers, np.float32)
    if not np.isfinite(obs).all():
        column = int((~np.isfinite(obs)).argmax())
        raise UserError(f"the state is {numbers[column]} in column {column}: give finite numbers.")
    return obs


def _shown(parts: Sequence[Any]) -> str:
    return repr(",".join(str(part) for part in parts))


def logged_transition(query: StateQuery, gamma: float) -> LoggedTransition | None:
    if query.row is None or query.of is None:
        return None
    data, row = query.of, query.row
    return LoggedTransition(
        action=data.action[row].tolist(),
        reward=float(data.reward[row]),
        next_obs=data.next_obs[row].tolist() if data.next_known[row] else None,
        terminal=bool(data.terminal[row]),
        return_to_go=float(data.returns_to_go(gamma)[row]),
        return_to_go_known=bool(returns_known(data, gamma)[row]),
    )


def figure_name(query: StateQuery, of_other: bool) -> str:
    """Unique to the state, so that figures of different states do not overwrite each other."""
    if query.row is not None and query.of is not None:
        of = f"-of-{query.of.name}-{query.of.hash[:6]}" if of_other else ""
        return f"inspect-row{query.row}{of}.png".replace("/", "_")
    words = "_".join(str(number) for number in query.obs)  # the shortest text that reads back as the same number
    short = words if len(words) <= LONGEST_NAME else hashlib.sha256(query.obs.tobytes()).hexdigest()[:12]
    return f"inspect-state-{short}.png"
