"""PMDB: whole updates against NumPy, and whose critics decide what."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from pspo.algorithms.pmdb import algorithm as pmdb
from pspo.dynamics.persistent_rollouts import PersistentRollouts
from pspo.nets.actors import TanhGaussian
from pspo.nets.mlp import MLP
from tests.algorithms.baseline_cases import (
    ACT,
    OBS,
    adam_by_hand,
    adam_moments,
    assert_close,
    average_by_hand,
    backed_up,
    critics_by_hand,
    encoded,
    net_by_hand,
    slopes,
)
from tests.algorithms.pmdb.pmdb_cases import (
    CONFIG,
    GAME,
    MODEL_NORM,
    POOL,
    REAL,
    made_batch,
    made_setup,
    state,
    stay_by_hand,
)
from tests.arrays import equal_bits, f32
from tests.dynamics.dynamics_cases import predict_by_hand

LARGEST = np.float64(np.float32(1.0 - 1e-6))  # of a real action, in float32


def moments_by_hand(actor: Any, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, log_std = np.split(net_by_hand(actor.net, features), 2, axis=-1)
    log_std = 2.0 - np.log1p(np.exp(2.0 - log_std))
    return mean, np.exp(-4.0 + np.log1p(np.exp(log_std + 4.0)))


class Sampled(NamedTuple):
    x: np.ndarray
    log_ratio: np.ndarray


def sampled_by_hand(proposal: Any, reference: Any, noise: np.ndarray) -> Sampled:
    """Two actions of the proposal and three of the reference policy."""
    proposed, own = proposal[0] + proposal[1] * noise[:2], reference[0] + reference[1] * noise[2:]
    ratio = scipy.stats.norm.logpdf(proposed, *reference) - scipy.stats.norm.logpdf(proposed, *proposal)
    return Sampled(np.concatenate([proposed, own]), np.concatenate([ratio.sum(-1), np.zeros(own.shape[:-1])]))


def temperature_by_hand(q: np.ndarray, log_ratio: np.ndarray) -> np.ndarray:
    best = (scipy.special.softmax(log_ratio + q / 1e-3, axis=0) * q).sum(0)
    return np.maximum((best - (scipy.special.softmax(log_ratio, axis=0) * q).sum(0)) / CONFIG.kl_target, 1e-3)


def values_by_hand(now: Any, critic: Any, obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
    features = encoded(obs)
    actor, reference = (moments_by_hand(net, features) for net in (now.params.actor, now.reference))
    drawn = sampled_by_hand(actor, reference, noise)
    q = np.clip(critics_by_hand(critic, features, np.tanh(drawn.x)).min(0), -0.4, 0.9)
    alpha = temperature_by_hand(q, drawn.log_ratio)
    weight = np.exp(drawn.log_ratio)
    return alpha * (np.log((weight * np.exp((q - q.max(0)) / alpha)).sum(0)) - np.log(weight.sum(0))) + q.max(0)


def normal(key: Any, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(jax.random.normal(key, shape), np.float64)


class GameStepByHand(NamedTuple):
    target: np.ndarray
    mean_backup: np.ndarray
    rollouts: PersistentRollouts
    member: np.ndarray
    end: np.ndarray


def play_by_hand(now: Any, action: np.ndarray, restart: np.ndarray, key: Any) -> GameStepByHand:
    """Four models of a pool of three: one of them counts twice."""
    k_models, k_noise, k_value, k_explore, k_any, k_end = jax.random.split(key, 6)
    obs, pool = np.asarray(now.rollouts.obs, np.float64), made_setup().arrays.pool
    drawn = np.asarray(jax.random.randint(k_models, (4,), 0, POOL))
    noise = normal(k_noise, (1, GAME, OBS))
    x = np.concatenate([(obs - MODEL_NORM.obs_mean) / MODEL_NORM.obs_std, action], axis=1)
    next_obs, reward = np.zeros((2, POOL, GAME, OBS)), np.zeros((POOL, GAME))
    for m in range(POOL):
        mean, std = predict_by_hand(pool, m, x)
        for i, sign in enumerate((1.0, -1.0)):
            next_obs[i, m] = obs + mean[:, :OBS] + sign * std[:, :OBS] * noise[0]
        reward[m] = np.clip(mean[:, OBS] * 2.0 / 1.7 + 0.3, -0.5, 0.6)
    end = np.maximum(next_obs[..., 0] > 0.8, 1.0 - stay_by_hand(next_obs))
    action_noise = normal(k_value, (5, 2, POOL, GAME, ACT))
    backups = []
    for critic in (now.target_critic, now.params.critic):
        value = values_by_hand(now, critic, next_obs, action_noise)
        backups.append(np.stack([(reward + 0.9 * ((1.0 - end) * value).mean(0))[m] for m in drawn]))
    order = np.argsort(backups[1], axis=0, kind="stable")[1]
    if float(jax.random.uniform(k_explore)) < CONFIG.explore:
        order = np.asarray(jax.random.randint(k_any, (GAME,), 0, 4))
    member, row = drawn[order], np.arange(GAME)
    over = np.asarray(jax.random.uniform(k_end, (GAME,))) < end[0, member, row]
    age = np.asarray(now.rollouts.age) + 1
    over |= age >= 4
    after = np.where(over[:, None], restart, next_obs[0, member, row])
    rollouts = PersistentRollouts(after, np.where(over, 0, age), member)  # pyright: ignore[reportArgumentType]
    return GameStepByHand(np.sort(backups[0], axis=0)[1], backups[0].mean(0), rollouts, member, end)


class ByHand(NamedTuple):
    params: pmdb.Params
    target_critic: Any
    reference: Any
    game_step: GameStepByHand
    metrics: dict[str, float]


def update_by_hand(now: Any, key: Any) -> ByHand:
    k_drawn, k_choose, k_play, k_real = jax.random.split(key, 4)
    rows, old = made_batch().real, now.params
    features = encoded(np.concatenate([rows.obs, now.rollouts.obs]))
    real_action = np.asarray(rows.action, np.float64)
    # Real states: around the real actions. Game states: the policy's own.
    mean, std = moments_by_hand(old.actor, features)
    mean = np.concatenate([np.arctanh(np.clip(real_action, -LARGEST, LARGEST)), mean[REAL:]])
    std = np.concatenate([np.full_like(real_action, 0.3), std[REAL:]])
    noise = normal(k_drawn, (5, REAL + GAME, ACT))
    drawn = sampled_by_hand((mean, std), moments_by_hand(now.reference, features), noise)
    q = critics_by_hand(old.critic, features, np.tanh(drawn.x)).min(0)

    log_odds = q / temperature_by_hand(q, drawn.log_ratio) + drawn.log_ratio
    chosen = np.asarray(jax.random.categorical(k_choose, f32(log_odds[:, REAL:]), axis=0))
    game_action = np.tanh(drawn.x[chosen, np.arange(REAL, REAL + GAME)])
    game_step = play_by_hand(now, game_action, np.asarray(made_batch().restart), k_play)

    next_value = values_by_hand(now, now.target_critic, np.asarray(rows.next_obs), normal(k_real, (5, REAL, ACT)))
    real_target = backed_up(rows._replace(reward=np.asarray(rows.reward, np.float64) + 0.3), next_value, 0.9)
    target = np.clip(np.concatenate([real_target, game_step.target]), -0.4, 0.9)
    action = np.concatenate([real_action, game_action])
    clipped = np.clip(q, -0.4, 0.9)
    weight = scipy.special.softmax(clipped / temperature_by_hand(clipped, drawn.log_ratio) + drawn.log_ratio, axis=0)
    frozen = moments_by_hand(old.actor, features)[1]
    frozen = frozen / frozen.mean(0)

    def of_critic(critic: Any) -> float:
        error = (critics_by_hand(critic, features, action) - target) ** 2
        return (0.5 * error[:, :REAL].mean(1) + 0.5 * error[:, REAL:].mean(1)).sum()

    def of_actor(actor: Any) -> float:
        log_prob = scipy.stats.norm.logpdf(drawn.x, *moments_by_hand(actor, features))
        each = -(weight * (frozen * log_prob).sum(-1)).sum(0)
        return 0.5 * each[:REAL].mean() + 0.5 * each[REAL:].mean()

    new = {}
    for name, loss in {"actor": of_actor, "critic": of_critic}.items():
        moments, part = adam_moments(now.opt.inner_states[name]), getattr(old, name)
        moments = moments._replace(mu=getattr(moments.mu, name), nu=getattr(moments.nu, name))
        new[name] = adam_by_hand(part, slopes(loss, part), moments, getattr(CONFIG, f"{name}_lr"))
    metrics = {
        "critic_loss": of_critic(old.critic),
        "actor_loss": of_actor(old.actor),
        "pessimism": (game_step.mean_backup - game_step.target).mean(),
        "end_probability": game_step.end.mean(),
    }
    averages = (
        average_by_hand(now.target_critic, new["critic"], CONFIG.tau),
        average_by_hand(now.reference, new["actor"], CONFIG.reference_tau),
    )
    return ByHand(pmdb.Params(**new), *averages, game_step, metrics)


def compile_update() -> Any:
    setup = made_setup()
    return jax.jit(lambda now, batch, key: pmdb.update(CONFIG, setup, None, now, batch, key))


UPDATE = compile_update()


def explores(seed: int) -> bool:
    k_play = jax.random.split(jax.random.PRNGKey(seed), 4)[2]
    return float(jax.random.uniform(jax.random.split(k_play, 6)[3])) < CONFIG.explore


@pytest.mark.parametrize("exploring", [False, True])
def test_a_whole_update_is_that_of_its_losses_each_at_the_old_parameters(exploring: bool) -> None:
    seed = next(seed for seed in range(50) if explores(seed) == exploring)
    now, key = state(), jax.random.PRNGKey(seed)
    after, metrics = UPDATE(now, made_batch(), key)
    expected = update_by_hand(now, key)
    assert_close(after.params, expected.params, atol=2e-5)
    assert_close(after.target_critic, expected.target_critic, atol=2e-5)
    assert_close(after.reference, expected.reference, atol=2e-5)
    np.testing.assert_array_equal(after.rollouts.member, expected.game_step.member)
    np.testing.assert_array_equal(after.rollouts.age, expected.game_step.rollouts.age)
    np.testing.assert_allclose(after.rollouts.obs, expected.game_step.rollouts.obs, rtol=1e-4, atol=1e-5)
    for name, value in expected.metrics.items():
        assert float(metrics[name]) == pytest.approx(value, rel=1e-3, abs=1e-5), name
    assert int(after.step) == 1
    end = expected.game_step.end
    assert ((end > 0.01) & (end < 0.99)).any()  # the case has ends of every kind
    assert (end == 1.0).any()
    assert (end < 0.01).any()


def test_target_critics_make_targets_and_present_critics_move_rollouts() -> None:
    setup = made_setup()
    config = dataclasses.replace(CONFIG, explore=0.0)
    action = f32(np.random.default_rng(9).uniform(-1, 1, (GAME, ACT)))
    play = jax.jit(lambda now, key: pmdb.play(config, setup, now, action, made_batch().restart, key))
    now, other = state(), jax.tree.map(lambda leaf: -leaf, state().target_critic)
    keys = [jax.random.PRNGKey(seed) for seed in range(5)]
    plain = [play(now, key) for key in keys]
    other_target = [play(now._replace(target_critic=other), key) for key in keys]
    other_present = [play(now._replace(params=now.params._replace(critic=other)), key) for key in keys]
    assert equal_bits([p.rollouts for p in plain], [p.rollouts for p in other_target])
    assert not equal_bits([p.target for p in plain], [p.target for p in other_target])
    assert equal_bits([p.target for p in plain], [p.target for p in other_present])
    assert not equal_bits([p.rollouts.member for p in plain], [p.rollouts.member for p in other_present])


def test_columns_of_the_likelihood_are_weighted_by_std_without_a_gradient() -> None:
    """Two states, two columns with standard deviations near e^-1 and e^1, by hand; the soft clamp hardly moves them."""
    raw = np.array([0.2, -0.4, -1.0, 1.0])
    bias = np.stack([raw, raw + np.array([0.0, 0.0, 0.5, -0.5])])
    x, log_weight = np.random.default_rng(0).normal(size=(3, 2, 2)), np.log(np.full((3, 2), 1 / 3))

    def moments(bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return moments_by_hand(actor(bias), np.eye(2))

    def actor(bias: Any) -> TanhGaussian:
        return TanhGaussian(MLP([bias], [jnp.zeros(4)], "relu"), -4.0, 2.0, True)

    frozen = moments(bias)[1] / moments(bias)[1].mean(0)

    def by_hand(bias: Any) -> float:
        each = -(frozen * scipy.stats.norm.logpdf(x, *moments(bias))).sum(-1).mean(0)
        return 0.5 * each[0] + 0.5 * each[1]

    drawn = pmdb.Candidates(f32(x), jnp.zeros((3, 2)))
    loss = jax.jit(jax.value_and_grad(lambda b: pmdb.policy_loss(actor(b), jnp.eye(2), drawn, f32(log_weight), 1)))
    found, slope = loss(f32(bias))
    assert float(found) == pytest.approx(by_hand(bias), rel=1e-5)
    np.testing.assert_allclose(slope, slopes(by_hand, bias), rtol=1e-3, atol=1e-4)
    assert not np.allclose(frozen, 1.0, atol=0.1)
