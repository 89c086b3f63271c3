"""ORAAC: each loss against its formula in double precision, the risk measures against closed forms, and what moves."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import Any

import jax
import numpy as np
import pytest
from scipy import integrate, stats

from pspo.algorithms import oraac
from pspo.algorithms.common.losses import quantile_huber_loss
from pspo.algorithms.oraac import Config, Move, Noise, Params, State, distorted
from pspo.core.config import build
from pspo.data.batches import Transitions
from pspo.nets.actors import act
from pspo.nets.mlp import MLP
from pspo.nets.quantiles import QuantileCritic
from pspo.nets.vae import VAE
from pspo.policies.policy import from_network
from tests.algorithms.baseline_cases import (
    ACT,
    OBS,
    adam_by_hand,
    adam_moments,
    assert_close,
    average_by_hand,
    backed_up,
    compiled_update,
    encoded,
    joined,
    made_config,
    made_data,
    made_mlp,
    made_norm,
    made_setup,
    made_state,
    made_transitions,
    net_by_hand,
    slopes,
)
from tests.arrays import equal_bits, f32

LATENT, BATCH = 2 * ACT, 8
CONFIG = made_config(
    oraac,
    vae_width=6,
    vae_steps=3,
    vae_lr=0.02,
    actor_width=8,
    reach=0.3,
    quantiles=4,
    risk_quantiles=3,
    risk_level=0.2,
)
NORM, ROWS, RNG = made_norm(), made_transitions(), np.random.default_rng(0)


def made_learned() -> Params:
    sizes = {"state": [OBS, 5], "action": [ACT, 5], "joint": [10, 16], "level": [16, 16], "head": [16, 32, 1]}
    critic = QuantileCritic(**{name: made_mlp(RNG, size) for name, size in sizes.items()})
    return Params(Move(made_mlp(RNG, [OBS + ACT, 8, 6, ACT]), CONFIG.reach), critic)


IMITATION = VAE(made_mlp(RNG, [OBS + ACT, 6, 2 * LATENT]), made_mlp(RNG, [OBS + LATENT, 6, ACT]))
LEARNED, TARGET = made_learned(), made_learned()
NOISE = Noise(
    vae=f32(RNG.normal(size=(BATCH, LATENT))),
    next_latent=f32(RNG.uniform(-0.5, 0.5, size=(BATCH, LATENT))),
    latent=f32(RNG.uniform(-0.5, 0.5, size=(BATCH, LATENT))),
    levels=f32([0.1, 0.35, 0.6, 0.95]),
    target_levels=f32([0.2, 0.4, 0.7, 0.9]),
    risk=f32([0.3, 0.6, 0.9]),
)


# By hand, in double precision


def critic_by_hand(critic: QuantileCritic, features: np.ndarray, action: np.ndarray, tau: Any) -> np.ndarray:
    """(levels, batch)"""

    def relu(net: MLP, x: np.ndarray) -> np.ndarray:
        return np.maximum(net_by_hand(net, x), 0.0)

    joint = relu(critic.joint, joined(relu(critic.state, features), relu(critic.action, action)))
    rows = []
    for level in np.asarray(tau, np.float64):
        weight = relu(critic.level, np.cos(np.pi * level * np.arange(16)))
        rows.append(net_by_hand(critic.head, joint * weight)[:, 0])
    return np.stack(rows)


def action_by_hand(actor: Move, imitation: VAE, features: np.ndarray, latent: Any) -> np.ndarray:
    imitated = np.tanh(net_by_hand(imitation.decoder, joined(features, np.asarray(latent, np.float64))))
    return np.clip(imitated + 0.3 * np.tanh(net_by_hand(actor.net, joined(features, imitated))), -1.0, 1.0)


def vae_loss_by_hand(imitation: VAE, rows: Transitions, noise: Noise) -> float:
    features, logged = encoded(rows.obs), np.asarray(rows.action, np.float64)
    mean, log_std = np.split(net_by_hand(imitation.encoder, joined(features, logged)), 2, axis=-1)
    std = np.exp(np.clip(log_std, -4.0, 15.0))
    found = np.tanh(net_by_hand(imitation.decoder, joined(features, mean + std * np.asarray(noise.vae, np.float64))))
    return ((found - logged) ** 2).mean() + 0.25 * (mean**2 + std**2 - 1.0 - 2.0 * np.log(std)).mean()


def target_by_hand(target: Params, imitation: VAE, rows: Transitions, noise: Noise) -> np.ndarray:
    features = encoded(rows.next_obs)
    action = action_by_hand(target.actor, imitation, features, noise.next_latent)
    return backed_up(rows, critic_by_hand(target.critic, features, action, noise.target_levels), CONFIG.gamma)


def critic_loss_by_hand(critic: QuantileCritic, rows: Transitions, levels: Any, target: np.ndarray) -> float:
    """Every pair of levels in every transition."""
    quantiles = critic_by_hand(critic, encoded(rows.obs), np.asarray(rows.action, np.float64), levels)
    terms = []
    for tau, quantile in zip(np.asarray(levels, np.float64), quantiles, strict=True):
        delta = target - quantile
        huber = np.where(np.abs(delta) <= 1.0, 0.5 * delta**2, np.abs(delta) - 0.5)
        terms.append(np.where(delta <= 0.0, 1.0 - tau, tau) * huber)
    return float(np.mean(terms))


def actor_loss_by_hand(actor: Move, imitation: VAE, critic: QuantileCritic, rows: Transitions, noise: Noise) -> float:
    features = encoded(rows.obs)
    action = action_by_hand(actor, imitation, features, noise.latent)
    return -critic_by_hand(critic, features, action, 0.2 * np.asarray(noise.risk, np.float64)).mean()


# Losses


@jax.jit
def all_losses() -> tuple[Any, ...]:
    """One program for all: target, critic's loss, actor's loss, and the actor's gradient in actor and VAE."""
    features, next_features = NORM.encode(ROWS.obs), NORM.encode(ROWS.next_obs)
    target = oraac.critic_target(CONFIG, TARGET, IMITATION, next_features, ROWS, NOISE)
    critic, _ = oraac.critic_loss(LEARNED.critic, features, ROWS.action, NOISE.levels, target)
    actor, grads = jax.value_and_grad(partial(oraac.actor_loss, CONFIG), argnums=(0, 1))(
        LEARNED.actor, IMITATION, LEARNED.critic, features, NOISE
    )
    return target, critic, actor, grads


