"""Which columns of a table play which role: by the patterns that a user gives, or by their usual names."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from pspo.core.column_names import listed
from pspo.core.errors import UserError, unknown_name
from pspo.data.column_pairs import paired
from pspo.data.encoder import CYCLES

ROLES = ("obs", "action", "reward", "next_obs", "episode", "terminal", "timeout", "time", "propensity")
SINGLE = ("reward", "terminal", "timeout", "time", "propensity")  # roles that one column fills
BOUNDS = ("action_low", "action_high")
ENDS = ("episode", "terminal", "timeout", "time")  # any of these says where episodes end
HOW = (
    "say which is which, such as --obs 'x*' --action u1,u2 --reward r --episode id --terminal done "
    "(in Python: columns={'obs': 'x*', ...})"
)

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
TIME_NAME = re.compile(r"(.*[^a-z])?(date|time|datetime|timestamp|day|hour|minute|step|ts)([^a-z].*)?", re.IGNORECASE)
# Names that look like columns of a vector but are not: the next state, probabilities of actions, their bounds.
_NOT_A_PART = re.compile(r".*(next|prob|logp).*|action_(low|high)", re.IGNORECASE)
# `done` often marks time-outs too, so it is only used if no other column marks terminals.
DONE = re.compile("dones?", re.IGNORECASE)


@dataclass(frozen=True)
class Columns:
    """Patterns per role: a column's name, or * and ? for several; a list, or one text with commas between.

    Columns that match a pattern are taken in the order of the table, several patterns in the order given; those of
    the next state follow those of the state by name. A role without patterns is filled by its usual names, if there
    are any. Time and propensity are only used where they are named: a time is also a column of the state if a pattern
    of the state, other than a mere *, fits it. `episode` may name several columns, which together identify an episode.

    `categorical` are columns of the state whose numbers are names of categories; texts are categories anyway. `cyclic`
    are cycles that times of the state are turned into, such as hour_of_day and day_of_week (see
    `pspo.data.encoder.CYCLES`). `ignore` are columns that are left out. `action_low` and `action_high` are numbers: the
    bounds of the actions, one for all or one per column. They apply to every source.

    `discrete` says whether actions are labels or quantities; without it, their values decide (`pspo.data.discrete`).
    `mask` says where labels are available: rules such as "sell: stock >= 1", or columns of the observation.

    `sql` is a query whose rows are read instead of the tables themselves, which it calls `data`.
    """

    obs: str | tuple[str, ...] = ()
    action: str | tuple[str, ...] = ()
    reward: str | tuple[str, ...] = ()
    next_obs: str | tuple[str, ...] = ()
    episode: str | tuple[str, ...] = ()
    terminal: str | tuple[str, ...] = ()
    timeout: str | tuple[str, ...] = ()
    time: str | tuple[str, ...] = ()
    propensity: str | tuple[str, ...] = ()
    categorical: str | tuple[str, ...] = ()
    cyclic: str | tuple[str, ...] = ()
    ignore: str | tuple[str, ...] = ()
    action_low: str | float | tuple[Any, ...] = ()
    action_high: str | float | tuple[Any, ...] = ()
    discrete: bool | str | tuple[str, ...] | None = ()
    mask: str | tuple[str, ...] = ()
    sql: str | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            read = _READ.get(field.name, _patterns)
            object.__setattr__(self, field.name, read(field.name, getattr(self, field.name)))
        for cycle in self.cyclic:
            if cycle not in CYCLES:
                raise unknown_name("cycle", cycle, CYCLES)
        given = [name for name in BOUNDS if getattr(self, name)]
        if len(given) == 1:
            raise UserError(f"only {given[0]} is given: give both action_low and action_high, or neither.")

    def given(self) -> dict[str, tuple[str, ...]]:
        """All that is not empty, as texts."""
        return {field.name: getattr(self, field.name) for field in fields(self) if getattr(self, field.name)}

    @property
    def is_discrete(self) -> bool | None:
        """Whether actions are labels; None where that is not given."""
        return {(): None, ("yes",): True, ("no",): False}[self.discrete]  # pyright: ignore[reportArgumentType]

    def roles(self) -> dict[str, tuple[str, ...]]:
        """The roles that have patterns."""
        return {role: patterns for role, patterns in self.given().items() if role in ROLES}

    @property
    def query(self) -> str | None:
        """What to ask of the tables; None to read them as they are."""
        return self.sql[0] if self.sql else None

    def choose_columns(self) -> bool:
        """Whether this says anything about columns: bounds apply also where columns are known."""
        return bool(self.given().keys() - set(BOUNDS))

    def bounds(self) -> dict[str, Any]:
        """The bounds of the actions, if they are given, as numbers: one for all columns, or one for each."""
        numbers = {name: [float(text) for text in getattr(self, name)] for name in BOUNDS if getattr(self, name)}
        return {name: values[0] if len(values) == 1 else values for name, values in numbers.items()}


def as_columns(value: Columns | Mapping[str, Any] | None) -> Columns:
    if isinstance(value, Columns):
        return value
    if not isinstance(value, Mapping | None):
        raise UserError(f"columns are a {type(value).__name__}: give a pspo.Columns or a dictionary.")
    known = [field.name for field in fields(Columns)]
    for role in value or {}:
        if role not in known:
            raise unknown_name("role of a column", str(role), known)
    return Columns(**dict(value or {}))


def _patterns(role: str, given: Any) -> tuple[str, ...]:
    words = given.split(",") if isinstance(given, str) else () if given is None else given
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise UserError(f"columns of {role} are {given!r}: give a text or a list of texts.")
    patterns = tuple(word.strip() for word in words)
    if not all(patterns):
        raise UserError(f"columns of {role} are {given!r}, where a name is empty: give names or patterns.")
    return patterns


def _yes_or_no(name: str, given: Any) -> tuple[str, ...]:
    """A flag as a text, which every run stores in the same way."""
    texts = {None: (), True: ("yes",), False: ("no",), "yes": ("yes",), "no": ("no",), (): ()}
    texts |= {("yes",): ("yes",), ("no",): ("no",)}
    key = tuple(given) if isinstance(given, list | tuple) else given
    if not isinstance(key, str | bool | tuple | None) or key not in texts:
        raise UserError(f"{name} is {given!r}: give True, False or None.")
    return texts[key]


def _numbers(name: str, given: Any) -> tuple[str, ...]:
    """Numbers as texts, which every run stores in the same way."""
    words = given.split(",") if isinstance(given, str) else [given] if isinstance(given, int | float) else given
    try:
        numbers = [float(word) for word in words if not isinstance(word, bool)] if words is not None else []
    except (TypeError, ValueError):
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)):
        raise UserError(f"{name} is {given!r}: give finite numbers, one for all columns of the action or one for each.")
    return tuple(f"{number!r}".removesuffix(".0") for number in numbers)


def _query(name: str, given: Any) -> tuple[str, ...]:
    """One text, commas and all."""
    texts = (given,) if isinstance(given, str) else tuple(given or ())
    if len(texts) > 1 or not all(isinstance(text, str) and text.strip() for text in texts):
        raise UserError(f"{name} is {given!r}: give one query, such as 'select * from data where site = 1'.")
    return texts


_READ = {"action_low": _numbers, "action_high": _numbers, "discrete": _yes_or_no, "sql": _query}


def choose(names: list[str], columns: Columns) -> dict[str, list[str]]:
    """The columns of every role, by the given patterns or by usual names; `names` are in the order of the table."""
    names = without_ignored(names, columns)
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise UserError(f"the column '{twice[0]}' occurs more than once: give all columns different names.")
    given, known = columns.roles(), dict.fromkeys(names)  # whose order is kept, and which answers `in` at once
    exact = {p for role, patterns in given.items() for p in patterns if role != "time"} & set(names)
    detected = {role: detect(role, [n for n in names if n not in exact]) for role in ROLES if role not in given}
    claims = given | {role: tuple(members) for role, members in detected.items() if members}
    chosen = columns_by_role(known, claims)
    if "obs" in chosen and "next_obs" in chosen:
        both_listed = all(role in given and exact.issuperset(given[role]) for role in ("obs", "next_obs"))
        chosen["next_obs"] = paired(chosen["obs"], chosen["next_obs"], both_listed)
    for role in ("obs", "action", "reward"):
        if role not in chosen:
            raise UserError(f"no column is known to be the {role} among {listed(names)}: {HOW}.")
    for role in SINGLE:
        if len(chosen.get(role, ())) > 1:
            raise UserError(f"several columns are the {role}: {listed(chosen[role])}: name one.")
    if not set(ENDS) & set(chosen):
        raise UserError(f"no column says where episodes end among {listed(names)}: {HOW}.")
    return chosen


def columns_by_role(names: Collection[str], claims: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    """The columns that the patterns of each role get; `names` are in the order of the table."""
    known = dict.fromkeys(names)
    owner = _owners(known, claims)
    return {role: _matches(role, patterns, known, owner) for role, patterns in claims.items()}


def without_ignored(names: list[str], columns: Columns) -> list[str]:
    """The names that no pattern of `ignore` fits."""
    ignored = fitting(columns.ignore, names, "ignore")
    return [name for name in names if name not in ignored]


def fitting(patterns: str | tuple[str, ...], names: list[str], role: str) -> set[str]:
    """The names that one of the patterns fits; each must fit one."""
    known = dict.fromkeys(names)
    members = {pattern: _fitting(pattern, known) for pattern in patterns}
    for pattern, fits in members.items():
        if not fits:
            raise UserError(f"no column fits '{pattern}' ({role}) among {listed(names)}: correct the pattern.")
    return {name for fits in members.values() for name in fits}


def detect(role: str, names: list[str]) -> list[str]:
    """The columns with a usual name of a role; empty if there are none."""
    matching = []
    if role in ("obs", "action"):
        names = [name for name in names if not _NOT_A_PART.fullmatch(name.strip())]
    for family in FAMILIES.get(role, ()):
        members = [name for name in names if re.fullmatch(family, name.strip(), re.IGNORECASE)]
        if members and matching:
            raise UserError(
                f"{listed([matching[0], members[0]])} could both be the {role} among {listed(names)}: {HOW}."
            )
        matching = members or matching
    if role == "terminal" and not matching:
        matching = [name for name in names if DONE.fullmatch(name.strip())]
    return matching


def _owners(names: Collection[str], claims: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The role whose pattern fits a column most closely: `--obs '*'` leaves to other roles the columns they name.

    The time takes a column only from a mere *: it may also be part of the state. So may columns of the episode, such as
    the site of a machine, if both roles name them.
    """
    closest: dict[str, tuple[float, str]] = {}
    times = {name for pattern in claims.get("time", ()) for name in _fitting(pattern, names)}
    for role, patterns in claims.items():
        for pattern in patterns if role != "time" else ():
            closeness = float("inf") if pattern in names else sum(letter not in "*?" for letter in pattern)
            for name in _fitting(pattern, names):
                if closeness == 0 and name in times:
                    continue
                if role == "episode" and name in claims.get("obs", ()):
                    continue
                best, other = closest.get(name, (-1, role))
                if closeness == best and other != role:
                    raise UserError(f"the column '{name}' is asked for as {other} and as {role}: name it once.")
                if closeness > best:
                    closest[name] = closeness, role
    return {name: role for name, (_, role) in closest.items()}


def _fitting(pattern: str, names: Collection[str]) -> list[str]:
    if pattern in names:  # also where a column is really called x*
        return [pattern]
    # Only * and ? are wild: brackets are part of names such as obs[0]. A header "x, y" has spaces.
    expression = re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."))
    return [name for name in names if expression.fullmatch(name) or expression.fullmatch(name.strip())]


def _matches(role: str, patterns: tuple[str, ...], names: Collection[str], owner: Mapping[str, str]) -> list[str]:
    matching: dict[str, None] = {}
    for pattern in patterns:
        shared = role == "time" or (role == "episode" and pattern in names)
        members = [name for name in _fitting(pattern, names) if shared or owner.get(name) == role]
        if not members:
            raise UserError(f"no column fits '{pattern}' ({role}) among {listed(names)}: correct the pattern.")
        matching |= dict.fromkeys(members)
    return [*matching]


def natural_key(name: str) -> list[tuple[int, str, int]]:
    """For sources that keep no order: numbers in a name count as numbers, x2 comes before x10."""
    return [(0, "", int(part)) if part.isdecimal() else (1, part, 0) for part in re.split(r"(\d+)", name) if part]
