"""Predictions of a made-up pool with made-up weights: termination, weights and chance, without a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from pspo.algorithms.pspo.rollout import PosteriorBackup
from pspo.evaluation.inspect.model_predictions import REPEATS, predict_pool, predictions_at
from pspo.evaluation.inspect.state_query import LoggedTransition
from tests.dynamics.dynamics_cases import made_ensemble, member_by_hand, plain_norm

NORM, POOL = plain_norm(), made_ensemble()
OBS, UNIT = np.array([0.5, -1.0], np.float32), np.array([0.25], np.float32)
WEIGHT = np.array([0.7, 0.0, 0.3])
SCALE = float(NORM.reward_scale)


def posterior(obs, action, key) -> PosteriorBackup:
    """The second member always ends, the third in one of two draws, the first never."""
    rows = obs.shape[0]
    done = np.zeros((2, 3, rows), bool)
    done[:, 1], done[0, 2] = True, True
    with np.errstate(divide="ignore"):
        log_weight = jnp.asarray(np.repeat(np.log(WEIGHT)[:, None], rows, axis=1))
    zeros = jnp.zeros((3, rows))
    return PosteriorBackup(
        obs, jnp.asarray(done), zeros, jnp.zeros(done.shape), zeros + 1.0, zeros, log_weight, zeros[0]
    )


NETWORKS: Any = SimpleNamespace(norm=NORM, pool=POOL, posterior=posterior)


def by_hand() -> tuple[np.ndarray, np.ndarray]:
    x = np.concatenate([(OBS - NORM.obs_mean) / NORM.obs_std, UNIT])
    mean, std = np.zeros((3, 3)), np.zeros((3, 3))
    for i in range(3):
        plain, log_std = member_by_hand(POOL, i, x)
        mean[i] = plain * np.asarray(POOL.target_std) + np.asarray(POOL.target_mean)
        std[i] = np.exp(log_std) * np.asarray(POOL.target_std)
    unit = np.array([1.0, 1.0, SCALE])
    return (mean + np.append(OBS, 0.0)) * unit, std * unit


def test_predictions_are_in_the_units_of_the_dataset() -> None:
    predicted, (mean, std) = predict_pool(NETWORKS, OBS, UNIT), by_hand()
    assert predicted.mean == pytest.approx(mean, rel=1e-4, abs=1e-5)
    assert predicted.std == pytest.approx(std, rel=1e-4)
    assert predicted.weight == pytest.approx(WEIGHT)
    assert predicted.termination.tolist() == [0.0, 1.0, 0.5]
    assert predicted.backup == pytest.approx(SCALE)
    assert REPEATS > 1


def test_models_without_weight_do_not_count() -> None:
    found, (mean, std) = predictions_at(NETWORKS, ["x", "y"], OBS, UNIT, None), by_hand()
    assert [member.number for member in found.members] == [0, 2, 1]
    assert found.termination == pytest.approx(0.15)
    assert found.effective_models == pytest.approx(1.0 / (0.49 + 0.09))
    assert found.entropy == pytest.approx(-(0.7 * np.log(0.7) + 0.3 * np.log(0.3)) / np.log(3))
    assert [c.name for c in found.columns] == ["x", "y", "reward"]
    assert [c.now for c in found.columns] == [0.5, -1.0, None]
    expected = WEIGHT @ mean
    assert [c.expected for c in found.columns] == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert [c.chance_std for c in found.columns] == pytest.approx(np.sqrt(WEIGHT @ std**2), rel=1e-4)


def test_an_unknown_next_state_stays_unknown() -> None:
    logged = LoggedTransition([2.5], 1.5, None, True, 1.5, True)
    found = predictions_at(NETWORKS, ["x", "y"], OBS, UNIT, logged).columns
    assert [c.observed for c in found] == [None, None, 1.5]
    assert all(c.std_after_logged is not None and c.std_after_logged > 0 for c in found)