@cache
def losses() -> tuple[Any, ...]:
    return jax.device_get(all_losses())


def test_the_target_is_the_target_critics_quantiles_and_zero_after_an_end() -> None:
    target = losses()[0]
    assert target.shape == (4, BATCH)
    np.testing.assert_allclose(target, target_by_hand(TARGET, IMITATION, ROWS, NOISE), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(target[:, 2], np.full(4, ROWS.reward[2]))


def test_the_critics_loss_is_the_quantile_huber_loss_over_all_pairs_of_levels() -> None:
    target = target_by_hand(TARGET, IMITATION, ROWS, NOISE)
    expected = critic_loss_by_hand(LEARNED.critic, ROWS, NOISE.levels, target)
    np.testing.assert_allclose(losses()[1], expected, rtol=1e-4)


def test_the_actors_loss_is_minus_the_mean_quantile_at_distorted_levels() -> None:
    expected = actor_loss_by_hand(LEARNED.actor, IMITATION, LEARNED.critic, ROWS, NOISE)
    np.testing.assert_allclose(losses()[2], expected, rtol=1e-4)


def test_no_gradient_of_the_actors_loss_reaches_the_vae() -> None:
    actor, imitation = losses()[3]
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(actor)) > 1e-4
    for leaf in jax.tree.leaves(imitation):
        assert np.all(leaf == 0.0)


def test_the_quantile_huber_loss_is_least_at_the_quantile() -> None:
    """Targets vary widely against the Huber threshold, which draws the minimiser a little to the middle."""
    target = np.random.default_rng(1).normal(scale=20.0, size=4000)
    guess = np.linspace(-60.0, 60.0, 481)
    scan = jax.jit(
        jax.vmap(lambda g, tau: quantile_huber_loss(g[None, None], tau[None], f32(target)[:, None]), (0, None))
    )
    for tau in (0.1, 0.5, 0.9):
        best = guess[np.argmin(scan(f32(guess), f32(tau)))]
        assert abs(best - np.quantile(target, tau)) < 1.0


# Risk measures

MIDDLE = (np.arange(20_000) + 0.5) / 20_000
U = np.array([0.0, *MIDDLE, 1.0 - 2**-24])  # one shape for all, as every shape is compiled again


def levels(risk: str, **numbers: float) -> np.ndarray:
    return np.asarray(distorted(build(Config, {"risk": risk} | numbers), f32(U)), np.float64)


