"""Which column of the next state belongs to which column of the state: next_obs_price follows obs_price, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import takewhile

from pspo.core.column_names import listed
from pspo.core.errors import UserError

LIST_BOTH = "name the columns of both in the same order, such as --obs a,b --next-obs a2,b2"


def paired(obs: Sequence[str], next_obs: Sequence[str], both_listed: bool) -> list[str]:
    """The columns of the next state in the order of the state's.

    If the user listed both by name, the lists are the pairs, and are refused only where the names contradict them.
    """
    if len(obs) != len(next_obs) or len(obs) == 1:
        return [*next_obs]  # a column may hold several numbers: their count is checked when it is known
    if both_listed:
        by_name = _by_name(_without_next, obs, next_obs)
        if by_name is not None and by_name != [*next_obs]:
            wrong = next(i for i, name in enumerate(next_obs) if name != by_name[i])
            raise UserError(
                f"'{next_obs[wrong]}' is listed as the next '{obs[wrong]}', but by its name it follows another column: "
                f"list {listed(by_name)} as the next state of {listed(obs)}."
            )
        return [*next_obs]
    for keys in (_without_next, _distinct_parts):
        by_name = _by_name(keys, obs, next_obs)
        if by_name is not None:
            return by_name
    raise UserError(
        f"the names do not tell which of the next state's columns {listed(next_obs)} belongs to which of the state's "
        f"{listed(obs)}: {LIST_BOTH}."
    )


def _by_name(
    keys: Callable[[Sequence[str]], list[str]], obs: Sequence[str], next_obs: Sequence[str]
) -> list[str] | None:
    """The next state's columns with the keys of the state's; None unless the keys are the same, each once."""
    wanted, by_key = keys(obs), dict(zip(keys(next_obs), next_obs, strict=True))
    if len(set(wanted)) < len(wanted) or by_key.keys() != set(wanted):
        return None
    return [by_key[key] for key in wanted]


def _without_next(names: Sequence[str]) -> list[str]:
    """next_obs_x, obs_next_x and nextObs.x all become obsx."""
    return [re.sub(r"[\W_]", "", re.sub("next", "", name.lower())) for name in names]


def _distinct_parts(names: Sequence[str]) -> list[str]:
    """Without what all names begin or end with: p0 and p1 pair with q0 and q1, price_t and stock_t with price_t1 ..."""
    lower = [name.lower() for name in names]
    ends = [name[_common(lower) :][::-1] for name in lower]
    return [name[_common(ends) :][::-1] for name in ends]


def _common(names: Sequence[str]) -> int:
    """With how many letters in common the names begin."""
    return sum(1 for _ in takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False)))
