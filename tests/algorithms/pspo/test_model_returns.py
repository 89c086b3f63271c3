"""Returns of the deployed policy in the models: lambda-returns, rollouts and draws, against plain NumPy."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.algorithms.pspo import algorithm as pspo
from pspo.algorithms.pspo.model_returns import (
    LAMBDA,
    Steps,
    lambda_returns,
    model_returns,
    path_disagreement,
    supported_kl_limit,
)
from pspo.algorithms.pspo.state import Context, ModelReturns
from pspo.core.errors import UserError
from pspo.dynamics.termination import NeverTerminates
from pspo.nets.policies import kl_bound
from pspo.training.loop import compile_chunk
from tests.algorithms.pspo.pspo_cases import (
    OBS,
    encode_by_hand,
    ends,
    made_config,
    made_data,
    made_policy,
    made_setup,
    mlp_by_hand,
    predict_by_hand,
    run_chunks,
    start,
)
from tests.arrays import f32

CHANGES = {"value_rollouts": 6, "value_of": "mode", "improvement": "gradient", "model_noise": 0.0, "alpha": 0.05}
CONFIG = made_config(**CHANGES)
GAMMA = CONFIG.gamma


def n_step_mixture(reward, backup, done, end) -> float:
    """The lambda-return from its definition: n-step returns with weights (1 - lambda) lambda^(n-1); the rest last."""
    total, weight, so_far, discount = 0.0, 1.0, 0.0, 1.0
    for r, b, ended in zip(reward, backup, done, strict=True):
        if ended:
            return total + weight * (so_far + discount * b)
        total += weight * (1.0 - LAMBDA) * (so_far + discount * b)
        weight *= LAMBDA
        so_far, discount = so_far + discount * r, discount * GAMMA
    return total + weight * (so_far + discount * end)


@given(steps=st.integers(1, 30), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_lambda_returns_mix_the_returns_over_n_steps(steps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    reward, backup = rng.normal(size=(2, steps, 3))
    done, end = rng.random((steps, 3)) < 0.1, rng.normal(size=3)
    found = lambda_returns(f32(reward), f32(backup), jnp.asarray(done), f32(end), GAMMA)
    for t in range(steps):
        for i in range(3):
            expected = n_step_mixture(reward[t:, i], backup[t:, i], done[t:, i], end[i])
            assert float(found[t, i]) == pytest.approx(expected, rel=1e-4, abs=1e-4)


@given(alive=st.lists(st.booleans(), min_size=1, max_size=30), seed=st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_only_states_before_the_end_are_drawn_and_all_of_them(alive: list[bool], seed: int) -> None:
    alive[0] = True  # every rollout has a first state
    returns = ModelReturns(jnp.zeros((len(alive), 1)), jnp.zeros(len(alive)), jnp.cumsum(jnp.asarray(alive)))
    drawn = np.asarray(returns.draw(jax.random.PRNGKey(seed), 2000))
    assert set(drawn) == {index for index, lives in enumerate(alive) if lives}


def test_rollouts_act_by_the_mode_and_end_by_the_rule() -> None:
    """One model without noise: the whole computation again in double precision."""
    setup, state = made_setup(), start()
    state = state._replace(params=state.params._replace(policy=made_policy(2)))
    one = eqx.tree_at(lambda m: m.target_mean, setup.arrays.pool.take(jnp.array([1])), f32([0.5, 0.1, 0.2]))
    first = np.random.default_rng(5).normal(size=(8, OBS)).astype(np.float32)
    first[:, 0] = np.linspace(-1.0, 0.99, 8)  # a rollout ends where this column exceeds one
    compute = jax.jit(
        lambda first, key: model_returns(CONFIG, setup, Context(one, jnp.zeros(1)), state=state, starts=first, key=key)[
            0
        ]
    )
    found = compute(first, jax.random.PRNGKey(0))

    policy, mu = state.params.policy, setup.arrays.reference
    steps, obs, alive = CONFIG.rollout_horizon, first.astype(np.float64), np.ones(8, bool)
    reward, backup, done, seen, counted = [], [], [], [], []
    for _ in range(steps):
        features = encode_by_hand(setup.norm, obs)
        action = np.asarray(policy.unit_action(f32(features)), np.float64)
        cost = CONFIG.alpha * kl_of(policy, mu, features)
        mean = predict_by_hand(one, 0, np.concatenate([features, action], axis=1))[0]
        after = obs + mean[:, :OBS]
        ended = np.asarray(ends(obs, action, after))
        value = mlp_by_hand(state.params.value, encode_by_hand(setup.norm, after))[:, 0]
        seen.append(obs), counted.append(alive)
        reward.append(mean[:, OBS] - cost), done.append(ended)
        backup.append(mean[:, OBS] + GAMMA * np.where(ended, 0.0, value) - cost)
        obs, alive = np.where(ended[:, None], obs, after), alive & ~ended
    end = mlp_by_hand(state.params.value, encode_by_hand(setup.norm, obs))[:, 0]
    assert 0 < np.sum(counted) < 8 * steps  # some rollouts end
    np.testing.assert_array_equal(found.alive, np.cumsum(counted))
    returns, states = np.asarray(found.returns).reshape(steps, 8), np.asarray(found.obs).reshape(steps, 8, OBS)
    for t in range(steps):
        for i in np.flatnonzero(counted[t]):
            expected = n_step_mixture(*(np.array(part)[t:, i] for part in (reward, backup, done)), end[i])
            assert returns[t, i] == pytest.approx(expected, rel=1e-3, abs=1e-3)
            np.testing.assert_allclose(states[t, i], seen[t][i], rtol=1e-3, atol=1e-4)


def test_an_end_by_noise_costs_the_whole_future() -> None:
    """One step of noisy rollouts: those that end return their reward alone, whatever the antithetic draw met."""
    setup, state = made_setup(), start()
    config = made_config(**CHANGES | {"model_noise": 3.0, "rollout_horizon": 1, "reference_term": False})
    value = jax.tree.map(jnp.zeros_like, state.params.value)
    value = eqx.tree_at(lambda net: net.biases[-1], value, f32([100.0]))
    state = state._replace(params=state.params._replace(value=value))
    one = eqx.tree_at(lambda m: m.target_mean, setup.arrays.pool.take(jnp.array([1])), f32([0.5, 0.1, 0.2]))
    first = np.random.default_rng(5).normal(size=(64, OBS)).astype(np.float32)
    found = jax.jit(
        lambda key: model_returns(
            config, setup, Context(one, jnp.zeros(1)), state=state, starts=jnp.asarray(first), key=key
        )[0]
    )(jax.random.PRNGKey(0))
    features = encode_by_hand(setup.norm, first.astype(np.float64))
    action = np.asarray(state.params.policy.unit_action(f32(features)), np.float64)
    reward = predict_by_hand(one, 0, np.concatenate([features, action], axis=1))[0][:, OBS]
    future = (np.asarray(found.returns) - reward) / (GAMMA * 100.0)
    ended = np.isclose(future, 0.0, atol=1e-3)
    assert 5 < ended.sum() < 59
    # The others have lived: lambda weighs V at the state they reached, and the one-step backup has it too.
    np.testing.assert_allclose(future[~ended], 1.0, atol=1e-3)


def kl_of(policy, mu, features: np.ndarray) -> np.ndarray:
    return np.asarray(kl_bound(policy(f32(features)), mu(f32(features))), np.float64)


def test_the_value_network_knows_distant_rewards_after_two_chunks() -> None:
    """Where every step pays 0.5 and nothing moves, a state is worth 10; backups of one step reach that slowly."""
    setup, data = made_setup(), made_data()
    still = jax.tree.map(jnp.zeros_like, setup.arrays.pool)
    still = eqx.tree_at(lambda m: (m.target_mean, m.target_std), still, (f32([0.0, 0.0, 0.5]), jnp.ones(OBS + 1)))
    setup = setup._replace(arrays=setup.arrays._replace(pool=still, terminated=NeverTerminates()))
    changes = CHANGES | {"gamma": 0.95, "rollout_horizon": 60, "discounted_fraction": 0.0, "reference_term": False}
    value = {}
    for rollouts in (0, 16):
        config = made_config(**changes | {"value_rollouts": rollouts, "critic_lr": 0.03, "steps": 10_000})
        chunk, state = compile_chunk(pspo, config, setup), start()
        for _ in range(2):
            state, _ = chunk(state, setup.arrays, data, length=100)
        value[rollouts] = float(jnp.median(state.params.value(setup.norm.encode(data.transitions.obs))))
    assert value[0] < 4.0 < 5.5 < value[16] < 11.0, value


def test_chunks_with_them_are_repeatable_and_finite() -> None:
    config = made_config(**CHANGES)
    state, metrics = run_chunks(config, 2)
    again, _ = run_chunks(config, 2)
    assert all(np.isfinite(value) for row in metrics for value in row.values())
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)


# How far from mu the models let the policy go


@given(seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_disagreement_along_a_path_counts_states_before_the_end(seed: int) -> None:
    rng = np.random.default_rng(seed)
    each, alive = rng.random((7, 3)), np.sort(rng.random((7, 3)) < 0.6, axis=0)[::-1].copy()
    alive[0] = True
    steps = Steps(*[jnp.zeros((7, 3))] * 6)._replace(disagreement=f32(each), alive=jnp.asarray(alive))
    assert float(path_disagreement(steps)) == pytest.approx(each[alive].mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("ratio", "limit"), [(1.3, 0.2), (1.0, 0.2), (0.9, 0.2 / 0.9**6), (0.8, 0.2 / 0.8**6), (0.5, 1.0)]
)
def test_the_kl_limit_rises_where_the_models_agree_better_than_along_mu(ratio: float, limit: float) -> None:
    config = made_config(**CHANGES, kl_limit=0.2, kl_limit_rise=5.0)
    assert float(supported_kl_limit(config, f32(0.03 * ratio), f32(0.03))) == pytest.approx(limit, rel=1e-5)


def test_models_that_disagree_only_where_mu_goes_let_the_policy_leave() -> None:
    """Member 1 predicts another change for large actions, which mu takes and the policy does not."""
    setup, data = made_setup(), made_data()
    config = made_config(**CHANGES, kl_limit=0.2, kl_limit_rise=5.0)
    pool = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), setup.arrays.pool.net)
    pool = eqx.tree_at(lambda m: m.net, setup.arrays.pool, pool)
    first = pool.net.weights[0]
    pool = eqx.tree_at(lambda m: m.net.weights[0], pool, first.at[1, -1].multiply(1.5))  # of the last action column
    arrays = setup.arrays._replace(pool=pool, terminated=NeverTerminates())
    still = jax.tree.map(jnp.zeros_like, made_policy(1))

    def limit(mu, policy) -> tuple[float, float]:
        state = start()
        state = state._replace(params=state.params._replace(policy=policy))
        here = setup._replace(arrays=arrays._replace(reference=mu))
        _, context, metrics = jax.jit(lambda state: pspo.begin_chunk(config, here, data, state))(state)
        assert float(context.kl_limit) == float(metrics["kl_limit"])
        return float(metrics["kl_limit"]), float(metrics["disagreement_ratio"])

    far, ratio = limit(mu=made_policy(1), policy=still)
    assert ratio < 0.9
    assert 0.2 < far <= 1.0
    near, ratio = limit(mu=still, policy=made_policy(1))
    assert ratio > 1.0
    assert near == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"value_rollouts": 0, "kl_limit": 0.1, "kl_limit_rise": 2.0}, "kl_limit_rise needs value_rollouts"),
        ({"value_of": "policy"}, "value_rollouts needs value_of=mode"),
        ({"visited": 100}, "visited has no effect with value_rollouts"),
    ],
)
def test_settings_that_contradict_them_are_refused(changes, words) -> None:
    with pytest.raises(UserError, match=words):
        made_config(**CHANGES | changes)
