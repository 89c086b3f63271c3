"""What the columns of a table may be, by their names and values: proposals of `pspo data describe`, for a person."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.data.columns import ROLES, TIME_NAME, Columns, columns_by_role, detect, without_ignored
from pspo.data.discrete import one_hot_actions
from pspo.data.encoder import CYCLES, DAY
from pspo.data.fit_encoder import MOST_CATEGORIES
from pspo.data.readers.label_columns import is_text
from pspo.data.readers.state_columns import kind_of_type, seconds

PROPENSITY_NAME = re.compile(r".*(propensity|prob(ability)?|density|pscore)s?", re.IGNORECASE)
EPISODE_NAME = re.compile(r"(.*_)?(id|site|store|unit|session|customer|user|plant|machine)(_id)?", re.IGNORECASE)
CATEGORY_NAME = re.compile(
    r"(.*_)?(id|code|type|kind|category|class|group|region|zone|segment|channel|mode|store|site)(_id|_code)?",
    re.IGNORECASE,
)
LONGEST_STEP = {"hour_of_day": DAY / 2, "day_of_week": 3.5 * DAY, "day_of_year": 182 * DAY}
"""A cycle is of use where times cover it and their usual step is shorter than this."""


def guess_roles(table: Any, columns: Columns) -> dict[str, list[str]]:
    """What is given, then what names say, then guesses; everything else is taken for the state."""
    names = without_ignored(table.column_names, columns)
    given = columns.roles()
    # A mere * is for what all others leave, so it comes last.
    rest = [role for role, patterns in given.items() if any(not pattern.strip("*") for pattern in patterns)]
    chosen = columns_by_role(names, {role: patterns for role, patterns in given.items() if role not in rest})

    def free() -> list[str]:
        used = {name for members in chosen.values() for name in members}
        return [name for name in names if name not in used]

    for role in ROLES:
        if role not in given and (members := _detected(role, free())):
            chosen[role] = members
    for role, members in _guesses(table, free()).items():
        if role not in given and members:
            chosen[role] = members[:1]
    if "episode" not in chosen and "episode" not in given:
        chosen["episode"] = [name for name in free() if EPISODE_NAME.fullmatch(name)]
    if rest:
        chosen = columns_by_role(names, {role: tuple(members) for role, members in chosen.items() if members} | given)
    elif "obs" not in chosen:
        chosen["obs"] = free()
    return {role: members for role, members in chosen.items() if members}


def guess_options(table: Any, chosen: dict[str, list[str]], columns: Columns) -> dict[str, Any]:
    """Entries of the column map besides the roles: categories, cycles, discrete actions."""
    options: dict[str, Any] = {}
    states = chosen.get("obs", [])
    if categorical := [name for name in states if _is_category(name, table.column(name))]:
        options["categorical"] = categorical
    times = [name for name in states if kind_of_type(table.schema.field(name).type) == "time"]
    if cyclic := [cycle for cycle in CYCLES if any(_covers(table.column(name), cycle) for name in times)]:
        options["cyclic"] = cyclic
    actions = chosen.get("action", [])
    if len(actions) == 1 and columns.is_discrete is None and _are_labels(table.column(actions[0])):
        options["discrete"] = True
    return options


def _guesses(table: Any, names: list[str]) -> dict[str, list[str]]:
    import pyarrow as pa

    kinds = {name: table.schema.field(name).type for name in names}
    temporal = [name for name in names if pa.types.is_temporal(kinds[name])]
    return {
        "time": temporal or [name for name in names if TIME_NAME.fullmatch(name)],
        "propensity": [n for n in names if PROPENSITY_NAME.fullmatch(n) and _is_positive(table.column(n))],
    }


def _detected(role: str, names: list[str]) -> list[str]:
    try:
        return detect(role, names)
    except UserError:  # two families of names: the user has to choose
        return []


def _is_positive(column: Any) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)) or column.null_count:
        return False
    lowest = pc.call_function("min", [column]).as_py()
    return lowest is not None and lowest > 0


def _is_category(name: str, column: Any) -> bool:
    """Texts, and whole numbers of a few values whose name is one of a category."""
    import pyarrow as pa

    if kind_of_type(column.type) == "category":
        return True
    if not pa.types.is_integer(column.type) or not CATEGORY_NAME.fullmatch(name):
        return False
    return 2 < len(column.unique()) <= MOST_CATEGORIES


def _covers(column: Any, cycle: str) -> bool:
    if cycle not in LONGEST_STEP:
        return False
    times = np.unique(np.concatenate([seconds("", chunk) for chunk in column.chunks] or [np.zeros(0)]))
    times = times[np.isfinite(times)]
    if len(times) < 2 or np.ptp(times) < CYCLES[cycle][0]:
        return False
    return bool(np.median(np.diff(times)) <= LONGEST_STEP[cycle])


def _are_labels(column: Any) -> bool:
    """By the rule that reading uses."""
    import pyarrow as pa

    if is_text(column.type) or pa.types.is_dictionary(column.type) or pa.types.is_boolean(column.type):
        return True
    if not pa.types.is_integer(column.type) or column.null_count:
        return False
    coded, _ = one_hot_actions(column.to_numpy())
    return coded is not None
