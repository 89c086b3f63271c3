"""Small datasets, policies and problems for the tests of off-policy evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np

from pspo.data import Dataset
from pspo.data.normalise import Normaliser, fit_normaliser
from pspo.evaluation.problem import EvaluatedReturn, EvaluationProblem, make_problem
from pspo.nets.actors import Deterministic, LinearGaussian
from pspo.nets.mlp import MLP
from pspo.policies.policy import from_network
from tests.arrays import f32

METADATA = {"algo": "bc", "dataset": "made up", "task": None, "seed": 0, "preset": "smoke", "step": 1}


def made_dataset(lengths: Any, ended: Any, seed: int = 0, **changes: Any) -> Dataset:
    """Random episodes of the given lengths; those that did not end are truncated by a time-out."""
    rng = np.random.default_rng(seed)
    n, last = int(np.sum(lengths)), np.cumsum(lengths) - 1
    terminal, timeout = np.zeros(n, bool), np.zeros(n, bool)
    terminal[last], timeout[last] = np.asarray(ended), ~np.asarray(ended)
    fields = {
        "obs": rng.normal(size=(n, 2)),
        "action": rng.uniform(-0.9, 0.9, size=(n, 1)),
        "reward": rng.normal(1.0, 1.0, size=n),
        "next_obs": rng.normal(size=(n, 2)),
        "terminal": terminal,
        "timeout": timeout,
        "action_low": np.array([-1.0]),
        "action_high": np.array([1.0]),
        "name": "made up",
    }
    return Dataset(**(fields | changes))


def linear(weights: Any, bias: Any) -> MLP:
    """A network without hidden layers; with a leading axis on both, a stack of them."""
    return MLP([f32(weights)], [f32(bias)], "silu")


def gaussian(norm: Normaliser, slope: Any = (0.1, -0.2), bias: float = 0.1, log_std: float = -0.5) -> LinearGaussian:
    """One action, its mean linear in the standardised observation."""
    weights = np.zeros((norm.features, 1))
    weights[: len(slope), 0] = slope
    return LinearGaussian(linear(weights, [bias]), f32([log_std]))


def constant(norm: Normaliser, unit: float) -> Deterministic:
    """Always the same action."""
    return Deterministic(linear(np.zeros((norm.features, 1)), [np.arctanh(unit)]))


def made_problem(
    data: Dataset, network: Any = None, gamma: float = 1.0, horizon: int | None = None
) -> EvaluationProblem:
    """Of the return until episodes end, or over `horizon` steps."""
    norm, longest = fit_normaliser(data, gamma), int(data.episode_lengths().max())
    evaluated = EvaluatedReturn(gamma, horizon or longest, horizon is not None)
    return make_problem(from_network(network or gaussian(norm), norm, METADATA), data, evaluated, gamma)
