"""RAMBO: the model gradient and the likelihood beside it, the models' step and training, against NumPy."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from pspo.algorithms import rambo
from pspo.algorithms.common.model_based import Arrays, Setup
from pspo.core.progress import silent
from pspo.data.batches import DeviceDataset, Transitions
from pspo.dynamics import adversary
from pspo.dynamics.adversary import LoggedBatches, ModelOutcomes
from pspo.dynamics.fit import ModelConfig, Targets, is_trained
from pspo.dynamics.termination import KnownTermination
from tests.algorithms.baseline_cases import (
    adam_by_hand,
    adam_moments,
    assert_close,
    critics_by_hand,
    made_config,
    net_by_hand,
    slopes,
)
from tests.algorithms.tiny_task import tiny_dataset
from tests.arrays import equal_bits, f32
from tests.dynamics.dynamics_cases import made_ensemble, member_by_hand, plain_norm, unlimited

OBS, BATCH, MEMBERS = 2, 6, 3
ELITE = [2, 0]
MODEL_NORM = plain_norm()
NORM = plain_norm()._replace(
    reward_scale=np.asarray(0.5, np.float32),  # the critics' rewards are four times as large as the models'
    obs_std=np.array([0.7, 1.9], np.float32),
)
MODELS = made_ensemble()
RNG = np.random.default_rng(8)


def ends(obs: Any, action: Any, next_obs: Any) -> Any:
    return next_obs[..., 0] > 1.0


def made_data(rows: int = 30) -> DeviceDataset:
    rng = np.random.default_rng(2)
    obs, next_obs = (f32(rng.normal(size=(rows, OBS))) for _ in range(2))
    reward, terminal = f32(rng.normal(size=rows)), jnp.asarray(rng.random(rows) < 0.2)
    setup = Transitions(obs, f32(rng.uniform(-1, 1, (rows, 1))), reward, next_obs, terminal)
    return DeviceDataset(setup, jnp.arange(rows), reward, terminal)


DATA = made_data()
COUNTS = np.column_stack([np.repeat((np.arange(30) % 4 > 0)[:, None], OBS, 1), np.ones(30, bool)])
SETUP = Setup(
    Arrays(MODELS, jnp.asarray(ELITE), KnownTermination(ends), jnp.asarray(COUNTS)), NORM, MODEL_NORM, unlimited()
)
CONFIG = made_config(
    rambo,
    batch=BATCH,
    starts=20,
    rollout_horizon=2,
    adversary_steps=3,
    adversary_weight=0.4,
    adversary_lr=0.02,
    cloning_steps=60,
    cloning_lr=0.03,
    model=ModelConfig(pool=MEMBERS, batch=4, weight_decay=0.1),
)


@cache
def state() -> Any:
    return jax.jit(partial(rambo.init, CONFIG, SETUP, DATA))(jax.random.PRNGKey(0))


def made_played() -> ModelOutcomes:
    return ModelOutcomes(
        f32(RNG.normal(size=(BATCH, 3))), f32(RNG.normal(size=(BATCH, 3))), f32(RNG.normal(size=BATCH) * 5)
    )


def made_logged() -> LoggedBatches:
    counts = jnp.asarray(RNG.random((MEMBERS, 4, 3)) < 0.7)
    return LoggedBatches(f32(RNG.normal(size=(MEMBERS, 4, 3))), Targets(f32(RNG.normal(size=(MEMBERS, 4, 3))), counts))


PLAYED, LOGGED = made_played(), made_logged()


def trained(models: Any) -> Any:
    return eqx.filter(models, is_trained(models))


def log_likelihood_by_hand(models: Any, members: list[int], x: Any, target: Any) -> np.ndarray:
    x, target = np.asarray(x, np.float64), np.asarray(target, np.float64)
    each = []
    for m in members:
        mean, log_std = member_by_hand(models, m, x)
        each.append(scipy.stats.norm.logpdf(target, mean, np.exp(log_std)).sum(axis=-1))
    return scipy.special.logsumexp(each, axis=0) - np.log(len(members))


def losses_by_hand(models: Any, played: ModelOutcomes, logged: LoggedBatches) -> tuple[float, float]:
    """The policy's value through the elites, and the likelihood of every member on its own rows."""
    advantage = np.asarray(played.advantage, np.float64)
    advantage = (advantage - advantage.mean()) / advantage.std()
    value = (advantage * log_likelihood_by_hand(models, ELITE, played.x, played.target)).mean()
    likelihood = 0.0
    for m in range(MEMBERS):
        mean, log_std = member_by_hand(models, m, np.asarray(logged.x[m], np.float64))
        square = ((np.asarray(logged.targets.value[m], np.float64) - mean) / np.exp(log_std)) ** 2
        likelihood += (np.asarray(logged.targets.counts[m]) * (square + 2.0 * log_std)).mean()  # pyright: ignore
        width = np.asarray(models.log_std_high[m], np.float64) - np.asarray(models.log_std_low[m], np.float64)
        likelihood += 0.02 * width.mean() / 3.0
    return value, likelihood


