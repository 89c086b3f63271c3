"""Discrete actions in a state: for every label its probability, that of the behaviour, and its Q."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from pspo.data.dataset import Dataset
from pspo.data.discrete import Label
from pspo.evaluation.inspect.action import ChosenActions, PolicyAction
from pspo.evaluation.inspect.action_values import (
    BEST,
    LOGGED,
    POLICY,
    REFERENCE,
    ActionValues,
    MarkedAction,
    critic_std,
    penalty_of,
)
from pspo.evaluation.inspect.networks import Networks
from pspo.evaluation.problem import EvaluationProblem


class LabelValue(NamedTuple):
    """One label, in the dataset's units."""

    label: Label
    available: bool
    probability: float  # of the policy
    reference: float  # of mu
    nearby: int  # how often it was taken in the nearest states of the dataset
    q: float
    std: float  # between critics
    gain: float  # over the policy's label
    gain_std: float


class LabelInspection(NamedTuple):
    action: PolicyAction
    values: ActionValues
    labels: list[LabelValue]


def labels_in(
    problem: EvaluationProblem,
    networks: Networks,
    *,
    obs: np.ndarray,
    chosen: ChosenActions,
    logged: np.ndarray | None,
    nearest_rows: list[int],
) -> LabelInspection:
    """`logged` is the one-hot action of the inspected row."""
    data, one = problem.dataset, jnp.asarray(obs)
    policy = problem.network(problem.policy_norm.encode(one))
    mu = np.asarray(networks.reference(networks.norm.encode(one)).log_p, np.float64)
    own = int(chosen.policy.argmax())
    each = networks.q(np.repeat(obs[None], len(mu), axis=0), np.eye(len(mu), dtype=np.float32))
    rows = _label_values(data, networks, each, own, nearest_rows)
    available = np.asarray(problem.network.available(problem.policy_norm.encode(one)))
    probability = np.asarray(policy.p, np.float64)
    labels = [
        LabelValue(label, bool(available[i]), float(probability[i]), float(np.exp(mu[i])), *rows[i])
        for i, label in enumerate(data.action_labels)
    ]
    action = PolicyAction(
        columns=[],
        log_density=float(np.log(max(probability[own], 1e-300))),
        reference_log_density=float(mu[own]),
        below_mode=float(mu.max() - mu[own]),
        percentile=float(100.0 * np.exp(mu)[mu <= mu[own]].sum()),
    )
    marks = {POLICY: own, REFERENCE: int(mu.argmax()), BEST: _best(networks, each, available)}
    if logged is not None:
        marks[LOGGED] = int(logged.argmax())
    values = ActionValues(
        gamma=networks.evaluators.gamma,
        critics=len(each),
        critic_value=networks.evaluators.critic_value,
        curves=[],
        marks=[_mark(name, labels[i]) for name, i in marks.items()],
        penalty=penalty_of(networks),
        label_q=tuple(label.q for label in labels),
    )
    return LabelInspection(action, values, labels)


def _label_values(
    data: Dataset, networks: Networks, each: np.ndarray, own: int, nearest_rows: list[int]
) -> list[tuple[Any, ...]]:
    """Nearby actions, Q, its error, and the gain over the policy's label, of every label; `each` (critics, labels)."""
    q, std = networks.combine(each), critic_std(each)
    gain, gain_std = q - q[own], critic_std(each - each[:, own : own + 1])
    nearby = np.bincount(data.action_codes[nearest_rows], minlength=each.shape[1])
    return [
        (int(nearby[i]), float(q[i]), float(std[i]), float(gain[i]), float(gain_std[i])) for i in range(each.shape[1])
    ]


def _best(networks: Networks, each: np.ndarray, available: np.ndarray) -> int:
    return int(np.argmax(np.where(available, networks.combine(each), -np.inf)))


def _mark(name: str, value: LabelValue) -> MarkedAction:
    return MarkedAction(name, [value.label], value.q, value.std, value.gain, value.gain_std)
