"""Where the episodes of a table end, and whether by a terminal or by a time-out."""

from __future__ import annotations

from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.data.columns import DONE


def mark_ends(
    rows: int,
    chosen: dict[str, list[str]],
    flags: dict[str, np.ndarray],
    episode: tuple[np.ndarray, Any] | None,
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """(terminal, time-out, notes) from the flags of a table, and from its episode column if it has one.

    `episode` is a number per row and the label of each number.
    """
    notes = []
    terminal = flags.get("terminal", np.zeros(rows, dtype=bool))
    timeout = flags.get("timeout", np.zeros(rows, dtype=bool))
    if "terminal" in flags and DONE.fullmatch(chosen["terminal"][0]):
        notes += _notes_on_done(chosen, terminal & timeout)
    if episode is not None:
        last = _last_rows(chosen["episode"][0], *episode)
        timeout = timeout | (last & ~terminal)
        if "terminal" not in flags:
            notes.append("no column marks terminals, so episodes count as cut off: their ends are time-outs.")
    return terminal, timeout, notes


def _notes_on_done(chosen: dict[str, list[str]], both: np.ndarray) -> list[str]:
    done = chosen["terminal"][0]
    if "timeout" not in chosen:
        return [f"the column '{done}' is taken for terminals: if it marks time-outs too, mark those in another column."]
    if both.any():
        return [f"rows that '{done}' and '{chosen['timeout'][0]}' both mark count as terminals ({both.sum()} in all)."]
    return []


def _last_rows(column: str, number: np.ndarray, labels: Any) -> np.ndarray:
    """(n,) bool, true where the next row belongs to another episode; an episode in two pieces is refused."""
    last = np.append(number[1:] != number[:-1], True)
    first = np.flatnonzero(np.append(True, last[:-1]))
    seen: set[int] = set()
    if len(first) > len(np.unique(number)):
        for row in first.tolist():
            if number[row] in seen:
                raise UserError(
                    f"rows of one episode must follow each other, and row {row} returns to episode "
                    f"{labels[number[row]]!s} of column '{column}': sort the rows by episode and time."
                )
            seen.add(number[row])
    return last
