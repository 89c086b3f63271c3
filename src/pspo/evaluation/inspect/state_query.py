"""The inspected state: given by its numbers, or as a row of a dataset with the logged action and what followed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pspo.core.errors import UserError
from pspo.data.batches import returns_known
from pspo.data.dataset import Dataset
from pspo.data.encoder import EncodedColumn, Encoder
from pspo.policies.named_observations import in_order, raw_columns

NOT_A_PAIR = "not a name and a number: give it as price=1.2,stock=30."
LONGEST_SHOWN = 60  # characters of a state in a message
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
    row: int | None = None  # of the file that the dataset was read from
    of: Dataset | None = None  # the dataset of the row
    transition: int = 0  # its index in the dataset


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
    index = data.index_of_row(row)
    return StateQuery(data.obs[index], row, data, index)


def _numbers(state: Any, data: Dataset) -> np.ndarray:
    if isinstance(state, str) and "=" in state:
        state = _named(state)
    if isinstance(state, dict) and data.encoder is None:
        state = {name: _number(name, value) for name, value in state.items()}
    if data.encoder is not None:
        return _encoded(state, data, data.encoder)
    ordered = state if isinstance(state, str) else in_order(state, data.obs_names, "the state")
    parts = ordered.split(",") if isinstance(ordered, str) else np.ravel(ordered).tolist()
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


def _number(name: str, value: Any) -> Any:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        raise UserError(f"'{name}={value}' in the state is {NOT_A_PAIR}") from None


def _encoded(state: Any, data: Dataset, encoder: Encoder) -> np.ndarray:
    """Raw values as the columns of the dataset; a missing one is written as nothing, as in price=,stock=30."""
    if isinstance(state, str):
        state = [part.strip() for part in state.split(",")]
    if isinstance(state, Mapping):
        names, values = [*state], [*state.values()]
    else:
        names, values = [], [*state]
    by_name = {column.name: column for column in encoder.columns}
    columns = [by_name.get(name) for name in names] if names else encoder.columns
    if len(values) != len(columns):
        raise UserError(f"the state has {len(values)} values, and '{data.name}' has {len(columns)} columns: give all.")
    typed = [_typed(column, value) for column, value in zip(columns, values, strict=True)]
    obs = encoder.encode(raw_columns(dict(zip(names, typed, strict=True)) if names else typed, encoder, "the state"))
    obs = obs.reshape(-1)
    if not np.isfinite(obs).all():
        column = int((~np.isfinite(obs)).argmax())
        name = data.obs_names[column] if data.obs_names else f"column {column}"
        raise UserError(f"the state is {obs[column]} in {name}, which the dataset never is: give finite numbers.")
    return obs


def _typed(column: EncodedColumn | None, value: Any) -> Any:
    """Words of a command line as the column takes them: numbers as numbers, nothing as missing."""
    if column is None or column.categories or not isinstance(value, str):
        return value
    if not value:
        return None
    try:
        return float(value)
    except ValueError:
        if column.kind == "time":
            return value
        name = column.name or "a column"
        raise UserError(f"'{value}' in the state is not a number for {name}: give one.") from None


def _named(state: str) -> dict[str, str]:
    """price=1.2,stock=30, in any order."""
    named: dict[str, str] = {}
    for part in state.split(","):
        name, equals, value = (word.strip() for word in part.rpartition("="))
        if name in named:
            raise UserError(f"the state gives '{name}' twice: give every column once.")
        if not equals or not name:
            raise UserError(f"'{part}' in the state is {NOT_A_PAIR}")
        named[name] = value
    return named


def _shown(parts: Sequence[Any]) -> str:
    text = ",".join(str(part) for part in parts)
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}...")


def logged_transition(query: StateQuery, gamma: float) -> LoggedTransition | None:
    if query.row is None or query.of is None:
        return None
    data, index = query.of, query.transition
    return LoggedTransition(
        action=data.action[index].tolist(),
        reward=float(data.reward[index]),
        next_obs=data.next_obs[index].tolist() if data.next_known[index] else None,
        terminal=bool(data.terminal[index]),
        return_to_go=float(data.returns_to_go(gamma)[index]),
        return_to_go_known=bool(returns_known(data, gamma)[index]),
    )


def figure_name(query: StateQuery, of_other: bool) -> str:
    """Unique to the state, so that figures of different states do not overwrite each other."""
    if query.row is not None and query.of is not None:
        of = f"-of-{query.of.name}-{query.of.hash[:6]}" if of_other else ""
        return f"inspect-row{query.row}{of}.png".replace("/", "_")
    words = "_".join(str(number) for number in query.obs)  # the shortest text that reads back as the same number
    short = words if len(words) <= LONGEST_NAME else hashlib.sha256(query.obs.tobytes()).hexdigest()[:12]
    return f"inspect-state-{short}.png"