@jax.jit
def gradients(played: ModelOutcomes, logged: LoggedBatches) -> Any:
    """Of the whole loss, and of the likelihood alone, at the made models."""

    def whole(moving: Any) -> Any:
        return rambo.models_loss(CONFIG, eqx.combine(moving, MODELS), jnp.asarray(ELITE), played, logged)

    def likelihood(moving: Any) -> Any:
        return adversary.likelihood_loss(eqx.combine(moving, MODELS), logged)

    both = jax.grad(whole, has_aux=True)(trained(MODELS))
    return *both, jax.grad(likelihood)(trained(MODELS))


@cache
def found_gradients() -> Any:
    return gradients(PLAYED, LOGGED)


def member(tree: Any, m: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[m], tree)


def test_the_defaults_are_the_authors() -> None:
    config = rambo.Config()
    assert (config.adversary_weight, config.adversary_steps, config.adversary_lr) == (3e-4, 1000, 3e-4)
    assert (config.real_ratio, config.rollout_horizon, config.retain, config.elites) == (0.5, 5, 5, 5)
    assert (config.critic_lr, config.actor_lr, config.cloning_lr) == (3e-4, 1e-4, 1e-4)


def test_the_likelihood_is_the_elites_average_density_jointly_over_all_columns() -> None:
    """Far from every member too, where densities in float32 are zero."""
    found = jax.jit(lambda x, y: adversary.log_likelihood(MODELS.take(jnp.asarray(ELITE)), x, y))
    for scale in (1.0, 100.0):
        expected = log_likelihood_by_hand(MODELS, ELITE, PLAYED.x, scale * np.asarray(PLAYED.target))
        np.testing.assert_allclose(found(PLAYED.x, scale * PLAYED.target), expected, rtol=2e-4, atol=1e-4)
    assert expected.max() < -1000.0


def test_the_gradient_of_the_models_is_that_of_value_and_likelihood() -> None:
    """By finite differences of both in double precision; targets that were not logged have no part."""
    found, info, _ = found_gradients()

    def loss(models: Any) -> float:
        value, likelihood = losses_by_hand(models, PLAYED, LOGGED)
        return CONFIG.adversary_weight * value + likelihood

    assert_close(found, slopes(loss, trained(MODELS)), atol=2e-5)
    value, likelihood = losses_by_hand(MODELS, PLAYED, LOGGED)
    assert float(info["adversary_loss"]) == pytest.approx(value, rel=1e-4)
    assert float(info["likelihood_loss"]) == pytest.approx(likelihood / MEMBERS, rel=1e-4)


def test_only_elites_feel_the_adversary() -> None:
    """A member outside has the gradient of its likelihood, bit for bit."""
    whole, _, likelihood = found_gradients()
    assert equal_bits(member(whole, 1), member(likelihood, 1))
    for m in ELITE:
        for a, b in zip(jax.tree.leaves(member(whole, m)), jax.tree.leaves(member(likelihood, m)), strict=True):
            assert np.abs(np.asarray(a) - np.asarray(b)).max() > 1e-4


