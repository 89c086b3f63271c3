"""Complete missing next states from the following row, and note where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np

from pspo.core.errors import UserError

OPTIONAL = (
    "source_rows",
    "row_times",
    "propensity",
    "last_reward",
)  # fields with one number per row that may be absent


def complete_next_states(fields: dict[str, Any], known: np.ndarray) -> tuple[dict[str, Any], list[str]]:
    """Fields in which every row inside an episode has its next state, and a note on what was done.

    `known` says which rows of `fields["next_obs"]` can be used; without that field none can. What is missing:

    - within an episode, the next state is the state of the following row;
    - at a terminal, the row is kept without a next state: its reward and its end are useful, critics never
      use the state after it, and a dynamics model must not learn an invented one;
    - at a time-out or at the end of the data, the row is dropped, as there is nothing to bootstrap from. The row
      before it ends the episode now; its own next state still has value, so that end is a time-out. It keeps the
      reward of the dropped row as `last_reward`, which belongs to the return of the episode.
    """
    obs, terminal = fields["obs"], fields["terminal"]
    ends = terminal | fields["timeout"]
    ends[-1] = True
    dropped = ~known & ends & ~terminal
    if dropped.all():
        raise UserError(
            "the next states are missing and no episode has two rows to take them from: add them as next_observations."
        )
    rows = np.flatnonzero(~dropped)
    if "next_obs" in fields:
        next_obs = fields["next_obs"][rows]
        gaps = np.flatnonzero(~(known | ends)[rows])
        next_obs[gaps] = obs[rows[gaps] + 1]
    else:
        next_obs = obs[np.where(ends[rows], rows, rows + 1)]  # at a terminal its own state, as a placeholder
    given = "next_obs" in fields
    completed = {**fields, "next_obs": next_obs, "next_known": known | ~ends, "timeout": fields["timeout"].copy()}
    shortened = np.append(dropped[1:] & ~ends[:-1], False)  # rows that end an episode in place of the next one
    completed["timeout"] |= shortened
    if shortened.any():
        following = np.append(completed["reward"][1:], np.float32(np.nan))
        completed["last_reward"] = np.where(shortened, following, np.float32(np.nan))
    fields.clear()  # like `del obs` below: frees each array as soon as it is filtered
    if dropped.any():
        del obs
        if completed.get("source_rows") is None:
            completed["source_rows"] = np.arange(len(known))
        for field in ("obs", "action", "reward", "terminal", "timeout", "next_known", *OPTIONAL):
            if field in completed:
                completed[field] = completed[field][rows]
    for field in ("obs", "action", "reward", "next_obs"):
        completed[field].setflags(write=False)  # no other references: the dataset need not copy them
    missing = ~known
    counts = ((missing & ~ends).sum(), (missing & terminal).sum(), dropped.sum())
    return completed, _notes(given, *map(int, counts))


def _notes(given: bool, filled: int, without: int, dropped: int) -> list[str]:
    """What was done, in one sentence; empty if next states were given and only terminals lack theirs."""
    if given and not filled and not dropped:
        return []
    parts = ["next states that were missing are the states of the following rows"] if filled else []
    if without:
        parts.append(f"terminal rows without a next state keep their reward ({without} in all)")
    if dropped:
        parts.append(f"last rows of episodes without a terminal were dropped ({dropped} in all)")
    return ["; ".join(parts) + "."]
