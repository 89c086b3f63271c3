"""Where the episodes of a table end, and whether by a terminal or by a time-out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pspo.core.column_names import listed
from pspo.core.errors import UserError
from pspo.data.columns import DONE


def mark_ends(
    rows: int,
    chosen: dict[str, list[str]],
    flags: dict[str, np.ndarray],
    episode: tuple[np.ndarray, Any] | None,
    cut: np.ndarray | None = None,
    where: Callable[[int], str] = "row {}".format,
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """(terminal, time-out, notes) from the flags of a table, and from its episode column if it has one.

    `episode` is a number per row and the label of each number. `cut` marks rows after which others are missing.
    `where` names a row.
    """
    notes = []
    terminal = flags.get("terminal", np.zeros(rows, dtype=bool))
    timeout = flags.get("timeout", np.zeros(rows, dtype=bool))
    if "terminal" in flags and DONE.fullmatch(chosen["terminal"][0]):
        notes += _notes_on_done(chosen, terminal & timeout)
    if episode is not None:
        last = _last_rows(", ".join(chosen["episode"]), *episode, where)
        timeout = timeout | (last & ~terminal)
        if "terminal" in flags:
            notes += _notes_on_terminals_inside(chosen, terminal & ~last, where)
        else:
            notes.append("no column marks terminals, so episodes count as cut off: their ends are time-outs.")
    if cut is not None:
        timeout = timeout | (cut & ~terminal)
        if not flags and episode is None:
            ends = int(timeout.sum()) + 1
            notes.append(
                f"no column marks episodes, so the rows are one sequence, cut where rows are missing ({ends} parts)."
            )
    return terminal, timeout, notes


def _notes_on_terminals_inside(
    chosen: dict[str, list[str]], inside: np.ndarray, where: Callable[[int], str]
) -> list[str]:
    """An episode that continues after its terminal was put in the wrong order, or has the wrong column."""
    if not inside.any():
        return []
    row, names = int(inside.argmax()), listed(chosen["episode"])
    return [
        f"rows of one episode ({names}) follow a terminal ('{chosen['terminal'][0]}' at {where(row)}), in "
        f"{inside.sum()} places: check that rows are in time order, or name the time with --time."
    ]


def _notes_on_done(chosen: dict[str, list[str]], both: np.ndarray) -> list[str]:
    done = chosen["terminal"][0]
    if "timeout" not in chosen:
        return [f"the column '{done}' is taken for terminals: if it marks time-outs too, mark those in another column."]
    if both.any():
        return [f"rows that '{done}' and '{chosen['timeout'][0]}' both mark count as terminals ({both.sum()} in all)."]
    return []


def _last_rows(column: str, number: np.ndarray, labels: Any, where: Callable[[int], str]) -> np.ndarray:
    """(n,) bool, true where the next row belongs to another episode; an episode in two pieces is refused."""
    last = np.append(number[1:] != number[:-1], True)
    first = np.flatnonzero(np.append(True, last[:-1]))
    seen: set[int] = set()
    if len(first) > len(np.unique(number)):
        for row in first.tolist():
            if number[row] in seen:
                raise UserError(
                    f"rows of one episode must follow each other, and {where(row)} returns to episode "
                    f"{labels[number[row]]!s} of column '{column}': sort the rows by episode and time, or name the "
                    "column of the time with --time."
                )
            seen.add(number[row])
    return last
