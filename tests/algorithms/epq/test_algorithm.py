"""EPQ: whole updates and each of their losses against NumPy, the penalty's factor, and how it starts."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from pspo.algorithms.epq import algorithm as epq
from pspo.algorithms.epq.algorithm import Arrays, Batch, Setup
from pspo.algorithms.registry import preset, preset_table
from pspo.core.config import build
from pspo.nets.actors import TanhGaussian
from pspo.nets.mlp import MLP
from pspo.nets.vae import VAE
from tests.algorithms.baseline_cases import (
    ACT,
    OBS,
    assert_close,
    average_by_hand,
    backed_up,
    compiled_update,
    critics_by_hand,
    doubles,
    encoded,
    joined,
    likelihood_by_hand,
    made_config,
    made_data,
    made_mlp,
    made_norm,
    made_state,
    made_transitions,
    moments_by_hand,
    net_by_hand,
    part_by_hand,
    proposals_by_hand,
    sample_by_hand,
    started,
)
from tests.arrays import equal_bits, f32

LATENT, LOG, N = 3, 40, 3
CONFIG = made_config(
    epq,
    samples=N,
    support_threshold=0.7,
    ratio_temperature=1.5,
    conservatism=3.0,
    c_min=0.4,
    penalty_floor=0.1,
    cloning_steps=3,
)
RNG = np.random.default_rng(2)
CODER = VAE(made_mlp(RNG, [OBS + ACT, 4, 2 * LATENT]), made_mlp(RNG, [OBS + LATENT, 4, ACT]))
WEIGHT = RNG.uniform(0.01, 1.0, LOG)
SETUP = Setup(Arrays(f32(WEIGHT), CODER), made_norm())
ROWS, KEY = made_transitions(), jax.random.PRNGKey(4)
BATCH = Batch(ROWS, jnp.asarray([3, 8, 1, 17, 30, 39, 22, 5]))
FEATURES, NEXT_FEATURES, LOGGED = encoded(ROWS.obs), encoded(ROWS.next_obs), np.asarray(ROWS.action, np.float64)
update = compiled_update(epq, CONFIG, SETUP)


# One iteration by hand


def noise_by_hand() -> epq.Noise:
    return doubles(epq.draw_noise(CONFIG, ROWS.action.shape, LATENT, KEY))


def fixed_by_hand(state: Any) -> SimpleNamespace:
    """What is fixed within an iteration: y, the sampled actions, f and the weights."""
    noise, old = noise_by_hand(), state.params
    next_action, _ = sample_by_hand(old.actor, NEXT_FEATURES, noise.next_action)
    next_value = critics_by_hand(state.target_critic, NEXT_FEATURES, next_action).min(0)
    mean, std = moments_by_hand(old.actor, FEATURES)
    decoded = net_by_hand(old.vae.decoder, joined(FEATURES, noise.latent))
    log_beta = -((decoded - (mean + std * noise.samples[1])) ** 2).sum(-1)
    threshold = CONFIG.support_threshold * np.log(0.5**ACT)
    factor = np.exp(-np.maximum(0.0, log_beta - threshold) / CONFIG.ratio_temperature).mean(0)
    weight = np.asarray(WEIGHT, np.float32)[np.asarray(BATCH.pick)].astype(np.float64)
    return SimpleNamespace(
        noise=noise,
        target=backed_up(ROWS, next_value, CONFIG.gamma),
        sampled=proposals_by_hand(old.actor, FEATURES, NEXT_FEATURES, noise.samples, noise.uniform),
        factor=factor,
        td_weight=np.maximum(weight, CONFIG.c_min),
        push_weight=np.maximum(weight * factor, CONFIG.penalty_floor),
    )


def gaps_by_hand(critic: MLP, sampled: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """(critics, batch)"""
    pushed = scipy.special.logsumexp(critics_by_hand(critic, FEATURES, sampled[0]) - sampled[1], axis=1)
    return pushed - critics_by_hand(critic, FEATURES, LOGGED)


def vae_loss_by_hand(coder: VAE, noise: np.ndarray) -> float:
    mean, log_std = np.split(net_by_hand(coder.encoder, joined(FEATURES, LOGGED)), 2, axis=-1)
    std = np.exp(np.clip(log_std, -4.0, 15.0))
    found = np.tanh(net_by_hand(coder.decoder, joined(FEATURES, mean + std * noise)))
    divergence = -0.5 * (1.0 + np.log(std**2) - mean**2 - std**2)
    return ((found - LOGGED) ** 2).mean() + 0.5 * divergence.mean()


def update_by_hand(state: Any) -> tuple[epq.Params, Any, dict[str, float]]:
    """Every loss at the old parameters, with f, the sampled actions and y held still: each part has its own loss."""
    fixed, old = fixed_by_hand(state), state.params
    alpha = np.exp(float(old.log_alpha))
    log_prob = sample_by_hand(old.actor, FEATURES, fixed.noise.action)[1]

    def td(critic: MLP) -> float:
        return (fixed.td_weight * (critics_by_hand(critic, FEATURES, LOGGED) - fixed.target) ** 2).mean(1).sum()

    def of_critic(critic: MLP) -> float:
        push = (fixed.push_weight * gaps_by_hand(critic, fixed.sampled)).mean(1).sum()
        return td(critic) + CONFIG.conservatism * push

    def of_actor(actor: TanhGaussian) -> float:
        action, log_prob = sample_by_hand(actor, FEATURES, fixed.noise.action)
        if int(state.step) < CONFIG.cloning_steps:
            return (alpha * log_prob - likelihood_by_hand(actor, FEATURES, LOGGED)).mean()
        return (alpha * log_prob - critics_by_hand(old.critic, FEATURES, action).min(0)).mean()

    losses = {
        "actor": of_actor,
        "critic": of_critic,
        "log_alpha": lambda log_alpha: -float(log_alpha) * (log_prob.mean() - ACT),
        "vae": lambda coder: vae_loss_by_hand(coder, fixed.noise.encoded),
    }
    rates = {name: CONFIG.critic_lr if name == "critic" else CONFIG.actor_lr for name in losses}
    new = {name: part_by_hand(state, name, loss, rates[name]) for name, loss in losses.items()}
    q = critics_by_hand(old.critic, FEATURES, LOGGED)
    metrics = {
        "critic_loss": td(old.critic),
        "conservative_gap": gaps_by_hand(old.critic, fixed.sampled).mean(),
        "adaptation_factor": fixed.factor.mean(),
        "penalty_weight": fixed.push_weight.mean(),
        "actor_loss": of_actor(old.actor),
        "vae_loss": vae_loss_by_hand(old.vae, fixed.noise.encoded),
        "entropy": -log_prob.mean(),
        "alpha": alpha,
        "q_min": q.min(),
        "q_mean": q.mean(),
        "q_max": q.max(),
    }
    return epq.Params(**new), average_by_hand(state.target_critic, new["critic"], CONFIG.target_tau), metrics


@cache
def updated(step: int) -> tuple[Any, Any, dict[str, Any]]:
    state = made_state(epq, CONFIG, step, setup=SETUP)
    return state, *update(state, BATCH, KEY)


@pytest.mark.parametrize("step", [2, 3], ids=["cloning", "afterwards"])
def test_a_whole_update_is_that_of_its_losses_each_at_the_old_parameters(step: int) -> None:
    """Actor, critics, temperature and VAE by Adam at their own learning rates, and the target after the critics."""
    state, after, metrics = updated(step)
    params, target_critic, reported = update_by_hand(state)
    assert CONFIG.actor_lr != CONFIG.critic_lr
    for name in epq.Params._fields:
        assert_close(getattr(after.params, name), getattr(params, name), atol=1e-5)
    assert_close(after.target_critic, target_critic, atol=1e-5)
    assert set(metrics) == set(reported)
    for name, value in reported.items():
        assert float(metrics[name]) == pytest.approx(value, rel=1e-4, abs=1e-5), name
    assert int(after.step) == step + 1


def test_the_case_has_transitions_on_both_sides_of_every_floor() -> None:
    fixed = fixed_by_hand(updated(3)[0])
    assert 0.0 < fixed.factor.min() < 0.9 < fixed.factor.max() <= 1.0
    for weight, floor in ((fixed.td_weight, 0.4), (fixed.push_weight, 0.1)):
        assert (weight == floor).any()
        assert (weight > floor).any()


def test_the_cloning_start_ends_at_its_step_and_changes_the_actor_only() -> None:
    (before, cloning, _), (_, soft, _) = updated(2), updated(3)
    assert not equal_bits(cloning.params.actor, soft.params.actor)
    rest = [after.params._replace(actor=before.params.actor) for after in (cloning, soft)]
    assert equal_bits(*rest)


def test_a_batch_has_the_indices_of_its_transitions() -> None:
    data = made_data()
    batch = epq.draw(CONFIG, data, jax.random.PRNGKey(0))
    assert batch.pick.shape == (CONFIG.batch,)
    for part, found in zip(data.transitions, batch.transitions, strict=True):
        np.testing.assert_array_equal(found, np.asarray(part)[np.asarray(batch.pick)])


# The penalty adaptation factor


def test_log_beta_is_minus_a_squared_distance_or_a_log_sum_over_all() -> None:
    rng, size = np.random.default_rng(3), 5
    s, u, z = rng.normal(size=(size, OBS)), rng.normal(size=(N, size, ACT)), rng.normal(size=(N, size, LATENT))
    decoded = net_by_hand(CODER.decoder, joined(s, z))
    found = epq.log_behaviour(made_config(epq), CODER, f32(s), f32(u), f32(z))
    np.testing.assert_allclose(found, -((decoded - u) ** 2).sum(-1), rtol=1e-4, atol=1e-5)
    wanted = np.empty((N, size))
    for k in range(N):
        for b in range(size):
            wanted[k, b] = np.log(np.exp(-((decoded[:, b] - u[k, b]) ** 2).sum(-1)).sum())
    summed = epq.log_behaviour(made_config(epq, logsum=True), CODER, f32(s), f32(u), f32(z))
    np.testing.assert_allclose(summed, wanted, rtol=1e-4, atol=1e-5)


def test_the_factor_is_one_below_the_threshold_and_falls_exponentially_above() -> None:
    config = made_config(epq, support_threshold=2.0, ratio_temperature=0.5)
    threshold = -2.0 * 3 * np.log(2.0)
    log_beta = threshold + np.array([[-5.0, 0.0, 1.0, 4.0], [-1e4, -0.1, 2.0, 0.0]])
    wanted = [1.0, 1.0, (np.exp(-2.0) + np.exp(-4.0)) / 2, (np.exp(-8.0) + 1.0) / 2]
    np.testing.assert_allclose(epq.adaptation_factor(config, f32(log_beta), 3), wanted, rtol=1e-5)


@pytest.mark.parametrize(("away", "wanted"), [(0.0, "floor"), (6.0, "full")])
def test_a_supported_policy_is_spared_and_another_one_pays_in_full(away: float, wanted: str) -> None:
    """The behaviour always decodes the same action; the policy's own is there, or far from it."""
    config = made_config(epq, samples=N, support_threshold=10.0, ratio_temperature=1.0, penalty_floor=0.005)
    action = np.array([0.3, -0.6])
    still = lambda inputs, *says: MLP([f32(np.zeros((inputs, len(says))))], [f32(says)], "relu")  # noqa: E731
    actor = TanhGaussian(still(OBS, *(action + away), -5.0, -5.0))
    params = updated(3)[0].params._replace(actor=actor, vae=VAE(CODER.encoder, still(OBS + LATENT, *action)))
    noise = epq.draw_noise(config, (5, ACT), LATENT, jax.random.PRNGKey(0))
    factor = epq.factor_at(config, params, jnp.ones((5, OBS)), noise)
    weight = f32([0.1, 0.3, 0.5, 0.8, 1.0])
    found = np.asarray(epq.penalty_weight(config, weight, factor))
    np.testing.assert_allclose(found, np.full(5, 0.005) if wanted == "floor" else weight, rtol=1e-5)


