"""What an unused column of times tells about the order of the rows: for a note, as nobody named it with --time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.data.columns import TIME_NAME
from pspo.data.readers.identifiers import Where, times_from_arrow
from pspo.data.time_order import REGULAR_SHARE, TimeOrder, Times, order_in_time


def time_hint(
    unused: Sequence[str],
    kind: Callable[[str], Any],
    read: Callable[[str], Sequence[Any]],
    episode: np.ndarray | None,
    content: Callable[[], np.ndarray],
    where: Where,
) -> str:
    """Which of the unused columns may be the time of a row, and whether rows contradict it; empty if none may be.

    `kind` is the Arrow type of a column and `read` its chunks. `episode` and `content` are as in `order_in_time`.
    """
    content = functools.cache(content)  # once for all columns, and only if there is one that may be a time
    named = [name for name in unused if TIME_NAME.fullmatch(name)]
    for name in sorted(unused, key=lambda name: name not in named):
        if not (_is_temporal(kind(name)) or (name in named and _is_number(kind(name)))):
            continue
        try:
            times = times_from_arrow(name, read(name), where)
            order = order_in_time(times, episode, content(), where)
        except UserError:  # empty cells, or many rows at one time: not the time of a row
            continue
        if times.unit is None and not _regular(times, order, episode):
            continue
        if problem := _problem(times, order, episode, where):
            return f" (if '{name}' is the time of a row, {problem}: name it with --time)"
    return f" (if '{named[0]}' is the time of a row, name it with --time)" if named else ""


def _is_temporal(kind: Any) -> bool:
    import pyarrow as pa

    return kind is not None and (pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return kind is not None and (pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _same_episode(order: TimeOrder, episode: np.ndarray | None) -> np.ndarray:
    """Of each row in the order of time but the last: whether the next one is of its episode."""
    rows = order.rows
    return np.ones(len(rows) - 1, bool) if episode is None else episode[rows[1:]] == episode[rows[:-1]]


def _regular(times: Times, order: TimeOrder, episode: np.ndarray | None) -> bool:
    """Whether numbers are those of a clock: in their order, nearly all steps are equal."""
    steps = np.diff(times.values[order.rows])[_same_episode(order, episode)]
    return bool(steps.size) and bool(np.mean(np.isclose(steps, np.median(steps), rtol=1e-3)) >= REGULAR_SHARE)


def _problem(times: Times, order: TimeOrder, episode: np.ndarray | None, where: Where) -> str:
    """In what the rows contradict the times, with the first row; empty if they do not."""
    back = np.diff(times.values) < 0
    if episode is not None:
        back &= episode[1:] == episode[:-1]
    if back.any():
        return f"rows are not in the order of time, as at {where(int(back.argmax()) + 1)}"
    if len(order.rows) < len(times.values):
        left = np.ones(len(times.values), bool)
        left[order.rows] = False
        return f"rows were written twice, such as {where(int(left.argmax()))}"
    if order.cut.any():
        return f"rows are missing, as after {where(int(order.rows[order.cut.argmax()]))}"
    return ""
