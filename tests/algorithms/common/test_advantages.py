"""Advantages of the dataset's actions against a plain loop, and the reference policy that they weight."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.algorithms.common.advantages import LAMBDA, MAX_WEIGHT, advantage_weights, advantages
from pspo.algorithms.common.behaviour import ReferenceConfig, fit_reference
from pspo.data import Dataset
from pspo.data.dataset import discounted_sums
from pspo.data.normalise import fit_normaliser

GAMMA = 0.9


def one_step_bets(rows: int = 2000) -> Dataset:
    """Episodes of one step: actions around 0, and the reward is the action, plus what the state is worth."""
    rng = np.random.default_rng(0)
    obs, action = rng.normal(size=(rows, 1)), 0.3 * rng.normal(size=(rows, 1)).clip(-3, 3)
    return Dataset(
        obs=obs,
        action=action,
        reward=5.0 * obs[:, 0] + action[:, 0],
        next_obs=obs,
        terminal=np.ones(rows, bool),
        timeout=np.zeros(rows, bool),
        action_low=np.array([-1.0]),
        action_high=np.array([1.0]),
    )


class Value:
    """V(s) = 2 s, as a network would return it."""

    def __call__(self, features):
        return 2.0 * features


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.floats(0.0, 1.0))
def test_discounted_sums_are_those_of_a_double_loop(seed: int, rows: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    values, ends = rng.normal(size=rows), rng.random(rows) < 0.3
    ends[-1] = True
    expected = np.zeros(rows)
    for i in range(rows):
        for k in range(i, rows):
            expected[i] += factor ** (k - i) * values[k]
            if ends[k]:
                break
    np.testing.assert_allclose(discounted_sums(values, ends, factor), expected, rtol=1e-9, atol=1e-12)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_advantages_are_discounted_errors_of_the_value_until_the_episode_ends(seed: int) -> None:
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.normal(size=(5, 1)), rng.normal(size=(5, 1))
    terminal, timeout = np.array([0, 1, 0, 0, 0], bool), np.array([0, 0, 0, 1, 0], bool)
    data = Dataset(obs, rng.uniform(-1, 1, (5, 1)), rng.normal(size=5), next_obs, terminal, timeout, [-1.0], [1.0])
    norm = fit_normaliser(data, GAMMA)
    reward, now, after = (
        data.reward / norm.reward_scale,
        2 * norm.encode(data.obs)[:, 0],
        2 * norm.encode(next_obs)[:, 0],
    )
    error = reward + GAMMA * np.where(terminal, 0.0, after) - now
    step = GAMMA * LAMBDA
    expected = [error[0] + step * error[1], error[1], error[2] + step * error[3], error[3], error[4]]
    np.testing.assert_allclose(advantages(data, norm, GAMMA, Value()), expected, rtol=1e-3, atol=1e-4)  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def weighted():
    data = one_step_bets()
    norm = fit_normaliser(data, GAMMA)
    return data, norm, advantage_weights(data, norm, GAMMA, 0.5, 0)


def test_weights_have_mean_one_a_limit_and_follow_the_action_not_the_state(weighted) -> None:
    data, _, weight = weighted
    assert weight.mean() == pytest.approx(1.0, rel=1e-5)
    assert weight.max() / np.median(weight) < 1.5 * MAX_WEIGHT
    assert np.corrcoef(np.log(weight), data.action[:, 0])[0, 1] > 0.9
    assert abs(np.corrcoef(np.log(weight), data.obs[:, 0])[0, 1]) < 0.2


def test_weights_of_returns_that_never_differ_are_all_one() -> None:
    data = one_step_bets(50)
    data = Dataset(data.obs, data.action, np.zeros(50), data.next_obs, data.terminal, data.timeout, [-1.0], [1.0])
    assert (advantage_weights(data, fit_normaliser(data, GAMMA), GAMMA, 0.5, 0) == 1.0).all()


def test_a_weighted_reference_prefers_the_better_actions(weighted) -> None:
    data, norm, weight = weighted
    config = ReferenceConfig(components=1, width=8, depth=1, steps=600, batch=128, lr=0.01, evaluate_every=600)
    features = norm.encode(np.zeros((1, 1), np.float32))

    def mode(weight):
        policy, _ = fit_reference(data, norm, config, 0, lambda *_: None, weight)
        return float(norm.from_unit(np.asarray(jax.jit(lambda f: policy.unit_action(f))(features)))[0, 0])

    expected = np.average(norm.presquash(data.action)[:, 0], weights=weight)
    assert mode(None) == pytest.approx(0.0, abs=0.05)
    assert mode(weight) == pytest.approx(1.02 * np.tanh(expected), abs=0.06)
    assert expected > 0.2
