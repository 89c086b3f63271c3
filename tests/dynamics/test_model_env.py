"""Rollouts in the models: where they stop, what a member's outcome is, and how they are split into batches."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.data.batches import Transitions
from pspo.dynamics import model_env
from pspo.dynamics.model_env import (
    ModelEnv,
    capacity_for,
    outcome_noise,
    random_member,
    rollout,
    rollouts_in_batches,
    split_rollouts,
)
from pspo.dynamics.termination import KnownTermination
from pspo.dynamics.uncertainty import largest_deviation, largest_pairwise_distance, largest_std
from tests.dynamics.dynamics_cases import made_ensemble, plain_norm, predict_by_hand, unlimited

MODEL_NORM = plain_norm()
NORM = plain_norm()._replace(reward_scale=np.asarray(0.5, np.float32))  # the critics' rewards are four times as large
MODELS = made_ensemble()
ENV = ModelEnv(
    MODELS, KnownTermination(lambda obs, action, next_obs: next_obs[..., 0] > 1.0), MODEL_NORM, NORM, unlimited()
)
RNG = np.random.default_rng(0)
OBS = RNG.normal(size=(5, 2)).astype(np.float32)
ACTION = RNG.uniform(-1, 1, size=(5, 1)).astype(np.float32)
MEMBER = np.array([[0, 2, 1, 1, 0], [2, 2, 0, 1, 1]])
NOISE = RNG.normal(size=(2, 5, 3)).astype(np.float32)


def predictions_by_hand() -> tuple[np.ndarray, np.ndarray]:
    """(members, batch, targets) means and standard deviations, changes raw and rewards in the models' unit."""
    x = np.concatenate([(OBS - MODEL_NORM.obs_mean) / MODEL_NORM.obs_std, ACTION], axis=1).astype(np.float64)
    both = [predict_by_hand(MODELS, m, x) for m in range(3)]
    return np.stack([mean for mean, _ in both]), np.stack([std for _, std in both])


def test_an_outcome_is_drawn_from_its_own_member_and_in_the_critics_units() -> None:
    @jax.jit
    def drawn():
        prediction = ENV.predict(jnp.asarray(OBS), jnp.asarray(ACTION))
        return ENV.draw(jnp.asarray(OBS), jnp.asarray(ACTION), prediction, jnp.asarray(MEMBER), jnp.asarray(NOISE))

    next_obs, reward, terminal = drawn()
    np.testing.assert_array_equal(terminal, np.asarray(next_obs)[..., 0] > 1.0)
    mean, std = predictions_by_hand()
    for i in range(2):
        for row in range(5):
            m = MEMBER[i, row]
            target = mean[m, row] + std[m, row] * NOISE[i, row]
            np.testing.assert_allclose(next_obs[i, row], OBS[row] + target[:2], rtol=1e-4, atol=1e-5)
            assert float(reward[i, row]) == pytest.approx(4.0 * target[2], rel=1e-4)


def test_without_noise_a_step_is_the_members_mean() -> None:
    prediction = ENV.predict(jnp.asarray(OBS), jnp.asarray(ACTION))
    next_obs, _, _ = ENV.draw(jnp.asarray(OBS), jnp.asarray(ACTION), prediction, jnp.zeros(5, int), jnp.zeros((5, 3)))
    np.testing.assert_allclose(next_obs, OBS + predictions_by_hand()[0][0, :, :2], rtol=1e-4, atol=1e-5)


def test_measures_of_uncertainty_are_in_raw_units() -> None:
    prediction = ENV.predict(jnp.asarray(OBS), jnp.asarray(ACTION))
    mean, std = predictions_by_hand()
    std[..., 2] *= 2.0  # the models' rewards are in units of 2
    np.testing.assert_allclose(largest_std(prediction, 2.0), np.sqrt((std**2).sum(-1)).max(0), rtol=1e-4)
    states = mean[..., :2]
    away = np.sqrt(((states - states.mean(0)) ** 2).sum(-1)).max(0)
    np.testing.assert_allclose(largest_deviation(prediction, 2.0), away, rtol=1e-4)
    pairs = [np.sqrt((((states[i] - states[j]) / [1.0, 3.0]) ** 2).sum(-1)) for i in range(3) for j in range(i)]
    distance = largest_pairwise_distance(prediction, jnp.array([1.0, 3.0]))
    np.testing.assert_allclose(distance, np.max(pairs, axis=0), rtol=1e-4)


def counting_step(count: jax.Array, key: jax.Array) -> tuple[jax.Array, Transitions]:
    """Counts up; ends at 3."""
    after = count + 1
    one = jnp.ones((count.shape[0], 1))
    return after, Transitions(count[:, None], one, after.astype(jnp.float32), after[:, None], after == 3)


def test_a_rollout_stops_with_the_transition_into_a_terminal_state() -> None:
    rows, happened = rollout(counting_step, jnp.array([0, 2, 5, 3]), 4, 5, jax.random.PRNGKey(0))
    assert rows.obs.shape == (5, 4, 1)
    np.testing.assert_array_equal(happened.sum(0), [3, 1, 5, 5])  # from 0: three transitions, the last one terminal
    for i in range(4):
        done = np.asarray(rows.terminal)[:, i]
        lived = np.asarray(happened)[:, i]
        np.testing.assert_array_equal(lived, np.concatenate([[True], ~np.logical_or.accumulate(done)[:-1]]))
    np.testing.assert_array_equal(np.asarray(rows.obs)[:3, 0, 0], [0, 1, 2])


def test_batches_hold_all_rollouts_and_none_exceeds_its_size(monkeypatch) -> None:
    monkeypatch.setattr(model_env, "MAX_PARALLEL", 10)
    for count in (1, 9, 10, 11, 25, 30):
        batches, size = split_rollouts(count)
        assert size <= 10
        assert count <= batches * size < count + batches
        assert capacity_for(count, 4, 3) == batches * size * 12

    def roll(count: int, key: jax.Array) -> tuple[Transitions, jax.Array]:
        return rollout(counting_step, jax.random.randint(key, (count,), 0, 4), count, 2, key)

    rows, happened = jax.jit(lambda key: rollouts_in_batches(25, roll, key))(jax.random.PRNGKey(0))
    assert rows.obs.shape == (54, 1)
    assert happened.shape == rows.reward.shape == (54,)
    first = np.asarray(rows.reward).reshape(3, 2, 9)[:, 0]
    assert len({tuple(batch) for batch in first}) == 3  # every batch has its own random numbers


def test_members_are_drawn_uniformly_from_the_elite() -> None:
    drawn = np.asarray(random_member(jax.random.PRNGKey(0), jnp.array([5, 2, 9]), (3000,)))
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [2, 5, 9]
    assert counts.min() > 900
    assert outcome_noise(jax.random.PRNGKey(0), jnp.zeros((4, 2)), 6).shape == (6, 4, 3)