def test_distorted_levels_follow_their_formulas() -> None:
    np.testing.assert_allclose(levels("neutral"), U, rtol=1e-6)
    np.testing.assert_allclose(levels("cvar"), 0.1 * U, rtol=1e-6)
    np.testing.assert_allclose(levels("wang"), stats.norm.cdf(stats.norm.ppf(U) - 0.75), rtol=1e-4)
    expected = [u**0.71 / (u**0.71 + (1 - u) ** 0.71) ** (1 / 0.71) for u in U]
    np.testing.assert_allclose(levels("cpw"), expected, rtol=1e-5)


def test_the_measures_of_a_normal_return_are_the_known_ones() -> None:
    """CVaR is the mean of the truncated tail; Wang moves the mean by its shift."""
    tail = integrate.quad(lambda x: x * stats.norm.pdf(x), -np.inf, stats.norm.ppf(0.1))[0] / 0.1
    assert stats.norm.ppf(levels("cvar")[1:-1]).mean() == pytest.approx(tail, abs=2e-3)
    assert stats.norm.ppf(levels("wang")[1:-1]).mean() == pytest.approx(-0.75, abs=2e-3)


def test_a_measure_that_distorts_nothing_is_the_mean() -> None:
    for same in (levels("cvar", risk_level=1.0), levels("wang", risk_shift=0.0), levels("cpw", risk_power=1.0)):
        np.testing.assert_allclose(same, U, rtol=1e-4)


@pytest.mark.parametrize("risk", ["neutral", "cvar", "wang", "cpw"])
def test_levels_rise_and_stay_between_zero_and_one_even_at_the_ends(risk: str) -> None:
    found = levels(risk, risk_power=0.28)
    assert np.all(np.isfinite(found))
    assert found[0] == 0.0
    assert found[-1] <= 1.0
    assert np.all(np.diff(found) >= -1e-6)


# Updates

KEYS = [jax.random.PRNGKey(i) for i in range(6)]
one_step = compiled_update(oraac, CONFIG)
drawn_noise = jax.jit(lambda key: oraac.draw_noise(CONFIG, (BATCH, LATENT), key))


@cache
def steps() -> tuple[list[State], list[dict[str, jax.Array]]]:
    """Six iterations on the same batch."""
    states, metrics = [made_state(oraac, CONFIG)], []
    for key in KEYS:
        state, found = one_step(states[-1], ROWS, key)
        states.append(state)
        metrics.append(found)
    return states, metrics


def test_the_vae_moves_until_its_steps_are_over_and_then_stays_bit_for_bit() -> None:
    states, metrics = steps()
    for i in range(3):
        assert not equal_bits(states[i].vae, states[i + 1].vae)
        assert metrics[i]["vae_loss"] > 0.0
    for i in range(3, 6):
        assert equal_bits((states[3].vae, states[3].vae_opt), (states[i + 1].vae, states[i + 1].vae_opt))
        assert metrics[i]["vae_loss"] == 0.0


def test_actor_and_targets_move_in_every_second_iteration_and_the_critic_in_all() -> None:
    states, _ = steps()
    for i, (before, after) in enumerate(pairwise(states)):
        assert not equal_bits(before.params.critic, after.params.critic)
        resting = [(s.params.actor, s.actor_opt, s.target) for s in (before, after)]
        assert equal_bits(*resting) == (i % 2 == 0)


@pytest.mark.parametrize("i", [1, 5], ids=["with the VAE training", "with it frozen"])
def test_an_update_takes_vae_then_critic_then_actor_each_with_what_came_before_it(i: int) -> None:
    """And each by Adam at its own learning rate; the moving averages come last."""
    states, metrics = steps()
    before, after, noise = states[i], states[i + 1], drawn_noise(KEYS[i])
    assert len({CONFIG.vae_lr, CONFIG.critic_lr, CONFIG.actor_lr}) == 3

    def moved(net: Any, loss: Any, opt: Any, rate: float) -> Any:
        return adam_by_hand(net, slopes(loss, net), adam_moments(opt), rate)

    imitation = before.vae
    if i < CONFIG.vae_steps:
        imitation = moved(before.vae, lambda net: vae_loss_by_hand(net, ROWS, noise), before.vae_opt, CONFIG.vae_lr)
        assert float(metrics[i]["vae_loss"]) == pytest.approx(vae_loss_by_hand(before.vae, ROWS, noise), rel=1e-4)
    target = target_by_hand(before.target, imitation, ROWS, noise)

    def of_critic(critic: QuantileCritic) -> float:
        return critic_loss_by_hand(critic, ROWS, noise.levels, target)

    critic = moved(before.params.critic, of_critic, before.critic_opt, CONFIG.critic_lr)

    def of_actor(actor: Move) -> float:
        return actor_loss_by_hand(actor, imitation, critic, ROWS, noise)

    actor = moved(before.params.actor, of_actor, before.actor_opt, CONFIG.actor_lr)
    assert_close(after.vae, imitation, atol=2e-5)
    assert_close(after.params.critic, critic, atol=2e-5)
    assert_close(after.params.actor, actor, atol=2e-5)
    assert_close(after.target, average_by_hand(before.target, Params(actor, critic), CONFIG.tau), atol=2e-5)
    assert float(metrics[i]["critic_loss"]) == pytest.approx(of_critic(before.params.critic), rel=1e-3)
    assert float(metrics[i]["actor_loss"]) == pytest.approx(2 * of_actor(before.params.actor), rel=1e-3)
    assert metrics[i - 1]["actor_loss"] == 0.0  # of two iterations one has a loss, and counts for both


