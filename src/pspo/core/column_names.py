"""Columns by name: where each wanted column is among the given ones, or one sentence that names what differs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pspo.core.errors import UserError

SHOWN = 20


def listed(names: Iterable[str]) -> str:
    """The names in quotes, with commas between; of many only the first."""
    names = list(names)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(f"'{name}'" for name in names[:SHOWN]) + more


def positions(given: Sequence[str], wanted: Sequence[str], what: str) -> list[int]:
    """For every wanted name its index among the given ones; both must have the same names. `what` has them."""
    if given == wanted:
        return [*range(len(wanted))]
    position = {name: index for index, name in enumerate(given)}
    if len(position) < len(given):
        twice = next(name for index, name in enumerate(given) if position[name] != index)
        raise UserError(f"{what} has the column '{twice}' twice: give every column once.")
    known = set(wanted)
    missing, unknown = [name for name in wanted if name not in position], [name for name in given if name not in known]
    if missing or unknown:
        problems = [f"lacks {listed(missing)}"] * bool(missing) + [f"has the unknown {listed(unknown)}"] * bool(unknown)
        raise UserError(f"{what} {' and '.join(problems)}: give {listed(wanted)}, in any order.")
    return [position[name] for name in wanted]
