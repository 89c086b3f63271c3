"""Diagnostics of PSPO, on models whose predictions are known by construction."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.algorithms.pspo.diagnostics import (
    diagnose,
    make_model_return,
    model_episode_size,
    uncertainty,
    whole_pool,
)
from pspo.data import Dataset, load_dataset
from pspo.dynamics.termination import KnownTermination
from tests.algorithms.pspo.pspo_cases import made_config, made_data, made_setup, start
from tests.arrays import f32

SCALE = 1.7  # the reward scale of the made-up normaliser


def setup_that_moves(by: list[float], reward: list[float], terminated):
    """Three members that move the first coordinate by their own constant, for a constant reward, without noise."""
    setup = made_setup()
    pool = jax.tree.map(jnp.zeros_like, setup.arrays.pool)
    out = np.zeros((3, 6), np.float32)  # mean of (change, change, reward), then raw log-std
    out[:, 0], out[:, 2], out[:, 3:] = by, reward, -50.0
    pool = eqx.tree_at(
        lambda p: (p.net.biases[-1], p.log_std_low, p.log_std_high, p.target_std),
        pool,
        (f32(out), jnp.full((3, 3), -20.0), jnp.full((3, 3), -10.0), jnp.ones(3)),
    )
    return setup._replace(arrays=setup.arrays._replace(pool=pool, terminated=terminated))


def crosses_one(obs, action, next_obs):
    return next_obs[..., 0] > 1.0


def two_episodes() -> Dataset:
    """Of four and of ten transitions; the first starts at 0, the second at 0.7, and no other state is near."""
    obs = np.full((14, 2), 50.0, np.float32)
    obs[0], obs[4] = [0.0, 0.0], [0.7, 0.0]
    return Dataset(
        obs=obs,
        action=np.zeros((14, 1)),
        reward=np.zeros(14),
        next_obs=obs,
        terminal=np.zeros(14, bool),
        timeout=np.isin(np.arange(14), [3, 13]),
        action_low=np.array([-2.0]),
        action_high=np.array([3.0]),
    )


@pytest.fixture(scope="module")
def model_return():
    return make_model_return(
        made_config(), setup_that_moves([0.0] * 3, [0.0] * 3, KnownTermination(crosses_one)), two_episodes()
    )


def test_a_constant_reward_is_summed_over_the_longest_episode_in_data_units(model_return) -> None:
    setup = setup_that_moves([0.0] * 3, [0.5] * 3, KnownTermination(crosses_one))
    assert float(model_return(start(), setup.arrays)) == pytest.approx(10 * 0.5 * SCALE, rel=1e-4)


def test_nothing_is_earned_after_the_end(model_return) -> None:
    """Episodes start at 0 and 0.7: steps of 0.2 cross the line at one with the sixth and the second."""
    setup = setup_that_moves([0.2] * 3, [1.0] * 3, KnownTermination(crosses_one))
    assert float(model_return(start(), setup.arrays)) == pytest.approx((6 + 2) / 2 * SCALE, rel=1e-4)


def test_only_models_with_posterior_weight_count(model_return) -> None:
    """Members disagree about the reward; a prior that is sure of one leaves that one only."""
    setup = setup_that_moves([0.0] * 3, [1.0, 2.0, 3.0], KnownTermination(crosses_one))
    for member in range(3):
        log_prior = jnp.full(3, -1e9).at[member].set(0.0)
        estimated = float(model_return(start(), setup.arrays._replace(log_prior=log_prior)))
        assert estimated == pytest.approx(10 * (member + 1.0) * SCALE, rel=1e-4)


def test_uncertainty_is_the_log_of_the_models_disagreement() -> None:
    """Uniform posterior: the standard deviation of the members' means, averaged over coordinates, in data units."""
    by = np.array([0.1, 0.4, 0.7])
    setup = setup_that_moves(
        by.tolist(), [0.2] * 3, KnownTermination(lambda obs, action, next_obs: next_obs[..., 0] > -99.0)
    )
    config = made_config(posterior="uniform")
    found = jax.jit(lambda s: uncertainty(config, setup, s, made_data(), 20, jax.random.PRNGKey(0)))(start())
    variance = np.mean([by.var() / 1.0**2, 0.0])  # the second coordinate never moves
    np.testing.assert_allclose(found.uncertainty, 0.5 * np.log(variance), rtol=1e-4)
    np.testing.assert_allclose(found.td_target, 0.2, rtol=1e-4)  # every episode ends at once: the reward is all
    np.testing.assert_allclose(found.entropy, 1.0, rtol=1e-5)
    np.testing.assert_allclose(found.member_weight, 1 / 3, rtol=1e-5)


def test_the_whole_pool_carries_its_whole_prior() -> None:
    setup = made_setup(log_prior=(0.0, 1.0, 2.0))
    context = whole_pool(setup)
    assert context.models.size == 3
    expected = np.exp([0.0, 1.0, 2.0])
    np.testing.assert_allclose(np.exp(context.log_prior), expected / expected.sum(), rtol=1e-5)


def test_the_diagnosis_is_finite_and_complete() -> None:
    config, setup, data = made_config(), made_setup(), made_data()
    arrays, numbers = diagnose(config, setup, data, start())
    assert -1.0 <= numbers["uncertainty_td_spearman"] <= 1.0
    assert arrays["member_weight"].shape == (3,)
    assert arrays["member_weight"].sum() == pytest.approx(1.0, rel=1e-4)
    assert all(np.isfinite(array).all() for array in arrays.values())
    assert np.all(arrays["entropy"] <= 1.0 + 1e-5)


def test_model_episodes_are_as_long_as_those_of_the_log() -> None:
    """The last row of a cut episode is no transition where it has no next state, but it is one of the steps."""
    rows = np.arange(40)
    columns = {"obs": rows / 7.0, "action": np.sin(rows), "reward": np.cos(rows), "episode": rows // 10}
    data = load_dataset(columns)
    assert data.episode_lengths().tolist() == [9] * 4
    assert model_episode_size(data) == (4, 10)