def test_what_turned_out_well_becomes_less_likely_and_what_went_badly_more() -> None:
    elites = MODELS.take(jnp.asarray(ELITE))

    @jax.jit
    def change(played: ModelOutcomes) -> Any:
        grads = jax.grad(lambda moving: adversary.adversarial_loss(eqx.combine(moving, elites), played))(
            trained(elites)
        )
        moved = eqx.combine(jax.tree.map(lambda leaf, g: leaf - 1e-3 * g, trained(elites), grads), elites)
        return adversary.log_likelihood(moved, *played[:2]) - adversary.log_likelihood(elites, *played[:2])

    two = ModelOutcomes(PLAYED.x[:2], PLAYED.target[:2], f32([7.0, 3.0]))  # better and worse than their average
    up, down = change(two)
    assert up < -1e-4
    assert down > 1e-4
    np.testing.assert_allclose(
        change(two._replace(advantage=f32([5.0, 5.0]))), 0.0, atol=1e-6
    )  # no difference, no push


def test_an_outcome_is_drawn_by_another_elite_per_state_each_time() -> None:
    rows = 600
    certain = eqx.tree_at(
        lambda m: (m.log_std_low, m.log_std_high), MODELS, (jnp.full((3, 3), -14.0), jnp.full((3, 3), -13.0))
    )
    x = f32(np.broadcast_to(PLAYED.x[:1], (rows, 3)))
    draw = jax.jit(lambda models, key: adversary.draw_targets(models, x, key))
    means = np.stack([member_by_hand(MODELS, m, np.asarray(x[:1], np.float64))[0][0] for m in range(MEMBERS)])
    by = []
    for seed in range(2):
        target = np.asarray(draw(certain, jax.random.PRNGKey(seed)))
        distance = np.abs(target[:, None] - means).max(-1)
        assert distance.min(1).max() < 1e-4
        by.append(distance.argmin(1))
    assert np.bincount(by[0], minlength=3).min() > rows / 5
    assert 0.5 < (by[0] != by[1]).mean() < 0.8  # two thirds, if each is drawn again

    alone = MODELS.take(jnp.asarray([1]))
    mean, log_std = member_by_hand(MODELS, 1, np.asarray(x[:1], np.float64))
    z = (np.asarray(draw(alone, jax.random.PRNGKey(2))) - mean) / np.exp(log_std)
    np.testing.assert_allclose(z.mean(0), 0.0, atol=0.2)
    np.testing.assert_allclose(z.std(0), 1.0, atol=0.1)


