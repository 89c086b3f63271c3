"""How a run starts and what bounds it: critics at the dataset's own returns, limits from the dataset's range."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.algorithms.pspo import algorithm as pspo
from pspo.algorithms.pspo import evaluation
from pspo.algorithms.pspo import improvement as pspo_improvement
from pspo.data import Dataset
from pspo.data.batches import returns_known
from pspo.data.normalise import fit_normaliser
from pspo.nets.mlp import apply_stack
from tests.algorithms.pspo.pspo_cases import constraints, critics_by_hand, made_config, made_data, made_setup, start

DATA, SETUP = made_data(), made_setup()


def test_critics_start_at_the_datasets_returns_where_they_are_known():
    truth = np.asarray(DATA.transitions.obs)[:, 0]
    known = np.asarray(DATA.to_go_known)
    data = DATA._replace(to_go=jnp.asarray(np.where(known, truth, truth + 5.0)))  # what is unknown would pull it up
    config = made_config(start_steps=1500, critic_lr=0.01)
    begun = jax.jit(lambda data, key: pspo.init(config, SETUP, data, key))(data, jax.random.PRNGKey(0))
    features = SETUP.norm.encode(DATA.transitions.obs)
    q = apply_stack(begun.params.critic, jnp.concatenate([features, DATA.transitions.action], axis=-1))[..., 0]
    values = np.concatenate([q, begun.params.value(features)[None, :, 0]])
    assert np.abs(values - truth).mean() < 0.2 * np.abs(truth - truth.mean()).mean()
    for params, target in zip(jax.tree.leaves(begun.params.critic), jax.tree.leaves(begun.target_critic), strict=True):
        np.testing.assert_array_equal(params, target)


@pytest.mark.parametrize(("together", "reduce"), [("mean", np.mean), ("min", np.min)])
def test_critics_are_combined_by_mean_or_minimum(together, reduce):
    config, critic = made_config(critics=3, critic_value=together), start().target_critic
    features = np.asarray(SETUP.norm.encode(DATA.transitions.obs))
    action = np.random.default_rng(0).uniform(-1, 1, (4, *DATA.transitions.action.shape)).astype(np.float32)
    found = jax.jit(lambda f, a: evaluation.q_values(config, critic, f, a))(features, action)
    for k in range(4):
        each = critics_by_hand(critic, features, action[k])
        np.testing.assert_allclose(found[k], reduce(each, axis=0), rtol=1e-4, atol=1e-5)


def some_data(reward) -> Dataset:
    n = len(reward)
    rng = np.random.default_rng(0)
    return Dataset(
        obs=rng.normal(size=(n, 2)),
        action=rng.uniform(-1, 1, (n, 1)),
        reward=reward,
        next_obs=rng.normal(size=(n, 2)),
        terminal=np.arange(n) % 10 == 9,
        timeout=np.zeros(n, bool),
        action_low=[-1],
        action_high=[1],
    )


def test_limits_come_from_the_dataset():
    data = some_data(np.linspace(-1.0, 4.0, 2001))
    norm = fit_normaliser(data, 0.9)
    scale = float(norm.reward_scale)
    off = pspo.make_limits(made_config(gamma=0.9), data, norm)
    assert off == (None, 0.0, None, None)
    on = pspo.make_limits(made_config(gamma=0.9, box="end", box_margin=0.2, clip_targets=True), data, norm)
    assert on.box is not None
    width = norm.obs_high - norm.obs_low
    np.testing.assert_allclose(on.box, [norm.obs_low - 0.2 * width, norm.obs_high + 0.2 * width], rtol=1e-6)
    assert on.left_value == pytest.approx(data.returns_to_go(0.9)[returns_known(data, 0.9)].min() / scale)
    assert on.backup_low == pytest.approx(-0.995 / 0.1 / scale, rel=1e-3)
    assert on.backup_high == pytest.approx(3.995 / 0.1 / scale, rel=1e-3)


def test_the_worst_value_is_no_artefact_of_a_time_out():
    data = dataclasses.replace(some_data(np.ones(200)), terminal=np.zeros(200, bool), timeout=np.arange(200) == 199)
    norm = fit_normaliser(data, 0.9)
    worst = pspo.make_limits(made_config(gamma=0.9, box="end"), data, norm).left_value * float(norm.reward_scale)
    assert 9.5 < worst < 10.0  # the sum of all 0.9^t is 10; the last return is 1 only because the dataset stops


def test_a_value_of_nothing_is_always_allowed_and_no_discount_means_no_range():
    data = some_data(np.linspace(1.0, 4.0, 100))
    norm = fit_normaliser(data, 0.9)
    assert pspo.make_limits(made_config(gamma=0.9, clip_targets=True), data, norm).backup_low == 0.0
    assert pspo.make_limits(made_config(gamma=1.0, clip_targets=True), data, norm).backup_high is None


def test_the_policys_own_value_is_its_mean_less_its_divergence():
    rng = np.random.default_rng(5)
    n, batch = 3, 4
    config = made_config(action_samples=n, value_of="policy", alpha=0.7)
    drawn = pspo_improvement.Sampled(
        rng.normal(size=(2 * n, batch, 1)),
        *(jnp.asarray(rng.normal(size=(2 * n, batch))) for _ in range(4)),
        kl_states=jnp.zeros(batch),
    )
    soft, weight = pspo_improvement.improve(config, drawn, constraints(config, 0.2))
    own = [i for i in range(2 * n) if i >= n]
    expected = np.mean([drawn.q[i] - 0.7 * (drawn.log_policy[i] - drawn.log_mu[i]) for i in own], axis=0)
    np.testing.assert_allclose(soft, expected, rtol=1e-5)
    _, as_before = pspo_improvement.improve(made_config(action_samples=n, alpha=0.7), drawn, constraints(config, 0.2))
    np.testing.assert_allclose(weight, as_before)  # only the evaluation differs