def test_latents_are_clipped_and_levels_are_shared_by_the_batch() -> None:
    noise = drawn_noise(KEYS[0])
    for latent in (noise.latent, noise.next_latent):
        assert np.abs(latent).max() == 0.5
        assert np.abs(latent).min() < 0.5
    assert np.abs(noise.vae).max() > 0.5
    assert (noise.levels.shape, noise.target_levels.shape, noise.risk.shape) == ((4,), (4,), (3,))
    for one, other in pairwise([noise.levels[:3], noise.target_levels[:3], noise.risk, noise.levels[:3]]):
        assert not np.array_equal(one, other)


def test_a_fresh_state_has_the_shapes_that_the_settings_ask_for() -> None:
    """The shapes of the networks made here by hand, which follow the same settings."""
    fresh = jax.eval_shape(lambda key: oraac.init(CONFIG, made_setup(), made_data(), key), KEYS[0])
    for found, made in ((fresh.vae, IMITATION), (fresh.params, LEARNED), (fresh.target, TARGET)):
        assert jax.tree.structure(found) == jax.tree.structure(made)
        assert [leaf.shape for leaf in jax.tree.leaves(found)] == [leaf.shape for leaf in jax.tree.leaves(made)]


def test_a_fresh_state_holds_the_made_networks_and_a_target_that_is_a_copy(monkeypatch) -> None:
    monkeypatch.setattr(oraac, "vae", lambda *_: IMITATION)
    monkeypatch.setattr(oraac, "quantile_critic", lambda *_: LEARNED.critic)
    monkeypatch.setattr(oraac, "mlp", lambda *_, **kind: LEARNED.actor.net if kind == {"init": "torch"} else None)
    state = oraac.init(CONFIG, made_setup(), made_data(), KEYS[0])
    assert equal_bits((state.vae, state.params, state.target), (IMITATION, LEARNED, LEARNED))
    assert int(state.step) == 0


def test_all_defaults_but_the_vaes_steps_and_the_units_are_the_authors() -> None:
    config = Config()
    assert (config.risk, config.risk_level, config.risk_shift, config.risk_power) == ("cvar", 0.1, 0.75, 0.71)
    assert (config.reach, config.quantiles, config.risk_quantiles, config.batch) == (0.25, 32, 8, 128)
    assert (config.width, config.depth, config.vae_width, config.actor_width) == (256, 2, 750, 400)
    assert (config.critic_lr, config.actor_lr, config.vae_lr) == (1e-3, 1e-4, 1e-3)
    assert (config.tau, config.actor_period, config.gamma) == (0.005, 2, 0.99)


# The policy


def test_the_deployed_policy_decodes_a_zero_latent_and_acts_alike_in_numpy_and_jax() -> None:
    state = steps()[0][-1]._replace(vae=IMITATION, params=LEARNED)
    network = oraac.policies(state)["policy"]
    policy, obs = from_network(network, NORM, {}), RNG.normal(size=(50, OBS)).astype(np.float32)
    unit = action_by_hand(LEARNED.actor, IMITATION, encoded(obs), np.zeros((50, LATENT)))
    expected = NORM.action_low + 0.5 * (unit + 1.0) * (NORM.action_high - NORM.action_low)
    np.testing.assert_allclose(policy(obs), expected, atol=1e-5)
    np.testing.assert_allclose(jax.jit(partial(act, network, NORM))(obs), expected, atol=1e-5)
    imitated = replace(policy, numbers=policy.numbers | {"reach": 0.0})
    width = NORM.action_high - NORM.action_low
    assert np.all(np.abs(policy(obs) - imitated(obs)) <= 0.5 * 0.3 * width + 1e-5)  # the unit range has length two