def test_an_advantage_compares_the_outcome_under_the_mode_with_the_action(monkeypatch) -> None:
    """Online critics, the smaller of them, no entropy, nothing past an end; the outcome no lower than columns go."""
    params, norm = state().agent.params, MODEL_NORM
    target = np.random.default_rng(5).normal(size=(BATCH, 3))
    target[:2, 0] = 6.0  # far enough for an end
    monkeypatch.setattr(rambo, "draw_targets", lambda models, x, key: f32(target))
    env = rambo.ModelEnv(MODELS, KnownTermination(ends), norm, NORM, unlimited(edge_low=-0.5))
    obs = DATA.transitions.obs[:BATCH]
    played, next_obs = jax.jit(partial(rambo.play, CONFIG, env, params))(obs, jax.random.PRNGKey(3))

    raw = target * np.asarray(MODELS.target_std) + np.asarray(MODELS.target_mean)
    reached = np.maximum(np.asarray(obs) + raw[:, :2], -0.5)
    np.testing.assert_allclose(next_obs, reached, rtol=1e-4, atol=1e-5)
    now, then = ((np.asarray(o, np.float64) - NORM.obs_mean) / NORM.obs_std for o in (obs, reached))
    action = np.asarray(played.x[:, 2:], np.float64)
    mode = np.tanh(net_by_hand(params.actor.net, then)[:, :1])
    ahead = critics_by_hand(params.critic, then, mode).min(axis=0)
    here = critics_by_hand(params.critic, now, action).min(axis=0)
    over = reached[:, 0] > 1.0
    assert 2 <= over.sum() < BATCH
    expected = 4.0 * raw[:, 2] + CONFIG.gamma * np.where(over, 0.0, ahead) - here
    np.testing.assert_allclose(played.advantage, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(played.x[:, :2], (np.asarray(obs) - norm.obs_mean) / norm.obs_std, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(played.target, target, rtol=1e-6)  # as drawn, not as kept inside the range
    assert np.abs(action - np.tanh(net_by_hand(params.actor.net, now)[:, :1])).max() > 0.01  # with the policy's noise


def test_real_transitions_are_those_of_the_fit_and_differ_between_members() -> None:
    env = rambo.ModelEnv(MODELS, KnownTermination(ends), MODEL_NORM, NORM, unlimited())
    logged = jax.jit(lambda key: adversary.draw_logged(env, DATA, jnp.asarray(COUNTS), 50, key))(jax.random.PRNGKey(1))
    rows = DATA.transitions
    x = np.column_stack([(np.asarray(rows.obs) - MODEL_NORM.obs_mean) / MODEL_NORM.obs_std, rows.action])
    raw = np.column_stack([np.asarray(rows.next_obs) - np.asarray(rows.obs), np.asarray(rows.reward) / 4.0])
    value = (raw - np.asarray(MODELS.target_mean)) / np.asarray(MODELS.target_std)
    picked = np.abs(np.asarray(logged.x)[:, :, None] - x).max(-1).argmin(-1)
    np.testing.assert_allclose(logged.x, x[picked], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(logged.targets.value, value[picked], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(logged.targets.counts, COUNTS[picked])  # pyright: ignore[reportArgumentType]
    assert picked.shape == (MEMBERS, 50)
    assert len({tuple(part) for part in picked}) == MEMBERS


def test_a_step_is_adams_on_that_loss_and_rollouts_restart_on_schedule(monkeypatch) -> None:
    monkeypatch.setattr(rambo, "play", lambda config, env, params, obs, key: (PLAYED, obs + 100.0))
    monkeypatch.setattr(rambo, "draw_logged", lambda *_: LOGGED)
    fill = lambda leaf: f32(RNG.uniform(0.01, 0.05, leaf.shape)) if leaf.dtype == np.float32 else leaf + 3  # noqa: E731
    opt = jax.tree.map(fill, state().models_opt)
    training = rambo.ModelTraining(state().models, opt, jnp.full((BATCH, OBS), 1000.0))
    step = jax.jit(lambda training, number: rambo.models_step(
        CONFIG, SETUP, DATA, state().agent.params, training, (number, jax.random.PRNGKey(4))
    )[0])  # fmt: skip
    first = step(training, 0)
    moved = adam_by_hand(training.models, jax.tree.map(np.float64, found_gradients()[0]), adam_moments(opt), 0.02)
    decayed = jax.tree.map(lambda new, old: new - 0.02 * 0.1 * np.asarray(old, np.float64), moved, training.models)
    assert_close(first.models, decayed, atol=1e-5)
    logged = np.asarray(DATA.transitions.obs)
    for number, begins in ((0, True), (1, False), (2, True), (3, False)):
        from_where = np.asarray(step(training, number).obs) - 100.0
        fresh = [(np.abs(logged - one).max(1) < 1e-4).any() for one in from_where]
        assert all(fresh) if begins else (from_where == 1000.0).all()


@cache
def compiled_begin_chunk(weight: float) -> Any:
    config = made_config(rambo, **{name: getattr(CONFIG, name) for name in CHANGED} | {"adversary_weight": weight})
    return jax.jit(partial(rambo.begin_chunk, config, SETUP, DATA))


CHANGED = ("batch", "starts", "rollout_horizon", "adversary_steps", "adversary_lr", "model")


def test_models_are_trained_after_every_chunk_but_not_before_the_first() -> None:
    begin_chunk, begun = compiled_begin_chunk(0.4), state()
    first, _, metrics = begin_chunk(begun)
    assert equal_bits((first.models, first.models_opt), (begun.models, begun.models_opt))
    assert float(metrics["adversary_loss"]) == float(metrics["likelihood_loss"]) == 0.0
    later = begun._replace(step=jnp.int32(5))
    second, _, metrics = begin_chunk(later)
    assert equal_bits((second, None, metrics), begin_chunk(later))
    assert int(adam_moments(second.models_opt).count) == CONFIG.adversary_steps
    assert np.isfinite(list(map(float, metrics.values()))).all()
    assert float(metrics["likelihood_loss"]) != 0.0
    assert equal_bits(second.agent, begun.agent)
    for before, after in zip(jax.tree.leaves(begun.models), jax.tree.leaves(second.models), strict=True):
        assert np.abs(np.asarray(after) - np.asarray(before)).max() > 1e-3
    # The same policy from the same states: only the models differ.
    assert 20 <= int(first.buffer.size) <= 40
    assert 20 <= int(second.buffer.size) <= 40
    assert equal_bits(first.buffer.transitions.action[:20], second.buffer.transitions.action[:20])
    assert not np.allclose(first.buffer.transitions.reward[:20], second.buffer.transitions.reward[:20], atol=1e-3)
    assert not equal_bits(first.key, begun.key)


def test_without_the_adversary_the_models_stay_as_they_were_fitted() -> None:
    later = state()._replace(step=jnp.int32(5))
    after, _, metrics = compiled_begin_chunk(0.0)(later)
    assert equal_bits((after.models, after.models_opt), (later.models, later.models_opt))
    assert equal_bits(eqx.combine(after.models, MODELS), MODELS)
    assert float(metrics["adversary_loss"]) == float(metrics["likelihood_loss"]) == 0.0
    assert int(after.buffer.size) >= 20


def test_rollouts_go_through_the_elites_alone() -> None:
    """Predictions of other members have no effect."""
    absurd = eqx.tree_at(lambda m: m.net.biases[-1], state().models, state().models.net.biases[-1].at[1].set(1e6))
    begin_chunk = compiled_begin_chunk(0.0)
    assert equal_bits(begin_chunk(state())[0].buffer, begin_chunk(state()._replace(models=absurd))[0].buffer)


def test_it_starts_with_the_pool_and_a_policy_from_behaviour_cloning() -> None:
    begun = state()
    assert equal_bits(eqx.combine(begun.models, MODELS), MODELS)
    assert begun.models.target_mean is None  # a scale that nothing trains is not part of the state
    assert int(begun.step) == int(begun.buffer.size) == 0
    features = NORM.encode(DATA.transitions.obs)
    plain = rambo.model_based.init(CONFIG, SETUP, DATA, jax.random.split(jax.random.PRNGKey(0))[0])
    likelihood = jax.jit(lambda actor: actor.log_prob(features, DATA.transitions.action).mean())
    assert likelihood(begun.agent.params.actor) > likelihood(plain.agent.params.actor) + 0.1
    assert equal_bits(begun.agent.params.critic, plain.agent.params.critic)
    assert rambo.policies(begun) == {"policy": begun.agent.params.actor}


@pytest.mark.parametrize("unknown", [True, False])
def test_it_knows_which_next_states_were_logged(unknown: bool, monkeypatch) -> None:
    monkeypatch.setattr(
        rambo.model_based,
        "prepare",
        lambda *_: (SETUP._replace(arrays=SETUP.arrays._replace(counts=None)), {"pool": 1}),
    )
    device_data = tiny_dataset(40)
    known = ~device_data.terminal if unknown else np.ones(40, bool)
    setup, info = rambo.prepare(CONFIG, tiny_dataset(40, next_known=known), 0, silent)
    assert info == {"pool": 1}
    if not unknown:
        assert setup.arrays.counts is None
    else:
        expected = np.column_stack([*[~device_data.terminal] * 3, np.ones(40, bool)])
        np.testing.assert_array_equal(setup.arrays.counts, expected)  # pyright: ignore[reportArgumentType]