def test_latents_are_clipped_and_fresh_for_each_sampled_action() -> None:
    noise = epq.draw_noise(CONFIG, (8, ACT), LATENT, jax.random.PRNGKey(0))
    assert noise.latent.shape == (N, 8, LATENT)
    assert float(jnp.abs(noise.latent).max()) == 0.5
    assert not np.array_equal(noise.latent[0], noise.latent[1])


# How it starts


def test_a_new_state_has_a_copied_target_a_temperature_of_one_and_the_vae(monkeypatch) -> None:
    state, asked = started(epq, CONFIG, monkeypatch, SETUP)
    assert asked == [([2, 5, 4], "relu", "rlkit-actor"), (2, [4, 5, 1], "relu", "rlkit-critic")]
    assert equal_bits(state.target_critic, state.params.critic)
    assert equal_bits(state.params.vae, CODER)
    assert float(state.params.log_alpha) == 0.0
    assert (state.params.actor.log_std_min, state.params.actor.log_std_max) == (-5.0, 2.0)
    assert int(state.step) == 0
    assert epq.policies(state) == {"policy": state.params.actor}


def test_defaults_are_the_authors_except_for_depth_batch_and_units() -> None:
    config = epq.Config()
    assert (config.support_threshold, config.epsilon, config.zeta, config.c_min) == (1.0, 0.5, 2.0, 0.2)
    assert (config.ratio_temperature, config.penalty_floor, config.neighbours) == (1.0, 0.005, 50)
    assert (config.conservatism, config.samples, config.cloning_steps) == (20.0, 10, 10_000)
    assert (config.critic_lr, config.actor_lr, config.target_tau) == (3e-4, 1e-4, 0.005)
    assert (config.vae.width, config.vae.depth, config.vae.batch, config.vae.lr) == (512, 2, 512, 1e-4)
    assert config.vae.steps == 2_000_000
    assert not config.use_q_beta
    assert not config.logsum
    assert (config.depth, config.batch) == (2, 256)  # ours: theirs are 3 and 512, as in the preset paper


@pytest.mark.parametrize("name", ["smoke", "laptop", "paper"])
def test_every_table_of_the_preset_is_read(name: str) -> None:
    for table in preset_table("epq")[name]:
        task, _, quality = table.partition("-")
        values = preset("epq", name, task, f"{task}-{quality}-v2") if quality else preset("epq", name, task)
        build(epq.Config, values)
