"""MOPO: the penalised reward, rollouts into the buffer, and the beginning of a chunk, against NumPy."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.algorithms import mopo
from pspo.algorithms.common import model_based
from pspo.algorithms.registry import preset
from pspo.core.config import build
from pspo.data.batches import device_dataset
from pspo.dynamics.quality import holdout_error
from tests.algorithms.contract_cases import make_case
from tests.algorithms.tiny_task import tiny_dataset
from tests.arrays import equal_bits, f32
from tests.dynamics.dynamics_cases import made_ensemble, plain_norm, predict_by_hand, unlimited

SETTINGS = {"model.pool": 3, "model.width": 8, "model.depth": 1, "model.steps": 20, "starts": 40, "width": 8}


@cache
def case() -> Any:
    return make_case("mopo", tiny_dataset(400), **SETTINGS, elites=2, rollout_horizon=3, penalty=1.5)


@pytest.mark.parametrize("uncertainty", ["std", "disagreement"])
def test_a_synthetic_reward_is_the_elites_less_the_largest_uncertainty(uncertainty: str, monkeypatch) -> None:
    """In the critics' unit of reward, which is not the models'."""
    models, model_norm = made_ensemble(), plain_norm()
    norm = plain_norm()._replace(reward_scale=np.asarray(0.5, np.float32))
    never: Any = lambda *_: jnp.zeros(4, bool)  # noqa: E731
    env = mopo.ModelEnv(models, never, model_norm, norm, unlimited())
    rng = np.random.default_rng(0)
    obs, action = rng.normal(size=(4, 2)), rng.uniform(-1, 1, (4, 1))
    noise, member = rng.normal(size=(4, 3)), np.array([0, 1, 1, 0])
    monkeypatch.setattr(mopo, "outcome_noise", lambda *_: f32(noise))
    monkeypatch.setattr(mopo, "random_member", lambda *_: jnp.asarray(member))

    class Actor:
        def unit_action(self, features: Any, key: Any) -> Any:
            return f32(action)

    config = mopo.Config(penalty=0.7, uncertainty=uncertainty)  # pyright: ignore[reportArgumentType]
    step = jax.jit(lambda obs, key: mopo.penalised_step(config, env, jnp.arange(2), Actor(), obs, key))  # pyright: ignore
    next_obs, rows = step(f32(obs), jax.random.PRNGKey(0))

    x = np.concatenate([(obs - model_norm.obs_mean) / model_norm.obs_std, action], axis=1)
    mean, std = (np.stack(part) for part in zip(*(predict_by_hand(models, m, x) for m in range(3)), strict=True))
    raw = std * [1.0, 1.0, 2.0]
    away = mean[..., :2] - mean[..., :2].mean(0)
    uncertain = np.sqrt(((raw if uncertainty == "std" else away) ** 2).sum(-1)).max(0)
    outcome = mean[member, np.arange(4)] + std[member, np.arange(4)] * noise
    np.testing.assert_allclose(rows.reward, (2.0 * outcome[:, 2] - 0.7 * uncertain) / 0.5, rtol=1e-4)
    np.testing.assert_allclose(next_obs, obs + outcome[:, :2], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(rows.next_obs, next_obs)


def test_a_chunk_begins_with_rollouts_from_states_of_the_dataset() -> None:
    here = case()
    before = here.start(0)
    assert int(before.buffer.size) == 0
    assert before.buffer.capacity == 40 * 3 * here.config.retain
    after, _, metrics = jax.jit(lambda s: mopo.begin_chunk(here.config, here.setup, here.device_data, s))(before)
    size = int(after.buffer.size)
    assert 40 <= size <= 120
    assert float(metrics["rollout_alive"]) == pytest.approx(size / 120)
    rows = [np.asarray(part)[:size] for part in after.buffer.transitions]
    states = np.asarray(here.device_data.transitions.obs)
    assert all((np.abs(states - first).max(1) < 1e-6).any() for first in rows[0][:40])
    assert np.abs(rows[1]).max() <= 1.0
    assert np.isfinite(rows[2]).all()
    assert equal_bits(after.agent, before.agent)
    assert not equal_bits(after.key, before.key)


def test_an_update_learns_from_the_mixture_and_leaves_the_buffer_alone(monkeypatch) -> None:
    here, seen = case(), {}
    soft_step = model_based.soft_step

    def watched(rule: Any, agent: Any, rows: Any, key: Any) -> Any:
        seen["rows"], seen["rule"] = rows, rule
        agent, metrics = soft_step(rule, agent, rows, key)
        return agent, metrics | {"obs": rows.batch.obs, "features": rows.features, "after": rows.next_features}

    monkeypatch.setattr(model_based, "soft_step", watched)
    state = here.start(0)
    marked = state.buffer._replace(
        transitions=state.buffer.transitions._replace(obs=state.buffer.transitions.obs + 77.0), size=jnp.int32(5)
    )
    batch = here.module.draw(here.config, here.device_data, jax.random.PRNGKey(1))
    key = jax.random.PRNGKey(2)
    after, metrics = jax.jit(lambda s: mopo.update(here.config, here.setup, {}, s, batch, key))(
        state._replace(buffer=marked)
    )
    synthetic = np.asarray(metrics["obs"])[:, 0] == 77.0
    count = int(here.config.batch * here.config.real_ratio)
    np.testing.assert_array_equal(synthetic, np.arange(here.config.batch) >= count)
    np.testing.assert_array_equal(np.asarray(metrics["obs"])[:count], np.asarray(batch.obs)[:count])
    np.testing.assert_array_equal(metrics["features"], jax.jit(here.setup.norm.encode)(metrics["obs"]))
    assert (seen["rule"].gamma, seen["rule"].entropy_goal) == (here.config.gamma, -2.0)  # two columns
    assert equal_bits(after.buffer, marked)
    assert not equal_bits(after.agent.params, state.agent.params)
    assert int(after.step) == 1


def test_the_elite_are_the_members_with_the_smallest_error_on_the_hold_out() -> None:
    data = tiny_dataset(400)
    config = build(mopo.Config, preset("mopo", "smoke", None) | SETTINGS | {"elites": 2})
    setup, info = mopo.prepare(config, data, 0, lambda *_: None)
    held = data.split(config.model.holdout, 0)[1]
    models, norm = setup.arrays.pool, setup.model_norm
    features = np.asarray(norm.encode(data.obs[held]))
    x = np.concatenate([features, norm.unit_action(data.action[held])], axis=1)
    truth = np.column_stack([data.next_obs - data.obs, data.reward / norm.reward_scale])[held]
    errors = []
    for m in range(3):
        mean, _ = predict_by_hand(models, m, x.astype(np.float64))
        errors.append((((mean - truth) / np.asarray(models.target_std)) ** 2).mean())
    np.testing.assert_allclose(holdout_error(data, norm, models, held), errors, rtol=1e-3)
    assert sorted(np.argsort(errors)[:2].tolist()) == sorted(setup.arrays.elite.tolist()) == info["pool"]["elites"]


def test_behaviour_cloning_raises_the_likelihood_of_the_datasets_actions() -> None:
    """A random start does not have it."""
    here = case()
    device_data = device_dataset(tiny_dataset(400), here.setup.norm, 0.5)
    actor = here.start(0).agent.params.actor
    assert (actor.log_std_min, actor.log_std_max) == (-20.0, 2.0)
    features = here.setup.norm.encode(device_data.transitions.obs)

    fit = partial(model_based.fit_bc, actor=actor, norm=here.setup.norm, data=device_data, batch=64, lr=3e-3)

    @jax.jit
    def likelihoods(key: Any) -> Any:
        cloned = fit(steps=150, key=key)
        return tuple(a.log_prob(features, device_data.transitions.action).mean() for a in (actor, cloned))

    before, after = likelihoods(jax.random.PRNGKey(0))
    assert float(after) > float(before) + 0.5
    assert fit(steps=0, key=jax.random.PRNGKey(0)) is actor


def test_the_defaults_are_the_authors() -> None:
    config = mopo.Config()
    assert (config.real_ratio, config.starts, config.retain, config.elites, config.model.pool) == (
        0.05,
        50_000,
        5,
        5,
        7,
    )
    assert (config.critic_lr, config.tau, config.adapt_alpha, config.uncertainty) == (
        3e-4,
        0.005,
        True,
        "std",
    )
