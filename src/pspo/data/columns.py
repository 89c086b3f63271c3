"""Which columns of a table play which role: by the patterns that a user gives, or by their usual names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from pspo.core.errors import UserError, unknown_name

ROLES = ("obs", "action", "reward", "next_obs", "episode", "terminal", "timeout")
SINGLE = ("reward", "episode", "terminal", "timeout")  # roles that one column fills
HOW = (
    "say which is which, such as --obs 'x*' --action u1,u2 --reward r --episode id --terminal done "
    "(in Python: columns={'obs': 'x*', ...})"
)
SHOWN = 20

# For each role, families of names in order of preference. A column of a vector is a stem, then something that is
# not a letter, such as obs_3, obs[3] or state.x; or a single letter and a number, such as s0. Case does not matter.
_INDEXED = r"(?:$|[^a-z].*)"
FAMILIES: dict[str, tuple[str, ...]] = {
    "obs": (f"obs{_INDEXED}", f"observations?{_INDEXED}", f"states?{_INDEXED}", r"s_?\d+"),
    "action": (f"actions?{_INDEXED}", f"act{_INDEXED}", r"a_?\d+"),
    "reward": ("rewards?", "r"),
    "next_obs": (
        f"(?:obs|observations?|states?)_?next{_INDEXED}",
        f"next_?obs{_INDEXED}",
        f"next_?observations?{_INDEXED}",
        f"next_?states?{_INDEXED}",
        r"next_?s_?\d+",
        r"ns_?\d+",
    ),
    "episode": ("episodes?", "episode_?id", "trajectory", "trajectory_?id"),
    "terminal": ("terminals?", "terminated", "terminations?"),
    "timeout": ("time_?outs?", "truncated", "truncations?"),
}
# Names that look like columns of a vector but are not: the next state, probabilities of actions, their bounds.
_NOT_A_PART = re.compile(r".*(next|prob|logp).*|action_(low|high)", re.IGNORECASE)
# `done` often marks time-outs too, so it is only used if no other column marks terminals.
DONE = re.compile("dones?", re.IGNORECASE)


@dataclass(frozen=True)
class Columns:
    """Patterns per role: a column's name, or * and ? for several; a list, or one text with commas between.

    Columns that match a pattern are taken in natural order (x2 before x10). A role without patterns is filled by
    its usual names, if there are any.
    """

    obs: str | tuple[str, ...] = ()
    action: str | tuple[str, ...] = ()
    reward: str | tuple[str, ...] = ()
    next_obs: str | tuple[str, ...] = ()
    episode: str | tuple[str, ...] = ()
    terminal: str | tuple[str, ...] = ()
    timeout: str | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, _patterns(field.name, getattr(self, field.name)))

    def given(self) -> dict[str, tuple[str, ...]]:
        """The roles that have patterns."""
        return {role: getattr(self, role) for role in ROLES if getattr(self, role)}


def as_columns(value: Columns | Mapping[str, Any] | None) -> Columns:
    if isinstance(value, Columns):
        return value
    if not isinstance(value, Mapping | None):
        raise UserError(f"columns are a {type(value).__name__}: give a pspo.Columns or a dictionary.")
    for role in value or {}:
        if role not in ROLES:
            raise unknown_name("role of a column", str(role), ROLES)
    return Columns(**dict(value or {}))


def _patterns(role: str, given: Any) -> tuple[str, ...]:
    words = given.split(",") if isinstance(given, str) else () if given is None else given
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise UserError(f"columns of {role} are {given!r}: give a text or a list of texts.")
    patterns = tuple(word.strip() for word in words)
    if not all(patterns):
        raise UserError(f"columns of {role} are {given!r}, where a name is empty: give names or patterns.")
    return patterns


def choose(names: list[str], columns: Columns) -> dict[str, list[str]]:
    """The columns of every role, by the given patterns or by usual names."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"the column '{twice[0]}' occurs more than once: give all columns different names.")
    given = columns.given()
    exact = {pattern for patterns in given.values() for pattern in patterns} & set(names)
    detected = {role: _detect(role, [n for n in names if n not in exact]) for role in ROLES if role not in given}
    claims = given | {role: tuple(members) for role, members in detected.items() if members}
    owner = _owners(names, claims)
    chosen = {role: _matches(role, patterns, names, owner) for role, patterns in claims.items()}
    for role in ("obs", "action", "reward"):
        if role not in chosen:
            raise UserError(f"no column is known to be the {role} among {listed(names)}: {HOW}.")
    for role in SINGLE:
        if len(chosen.get(role, ())) > 1:
            raise UserError(f"several columns are the {role}: {listed(chosen[role])}: name one.")
    if not {"episode", "terminal", "timeout"} & set(chosen):
        raise UserError(f"no column says where episodes end among {listed(names)}: {HOW}.")
    return chosen


def _detect(role: str, names: list[str]) -> list[str]:
    matching = []
    if role in ("obs", "action"):
        names = [name for name in names if not _NOT_A_PART.fullmatch(name)]
    for family in FAMILIES[role]:
        members = [name for name in names if re.fullmatch(family, name, re.IGNORECASE)]
        if members and matching:
            raise UserError(
                f"{listed([matching[0], members[0]])} could both be the {role} among {listed(names)}: {HOW}."
            )
        matching = members or matching
    if role == "terminal" and not matching:
        matching = [name for name in names if DONE.fullmatch(name)]
    return sorted(matching, key=natural_key)


def _owners(names: list[str], claims: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The role whose pattern fits a column most closely: `--obs '*'` leaves to other roles the columns they name."""
    closest: dict[str, tuple[float, str]] = {}
    for role, patterns in claims.items():
        for pattern in patterns:
            closeness = float("inf") if pattern in names else sum(letter not in "*?" for letter in pattern)
            for name in _fitting(pattern, names):
                best, other = closest.get(name, (-1, role))
                if closeness == best and other != role:
                    raise UserError(f"the column '{name}' is asked for as {other} and as {role}: name it once.")
                if closeness > best:
                    closest[name] = closeness, role
    return {name: role for name, (_, role) in closest.items()}


def _fitting(pattern: str, names: list[str]) -> list[str]:
    if pattern in names:  # also where a column is really called x*
        return [pattern]
    # Only * and ? are wild: brackets are part of names such as obs[0].
    expression = re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."))
    return [name for name in names if expression.fullmatch(name)]


def _matches(role: str, patterns: tuple[str, ...], names: list[str], owner: Mapping[str, str]) -> list[str]:
    matching: list[str] = []
    for pattern in patterns:
        members = [name for name in _fitting(pattern, names) if owner.get(name) == role]
        if not members:
            raise UserError(f"no column fits '{pattern}' ({role}) among {listed(names)}: correct the pattern.")
        matching += sorted((name for name in members if name not in matching), key=natural_key)
    return matching


def natural_key(name: str) -> list[tuple[int, str, int]]:
    """Numbers in a name count as numbers: x2 comes before x10."""
    return [(0, "", int(part)) if part.isdecimal() else (1, part, 0) for part in re.split(r"(\d+)", name) if part]


def listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(f"'{name}'" for name in names[:SHOWN]) + more
