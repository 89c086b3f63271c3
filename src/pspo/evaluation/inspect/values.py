"""Why the policy does it: Q by action, what critics agree on, and which actions they cannot tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pspo.evaluation.inspect.acts import Chosen, policy_log_density, reference_log_density
from pspo.evaluation.inspect.judges import Judges
from pspo.evaluation.ope.subject import Subject

GRID = 201  # points through the range of an action column


class Curve(NamedTuple):
    """Along one action column, the others held at the policy's action; (GRID,) each, in the log's units."""

    name: str
    action: np.ndarray
    q: np.ndarray  # what the critics say together: their mean or their min
    mean: np.ndarray  # of the critics
    spread: np.ndarray  # between critics; NaN where there is one
    reference_log_density: np.ndarray
    policy_log_density: np.ndarray | None
    alike: tuple[float, float]
    """Around the policy's action: Q differs from Q there by less than critics differ about that difference."""

    @property
    def share_alike(self) -> float:
        """Of the range."""
        return float((self.alike[1] - self.alike[0]) / (self.action[-1] - self.action[0]))


class Mark(NamedTuple):
    """An action worth naming."""

    name: str
    action: list[float]
    q: float
    spread: float
    gain: float  # over the policy's action
    gain_spread: float  # between critics, of that gain


class Values(NamedTuple):
    gamma: float
    critics: int
    together: str
    curves: list[Curve]
    marks: list[Mark]  # the policy's action first

    def mark(self, name: str) -> Mark:
        return next(mark for mark in self.marks if mark.name == name)


POLICY, REFERENCE, BEST, LOGGED = "policy", "reference", "best on the grid", "logged"


def values_in(
    subject: Subject, judges: Judges, names: Sequence[str], obs: np.ndarray, chosen: Chosen, logged: np.ndarray | None
) -> Values:
    """`logged` is the raw action of the row that is asked about."""
    norm, here = judges.norm, chosen.policy
    at_policy = _q(judges, obs, here[None])
    lines = [through(here, i) for i in range(len(here))]
    each = [_q(judges, obs, line) for line in lines]
    together = [judges.q_together(found) for found in each]
    column = int(np.argmax([np.nanmax(q, initial=-np.inf) for q in together]))
    best = lines[column][int(np.argmax(together[column]))]
    marked = {POLICY: here, REFERENCE: chosen.reference, BEST: best}
    if logged is not None:
        marked[LOGGED] = np.clip(norm.unit_action(logged), -1.0, 1.0).astype(np.float32)
    return Values(
        gamma=judges.gamma,
        critics=len(at_policy),
        together=judges.together,
        curves=[
            Curve(
                name=name,
                action=norm.from_unit(line)[:, i].astype(np.float64),
                q=together[i],
                mean=each[i].mean(0),
                spread=between(each[i]),
                reference_log_density=reference_log_density(judges, obs, line),
                policy_log_density=policy_log_density(subject, judges, obs, line),
                alike=alike_around(
                    judges, each[i], at_policy, norm.from_unit(line)[:, i], float(norm.from_unit(here)[i])
                ),
            )
            for i, (name, line) in enumerate(zip(names, lines, strict=True))
        ],
        marks=[_mark(judges, obs, name, unit, at_policy) for name, unit in marked.items()],
    )


def through(unit: np.ndarray, column: int) -> np.ndarray:
    """(GRID, action_dim): one column through its whole range, the others as they are."""
    line = np.repeat(unit[None], GRID, axis=0)
    line[:, column] = np.linspace(-1.0, 1.0, GRID)
    return line


def between(each: np.ndarray) -> np.ndarray:
    """Standard deviation over critics (critics, ...); NaN where there is one."""
    return each.std(0, ddof=1) if len(each) > 1 else np.full(each.shape[1:], np.nan)


def _q(judges: Judges, obs: np.ndarray, unit: np.ndarray) -> np.ndarray:
    return judges.q(np.repeat(obs[None], len(unit), axis=0), unit)


def _mark(judges: Judges, obs: np.ndarray, name: str, unit: np.ndarray, at_policy: np.ndarray) -> Mark:
    each = _q(judges, obs, unit[None])
    gain = judges.q_together(each) - judges.q_together(at_policy)
    return Mark(
        name=name,
        action=judges.norm.from_unit(unit).tolist(),
        q=float(judges.q_together(each)[0]),
        spread=float(between(each)[0]),
        gain=float(gain[0]),
        gain_spread=float(between(each - at_policy)[0]),
    )


def alike_around(
    judges: Judges, each: np.ndarray, at_policy: np.ndarray, action: np.ndarray, here: float
) -> tuple[float, float]:
    """Grows from the grid point next to the policy's action as long as critics disagree more than Q differs.

    What critics all put too high or too low says nothing about which action is better, so differences are compared.
    """
    gain = judges.q_together(each) - judges.q_together(at_policy)
    same = np.abs(gain) <= between(each - at_policy)
    start = int(np.argmin(np.abs(action - here)))
    first, last = start, start
    while first > 0 and same[first - 1]:
        first -= 1
    while last < len(action) - 1 and same[last + 1]:
        last += 1
    if first == last:
        return here, here
    return min(float(action[first]), here), max(float(action[last]), here)
