"""The range of predictions: falls outside the dataset count, saturated columns are corrected, rollouts stay finite."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.algorithms.pspo.posterior import posterior_backup
from pspo.data import Dataset
from pspo.data.normalise import fit_normaliser
from pspo.dynamics.ensemble import Ensemble
from pspo.dynamics.model_env import ModelEnv, elite_step
from pspo.dynamics.prediction_range import prediction_range
from pspo.dynamics.termination import KnownTermination
from pspo.envs.mujoco import hopper_terminated
from pspo.nets.mlp import MLP
from tests.arrays import f32

ROWS = 400


def upright_hoppers() -> Dataset:
    """Torso angles within 0.15, so that no transition comes near the fall at 0.2; one velocity saturates at 10."""
    rng = np.random.default_rng(0)
    obs = rng.uniform(-0.15, 0.15, (ROWS + 1, 11)).astype(np.float32)
    obs[:, 0] = rng.uniform(1.0, 1.3, ROWS + 1)
    obs[:, 7] = np.clip(rng.normal(0.0, 10.0, ROWS + 1), -10.0, 10.0)
    return Dataset(
        obs=obs[:-1],
        action=rng.uniform(-1, 1, (ROWS, 3)).astype(np.float32),
        reward=rng.uniform(0.0, 2.0, ROWS).astype(np.float32),
        next_obs=obs[1:],
        terminal=np.zeros(ROWS, bool),
        timeout=np.arange(ROWS) % 100 == 99,
        action_low=np.full(3, -1.0, np.float32),
        action_high=np.full(3, 1.0, np.float32),
        name="upright",
    )


DATA = upright_hoppers()
NORM = fit_normaliser(DATA)
RANGE = prediction_range(DATA, NORM)


def constant_model(change: np.ndarray, reward: float) -> Ensemble:
    """One member that predicts the same for every state and action, almost without noise."""
    target = np.append(change, reward)
    net = MLP([jnp.zeros((1, NORM.features + 3, 24))], [jnp.zeros((1, 24))], "silu")
    low, high = f32(np.full((1, 12), -20.0)), f32(np.full((1, 12), -19.0))
    return Ensemble(net, low, high, f32(target), f32(np.ones(12)))


class Idle:
    def unit_action(self, features: Any, key: Any) -> Any:
        return jnp.zeros((*features.shape[:-1], 3))


def one_step(models: Ensemble, obs: np.ndarray) -> Any:
    env = ModelEnv(models, KnownTermination(hopper_terminated), NORM, NORM, RANGE)
    return jax.jit(lambda obs, key: elite_step(env, jnp.arange(1), Idle(), obs, key))(obs, jax.random.PRNGKey(0))[1]


@pytest.mark.parametrize("angle", [0.3, -0.3])
def test_a_predicted_fall_ends_the_rollout_even_if_no_logged_hopper_fell(angle: float) -> None:
    obs = DATA.obs[:20].copy()
    obs[:, 1] = 0.0
    change = np.zeros(11)
    change[1] = angle
    rows = one_step(constant_model(change, 1.0), obs)
    assert np.asarray(rows.terminal).all()
    np.testing.assert_allclose(np.asarray(rows.next_obs)[:, 1], angle, rtol=1e-4)
    assert not np.asarray(one_step(constant_model(np.zeros(11), 1.0), obs).terminal).any()


def test_a_predicted_fall_ends_the_backup_of_pspo() -> None:
    obs = jnp.asarray(DATA.obs[:20]).at[:, 1].set(0.0)
    change = np.zeros(11)
    change[1] = 0.3
    result = posterior_backup(
        models=constant_model(change, 0.05),
        log_prior=jnp.zeros(1),
        norm=NORM,
        terminated=KnownTermination(hopper_terminated),
        range=RANGE,
        value=lambda features: jnp.full(features.shape[:-1], 100.0),
        q=jnp.zeros(20),
        obs=obs,
        action=jnp.zeros((20, 3)),
        noise=jnp.zeros((1, 1, 20, 11)),
        gamma=0.99,
        beta=0.0,
    )
    assert np.asarray(result.done).all()
    np.testing.assert_allclose(result.backup, 0.05, rtol=1e-5)  # no value after a fall


def test_saturated_columns_are_clipped_and_all_predictions_stay_finite() -> None:
    wild = np.full(11, 1e30, np.float32)
    reached = RANGE.reached(NORM, wild[None])
    np.testing.assert_array_equal(reached[0, 7], 10.0)
    assert (reached[0, [1, 2, 3]] == np.float32(1e30)).all()  # what the termination rule sees is the prediction
    clipped = RANGE.clip(reached)[0]
    width = NORM.obs_high - NORM.obs_low
    np.testing.assert_allclose(np.delete(clipped, 7), np.delete(NORM.obs_high + width, 7), rtol=1e-6)
    assert clipped[7] == 10.0
    inside = DATA.next_obs
    np.testing.assert_array_equal(RANGE.clip(RANGE.reached(NORM, inside)), inside)


def test_predicted_rewards_stay_in_the_datasets_range_with_a_small_margin() -> None:
    span = float(np.ptp(DATA.reward))
    scale = float(NORM.reward_scale)
    for predicted, expected in ((50.0, DATA.reward.max() + 0.05 * span), (-50.0, DATA.reward.min() - 0.05 * span)):
        rows = one_step(constant_model(np.zeros(11), predicted / scale), DATA.obs[:3])
        np.testing.assert_allclose(np.asarray(rows.reward) * scale, expected, rtol=1e-4)
    inside = one_step(constant_model(np.zeros(11), 0.5 / scale), DATA.obs[:3]).reward
    np.testing.assert_allclose(np.asarray(inside) * scale, 0.5, rtol=1e-5)
