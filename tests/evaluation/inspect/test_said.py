"""What a made-up pool says, weighed by made-up beliefs: ends, weights and chance, without any run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from pspo.algorithms.pspo.rollout import PosteriorBackup
from pspo.evaluation.inspect.beliefs import REPEATS, beliefs_at, say
from pspo.evaluation.inspect.question import Logged
from tests.dynamics.dynamics_cases import made_ensemble, member_by_hand, plain_norm

NORM, POOL = plain_norm(), made_ensemble()
OBS, UNIT = np.array([0.5, -1.0], np.float32), np.array([0.25], np.float32)
WEIGHT = np.array([0.7, 0.0, 0.3])
SCALE = float(NORM.reward_scale)


def weigh(obs, action, key) -> PosteriorBackup:
    """The second member always ends, the third in one of two draws, the first never."""
    rows = obs.shape[0]
    done = np.zeros((2, 3, rows), bool)
    done[:, 1], done[0, 2] = True, True
    with np.errstate(divide="ignore"):
        log_weight = jnp.asarray(np.repeat(np.log(WEIGHT)[:, None], rows, axis=1))
    return PosteriorBackup(
        obs, jnp.asarray(done), jnp.zeros((3, rows)), jnp.ones((3, rows)), jnp.zeros((3, rows)), log_weight
    )


JUDGES: Any = SimpleNamespace(norm=NORM, pool=POOL, weigh=weigh)


def by_hand() -> tuple[np.ndarray, np.ndarray]:
    x = np.concatenate([(OBS - NORM.obs_mean) / NORM.obs_std, UNIT])
    mean, std = np.zeros((3, 3)), np.zeros((3, 3))
    for i in range(3):
        plain, log_std = member_by_hand(POOL, i, x)
        mean[i] = plain * np.asarray(POOL.target_std) + np.asarray(POOL.target_mean)
        std[i] = np.exp(log_std) * np.asarray(POOL.target_std)
    unit = np.array([1.0, 1.0, SCALE])
    return (mean + np.append(OBS, 0.0)) * unit, std * unit


def test_means_chance_ends_and_backups_are_in_the_logs_units() -> None:
    said, (mean, std) = say(JUDGES, OBS, UNIT), by_hand()
    assert said.mean == pytest.approx(mean, rel=1e-4, abs=1e-5)
    assert said.std == pytest.approx(std, rel=1e-4)
    assert said.weight == pytest.approx(WEIGHT)
    assert said.ends.tolist() == [0.0, 1.0, 0.5]
    assert said.backup == pytest.approx(SCALE)
    assert REPEATS > 1


def test_models_that_are_not_believed_do_not_count() -> None:
    found, (mean, std) = beliefs_at(JUDGES, ["x", "y"], OBS, UNIT, None), by_hand()
    assert [member.number for member in found.members] == [0, 2, 1]
    assert found.ends == pytest.approx(0.15)
    assert found.effective == pytest.approx(1.0 / (0.49 + 0.09))
    assert found.entropy == pytest.approx(-(0.7 * np.log(0.7) + 0.3 * np.log(0.3)) / np.log(3))
    assert [c.name for c in found.following] == ["x", "y", "reward"]
    assert [c.now for c in found.following] == [0.5, -1.0, None]
    expected = WEIGHT @ mean
    assert [c.expected for c in found.following] == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert [c.chance for c in found.following] == pytest.approx(np.sqrt(WEIGHT @ std**2), rel=1e-4)


def test_a_next_state_that_was_never_logged_stays_unknown() -> None:
    logged = Logged([2.5], 1.5, None, True, 1.5, True)
    found = beliefs_at(JUDGES, ["x", "y"], OBS, UNIT, logged).following
    assert [c.followed for c in found] == [None, None, 1.5]
    assert all(c.then_spread is not None and c.then_spread > 0 for c in found)
