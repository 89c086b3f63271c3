"""What is asked: a state given by its numbers, or a row of a log with what was done there and what followed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pspo.core.errors import UserError
from pspo.data.batches import returns_known
from pspo.data.dataset import Dataset

LONGEST_NAME = 48  # of a figure's file: the numbers of a wide state are not readable there anyway


class Logged(NamedTuple):
    """What the log says of the row that is asked about."""

    action: list[float]
    reward: float
    next_obs: list[float] | None  # None where it was never logged
    ended: bool
    to_go: float
    """The discounted return that followed."""
    to_go_known: bool
    """False where a time-out cuts it off."""


class Question(NamedTuple):
    obs: np.ndarray  # (obs_dim,) float32, raw
    row: int | None = None
    of: Dataset | None = None  # the log that the row is of


def ask(own: Dataset, other: Dataset | None, state: Any, row: int | None) -> Question:
    """`row` is one of `other`, where there is one, else of the run's `own` log."""
    if (state is None) == (row is None):
        raise UserError("either a state or a row is looked at: give --state 3,80,1.2 or --row 120.")
    if row is None:
        if other is not None:
            raise UserError("another log is there to take a row from: give --row with --data, or leave --data out.")
        return Question(_numbers(state, own))
    data = own if other is None else other
    if data.obs_dim != own.obs_dim or data.action_dim != own.action_dim:
        raise UserError(
            f"'{data.name}' has {data.obs_dim} observation and {data.action_dim} action columns, and the run's log "
            f"{own.obs_dim} and {own.action_dim}: give a log of the same kind."
        )
    if not 0 <= row < data.size:
        raise UserError(f"row {row} is out of range: '{data.name}' has rows 0 to {data.size - 1}.")
    return Question(data.obs[row], row, data)


def _numbers(state: Any, data: Dataset) -> np.ndarray:
    parts = state.split(",") if isinstance(state, str) else np.ravel(state).tolist()
    try:
        numbers = [float(part) for part in parts]
    except (TypeError, ValueError):
        raise UserError(f"the state {_shown(parts)} is not numbers with commas between: give it as 3,80,1.2.") from None
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


def logged_at(question: Question, gamma: float) -> Logged | None:
    if question.row is None or question.of is None:
        return None
    data, row = question.of, question.row
    return Logged(
        action=data.action[row].tolist(),
        reward=float(data.reward[row]),
        next_obs=data.next_obs[row].tolist() if data.next_known[row] else None,
        ended=bool(data.terminal[row]),
        to_go=float(data.returns_to_go(gamma)[row]),
        to_go_known=bool(returns_known(data, gamma)[row]),
    )


def figure_name(question: Question, of_other: bool) -> str:
    """Says which state it shows, so that no state's figure takes another's place."""
    if question.row is not None and question.of is not None:
        of = f"-of-{question.of.name}-{question.of.hash[:6]}" if of_other else ""
        return f"inspect-row{question.row}{of}.png".replace("/", "_")
    words = "_".join(str(number) for number in question.obs)  # the shortest text that gives the same number again
    short = words if len(words) <= LONGEST_NAME else hashlib.sha256(question.obs.tobytes()).hexdigest()[:12]
    return f"inspect-state-{short}.png"
