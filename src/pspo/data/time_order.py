"""Rows in the order of their time column, and what that column shows: copies, gaps, and episodes that overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pspo.core.errors import UserError

# Steps count as regular if nearly all are about as long as the median; then a step of twice that length is a gap.
REGULAR_SHARE, TOLERANCE, GAP = 0.9, 0.25, 1.5
MOST_TIES = 0.01  # of the rows: with more rows at one time, episodes are mixed up
MOST_OVERLAPS = 0.05  # of the episodes: if more overlap, they are meant to
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "D": 86400.0}


class Times(NamedTuple):
    """The time of each row of a table: numbers, or counts of a unit since 1970."""

    column: str
    values: np.ndarray  # (rows,) int64 or float64
    unit: str | None = None  # of NumPy's datetime64; None for plain numbers

    @property
    def array(self) -> np.ndarray:
        """(rows,): numbers, or datetime64."""
        return self.values if self.unit is None else self.values.astype(f"datetime64[{self.unit}]")

    def at(self, row: int) -> str:
        """The time of a row, for people."""
        value = self.values[row]
        if self.unit is None:
            return f"{value:.12g}"
        return str(np.array(int(value)).astype(f"datetime64[{self.unit}]")).removesuffix(".000000")

    def length(self, step: float) -> str:
        """A difference of times, for people."""
        if self.unit is None:
            return f"{step:.12g}"
        seconds = float(step) * SECONDS[self.unit]
        for name, size in (("day", 86400.0), ("hour", 3600.0), ("minute", 60.0)):
            if seconds >= size:
                return f"{seconds / size:.4g} {name}{'s' * (seconds != size)}"
        return f"{seconds:.4g} seconds"


class TimeOrder(NamedTuple):
    """The rows of a table by episode and time."""

    rows: np.ndarray  # in the order of the dataset; copies are left out
    cut: np.ndarray  # bool, of these: a gap follows, and the next state is not known
    notes: list[str]


def order_in_time(
    times: Times, episode: np.ndarray | None, content: np.ndarray, where: Callable[[int], str]
) -> TimeOrder:
    """Rows sorted by time within episodes, and episodes by their first time.

    `episode` is a number per row, or None if all rows are one sequence. `content` is a hash of each row: rows of one
    episode and time with the same hash are copies. `where` names a row of the table.
    """
    number = np.zeros(len(times.values), int) if episode is None else episode
    first = np.full(number.max() + 1, times.values.max())
    np.minimum.at(first, number, times.values)
    _, appearance = np.unique(number, return_index=True)
    place = np.empty(len(first), int)
    place[np.lexsort((appearance, first))] = np.arange(len(first))  # equal first times: in the order of the table
    place = place[number]

    copies, notes = _copies(times, place, content, where)
    rows = np.lexsort((times.values, place))  # stable: rows of the same time stay in the order of the table
    moved = np.flatnonzero((rows[1:] < rows[:-1]) & (place[rows[1:]] == place[rows[:-1]]))
    if moved.size:
        row = int(rows[moved[0] + 1])
        notes.append(
            f"rows were sorted by '{times.column}' within episodes: they were not in that order, as at {where(row)}."
        )
    rows = rows[~copies[rows]]
    same = place[rows[1:]] == place[rows[:-1]]
    notes += _ties(times, rows, same, where)
    cut, gaps = _gaps(times, rows, same, where)
    notes += gaps
    if episode is not None:
        notes += _overlaps(times, rows, same, where)
    return TimeOrder(rows, cut, notes)


def _copies(
    times: Times, place: np.ndarray, content: np.ndarray, where: Callable[[int], str]
) -> tuple[np.ndarray, list[str]]:
    """(rows,) bool: an earlier row of the same episode and time has the same content."""
    order = np.lexsort((content, times.values, place))
    repeats = np.ones(len(order) - 1, bool)
    for key in (place, times.values, content):
        repeats &= key[order[1:]] == key[order[:-1]]
    copies = np.zeros(len(order), bool)
    copies[order[1:][repeats]] = True
    if not repeats.any():
        return copies, []
    row = int(np.flatnonzero(copies)[0])
    before = int(order[:-1][order[1:] == row][0])
    twice = "the data seem to be written twice" if copies.sum() * 2.5 > len(copies) else "rows were written twice"
    return copies, [
        f"{twice}: {where(row)} repeats {where(before)}, with the same episode, '{times.column}' ({times.at(row)}) and "
        f"content (copies in all: {copies.sum()}); copies were left out."
    ]


def _ties(times: Times, rows: np.ndarray, same: np.ndarray, where: Callable[[int], str]) -> list[str]:
    """Different rows of one episode at the same time."""
    tied = np.flatnonzero(same & (times.values[rows[1:]] == times.values[rows[:-1]]))
    if not tied.size:
        return []
    one, other = int(rows[tied[0]]), int(rows[tied[0] + 1])
    what = (
        f"{where(one)} and {where(other)} have the same '{times.column}' ({times.at(one)}) in one episode and differ "
        f"(such rows in all: {tied.size})"
    )
    if tied.size > MOST_TIES * len(rows):
        raise UserError(
            f"{what}: name all columns that identify an episode, such as --episode unit,day, or a finer time."
        )
    return [f"{what}: they stay in the order of the table."]


def _gaps(
    times: Times, rows: np.ndarray, same: np.ndarray, where: Callable[[int], str]
) -> tuple[np.ndarray, list[str]]:
    """Where rows are missing. A transition over a gap would be wrong, so the episode is cut there."""
    cut = np.zeros(len(rows), bool)
    steps = np.diff(times.values[rows])
    positive = steps[same & (steps > 0)]
    if not positive.size:
        return cut, []
    usual = np.median(positive)
    if np.mean(np.abs(positive - usual) <= TOLERANCE * usual) < REGULAR_SHARE:
        return cut, []
    cut[:-1] = same & (steps > GAP * usual)
    if not cut.any():
        return cut, []
    before = int(np.flatnonzero(cut)[0])
    one, other = int(rows[before]), int(rows[before + 1])
    return cut, [
        f"rows are missing: '{times.column}' goes from {times.at(one)} ({where(one)}) to {times.at(other)} "
        f"({where(other)}), where a step is {times.length(usual)} (gaps in all: {cut.sum()}); episodes were cut there."
    ]


def _overlaps(times: Times, rows: np.ndarray, same: np.ndarray, where: Callable[[int], str]) -> list[str]:
    """Episodes that begin before an earlier one ends, where nearly all others do not."""
    starts = np.flatnonzero(np.append(True, ~same))
    ends = np.append(starts[1:], len(rows)) - 1
    latest = np.maximum.accumulate(times.values[rows[ends]])
    early = np.flatnonzero(times.values[rows[starts[1:]]] < latest[:-1])
    if not early.size or early.size > MOST_OVERLAPS * len(starts):
        return []
    begins = int(rows[starts[early[0] + 1]])
    ends_later = int(rows[ends[np.argmax(times.values[rows[ends[: early[0] + 1]]])]])
    return [
        f"episodes overlap: one begins at '{times.column}' {times.at(begins)} ({where(begins)}), before an earlier "
        f"one ends ({where(ends_later)}; overlaps in all: {early.size}): check the column of the episode."
    ]
