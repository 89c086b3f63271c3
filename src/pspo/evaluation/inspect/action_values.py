"""Why the policy acts so: Q by action, how far critics agree, and which actions they cannot distinguish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pspo.evaluation.inspect.action import ChosenActions, policy_log_density, reference_log_density
from pspo.evaluation.inspect.networks import Networks
from pspo.evaluation.problem import EvaluationProblem

GRID = 201  # points through the range of an action column


class QCurve(NamedTuple):
    """Along one action column, the others at the policy's action; (GRID,) each, in the dataset's units."""

    name: str
    action: np.ndarray
    q: np.ndarray  # of the critics combined: their mean or their min
    mean: np.ndarray  # of the critics
    std: np.ndarray  # between critics; NaN if there is only one
    reference_log_density: np.ndarray
    policy_log_density: np.ndarray | None
    indistinguishable: tuple[float, float]
    """Around the policy's action: Q differs by less than the critics' standard deviation of the difference."""

    @property
    def indistinguishable_share(self) -> float:
        """As a fraction of the column's range."""
        return float((self.indistinguishable[1] - self.indistinguishable[0]) / (self.action[-1] - self.action[0]))


class MarkedAction(NamedTuple):
    """An action to compare with the policy's."""

    name: str
    action: list[Any]  # a number for each column, or one label
    q: float
    std: float
    gain: float  # over the policy's action
    gain_std: float  # between critics, of that gain


class ActionValues(NamedTuple):
    gamma: float
    critics: int
    critic_value: str  # "mean" or "min"
    curves: list[QCurve]
    marks: list[MarkedAction]  # the policy's action first
    penalty: float | None = None
    """What PSPO's Q subtracts per nat of divergence from mu at each later step; None where Q has no such cost."""
    label_q: tuple[float, ...] = ()  # of discrete actions, which have no curves: Q of every label

    def mark(self, name: str) -> MarkedAction:
        return next(mark for mark in self.marks if mark.name == name)


POLICY, REFERENCE, BEST, LOGGED = "policy", "reference", "best on the grid", "logged"


def values_of(
    problem: EvaluationProblem,
    networks: Networks,
    names: Sequence[str],
    obs: np.ndarray,
    chosen: ChosenActions,
    logged: np.ndarray | None,
) -> ActionValues:
    """`logged` is the raw action of the inspected row."""
    norm, here = networks.norm, chosen.policy
    at_policy = _q(networks, obs, here[None])
    lines = [action_line(here, i) for i in range(len(here))]
    each = [_q(networks, obs, line) for line in lines]
    combined = [networks.combine(q) for q in each]
    column = int(np.argmax([np.nanmax(q, initial=-np.inf) for q in combined]))
    best = lines[column][int(np.argmax(combined[column]))]
    marked = {POLICY: here, REFERENCE: chosen.reference, BEST: best}
    if logged is not None:
        marked[LOGGED] = np.clip(norm.unit_action(logged), -1.0, 1.0).astype(np.float32)
    return ActionValues(
        gamma=networks.evaluators.gamma,
        critics=len(at_policy),
        critic_value=networks.evaluators.critic_value,
        curves=[
            QCurve(
                name=name,
                action=norm.from_unit(line)[:, i].astype(np.float64),
                q=combined[i],
                mean=each[i].mean(0),
                std=critic_std(each[i]),
                reference_log_density=reference_log_density(networks, obs, line),
                policy_log_density=policy_log_density(problem, networks, obs, line),
                indistinguishable=indistinguishable_around(
                    networks, each[i], at_policy, norm.from_unit(line)[:, i], float(norm.from_unit(here)[i])
                ),
            )
            for i, (name, line) in enumerate(zip(names, lines, strict=True))
        ],
        marks=[_mark(networks, obs, name, unit, at_policy) for name, unit in marked.items()],
        penalty=penalty_of(networks),
    )


def penalty_of(networks: Networks) -> float | None:
    """alpha of Eq. (8), in the dataset's unit of reward."""
    config = networks.evaluators.config
    if not networks.evaluators.own or not config.reference_term:
        return None
    return float(config.alpha * networks.norm.reward_scale)


def action_line(unit: np.ndarray, column: int) -> np.ndarray:
    """(GRID, action_dim): one column over its whole range, the others unchanged."""
    line = np.repeat(unit[None], GRID, axis=0)
    line[:, column] = np.linspace(-1.0, 1.0, GRID)
    return line


def critic_std(each: np.ndarray) -> np.ndarray:
    """Standard deviation over critics (critics, ...); NaN if there is only one."""
    return each.std(0, ddof=1) if len(each) > 1 else np.full(each.shape[1:], np.nan)


def _q(networks: Networks, obs: np.ndarray, unit: np.ndarray) -> np.ndarray:
    return networks.q(np.repeat(obs[None], len(unit), axis=0), unit)


def _mark(networks: Networks, obs: np.ndarray, name: str, unit: np.ndarray, at_policy: np.ndarray) -> MarkedAction:
    each = _q(networks, obs, unit[None])
    gain = networks.combine(each) - networks.combine(at_policy)
    return MarkedAction(
        name=name,
        action=networks.norm.from_unit(unit).tolist(),
        q=float(networks.combine(each)[0]),
        std=float(critic_std(each)[0]),
        gain=float(gain[0]),
        gain_std=float(critic_std(each - at_policy)[0]),
    )


def indistinguishable_around(
    networks: Networks, each: np.ndarray, at_policy: np.ndarray, action: np.ndarray, here: float
) -> tuple[float, float]:
    """Grows from the grid point nearest to the policy's action while critics disagree by more than Q differs.

    Differences are compared, since an error that all critics share says nothing about which action is better.
    """
    gain = networks.combine(each) - networks.combine(at_policy)
    same = np.abs(gain) <= critic_std(each - at_policy)
    start = int(np.argmin(np.abs(action - here)))
    first, last = start, start
    while first > 0 and same[first - 1]:
        first -= 1
    while last < len(action) - 1 and same[last + 1]:
        last += 1
    if first == last:
        return here, here
    return min(float(action[first]), here), max(float(action[last]), here)
