"""ORAAC: each loss against its formula in double precision, the risk measures against closed forms, and what moves."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import Any

import jax
import numpy as np
import optax
import pytest
from pspo_cases import assert_same_bits, f32, same_bits
from scipy import integrate, stats

from pspo.algorithms import oraac
from pspo.algorithms.model_free import Parts
from pspo.algorithms.oraac import Config, Learned, Move, Noise, State, distorted
from pspo.config import build
from pspo.data.batches import Log, Rows
from pspo.data.normalise import Normaliser
from pspo.losses import quantile_huber_loss
from pspo.nets.actors import act
from pspo.nets.mlp import MLP
from pspo.nets.quantiles import QuantileCritic
from pspo.nets.vae import VAE
from pspo.policy import from_network

OBS, ACT, LATENT, BATCH = 3, 2, 4, 6
CONFIG = build(
    Config,
    {
        "gamma": 0.9,
        "batch": BATCH,
        "width": 5,
        "depth": 1,
        "vae_width": 6,
        "vae_steps": 3,
        "actor_width": 8,
        "reach": 0.3,
        "quantiles": 4,
        "risk_quantiles": 3,
        "risk_level": 0.2,
        "critic_rate": 0.01,
        "actor_rate": 0.01,
        "target_rate": 0.1,
    },
)
NORM = Normaliser(
    obs_mean=np.array([0.1, -0.2, 0.3], np.float32),
    obs_std=np.array([1.0, 1.5, 0.5], np.float32),
    obs_low=np.full(OBS, -5.0, np.float32),
    obs_high=np.full(OBS, 5.0, np.float32),
    grid_column=np.zeros(0, np.int32),
    grid_points=np.zeros((0, 0), np.float32),
    action_low=np.array([-2.0, 0.0], np.float32),
    action_high=np.array([3.0, 1.0], np.float32),
    reward_scale=np.asarray(1.7, np.float32),
)
PARTS = Parts((), NORM)
RNG = np.random.default_rng(0)


def made_mlp(sizes: list[int]) -> MLP:
    weights = [f32(RNG.normal(scale=0.7, size=shape)) for shape in pairwise(sizes)]
    return MLP(weights, [f32(RNG.normal(scale=0.4, size=size)) for size in sizes[1:]], "relu")


def made_learned() -> Learned:
    sizes = {"state": [OBS, 5], "action": [ACT, 5], "joint": [10, 16], "level": [16, 16], "head": [16, 32, 1]}
    critic = QuantileCritic(**{name: made_mlp(size) for name, size in sizes.items()})
    return Learned(Move(made_mlp([OBS + ACT, 8, 6, ACT]), CONFIG.reach), critic)


IMITATION = VAE(made_mlp([OBS + ACT, 6, 2 * LATENT]), made_mlp([OBS + LATENT, 6, ACT]))
LEARNED, TARGET = made_learned(), made_learned()
ROWS = Rows(
    obs=f32(RNG.normal(size=(BATCH, OBS))),
    action=f32(RNG.uniform(-1, 1, size=(BATCH, ACT))),
    reward=f32(RNG.normal(size=BATCH)),
    next_obs=f32(RNG.normal(size=(BATCH, OBS))),
    terminal=np.array([False, True, False, False, True, False]),
)
NOISE = Noise(
    vae=f32(RNG.normal(size=(BATCH, LATENT))),
    next_latent=f32(RNG.uniform(-0.5, 0.5, size=(BATCH, LATENT))),
    latent=f32(RNG.uniform(-0.5, 0.5, size=(BATCH, LATENT))),
    levels=f32([0.1, 0.35, 0.6, 0.95]),
    target_levels=f32([0.2, 0.4, 0.7, 0.9]),
    risk=f32([0.3, 0.6, 0.9]),
)


# By hand, in double precision


def mlp_by_hand(net: MLP, *inputs: Any) -> np.ndarray:
    x = np.concatenate([np.asarray(part, np.float64) for part in inputs], axis=-1)
    for layer, (w, b) in enumerate(zip(net.weights, net.biases, strict=True)):
        x = x @ np.asarray(w, np.float64) + np.asarray(b, np.float64)
        x = np.maximum(x, 0.0) if layer < len(net.weights) - 1 else x
    return x


def critic_by_hand(critic: QuantileCritic, features: np.ndarray, action: Any, tau: Any) -> np.ndarray:
    """(levels, batch)"""

    def relu(net: MLP, *inputs: Any) -> np.ndarray:
        return np.maximum(mlp_by_hand(net, *inputs), 0.0)

    joint = relu(critic.joint, relu(critic.state, features), relu(critic.action, action))
    rows = []
    for level in np.asarray(tau, np.float64):
        weight = relu(critic.level, np.cos(np.pi * level * np.arange(16)))
        rows.append(mlp_by_hand(critic.head, joint * weight)[:, 0])
    return np.stack(rows)


def action_by_hand(actor: Move, imitation: VAE, features: np.ndarray, latent: Any) -> np.ndarray:
    imitated = np.tanh(mlp_by_hand(imitation.decoder, features, latent))
    return np.clip(imitated + actor.reach * np.tanh(mlp_by_hand(actor.net, features, imitated)), -1.0, 1.0)


def features_by_hand(obs: Any) -> np.ndarray:
    return (np.asarray(obs, np.float64) - NORM.obs_mean) / NORM.obs_std


def target_by_hand(target: Learned, imitation: VAE, rows: Rows, noise: Noise) -> np.ndarray:
    features = features_by_hand(rows.next_obs)
    action = action_by_hand(target.actor, imitation, features, noise.next_latent)
    value = critic_by_hand(target.critic, features, action, noise.target_levels)
    return np.asarray(rows.reward) + 0.9 * (1.0 - np.asarray(rows.terminal, np.float64)) * value


def critic_loss_by_hand(critic: QuantileCritic, rows: Rows, levels: Any, target: np.ndarray) -> float:
    """Every pair of levels in every row, one after the other."""
    quantiles = critic_by_hand(critic, features_by_hand(rows.obs), rows.action, levels)
    terms = []
    for n, tau in enumerate(np.asarray(levels, np.float64)):
        for row in range(quantiles.shape[1]):
            for y in target[:, row]:
                delta = y - quantiles[n, row]
                huber = 0.5 * delta**2 if abs(delta) <= 1.0 else abs(delta) - 0.5
                terms.append((1.0 - tau if delta <= 0.0 else tau) * huber)
    return float(np.mean(terms))


def actor_loss_by_hand(actor: Move, imitation: VAE, critic: QuantileCritic, rows: Rows, noise: Noise) -> float:
    features = features_by_hand(rows.obs)
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


def test_the_target_is_the_target_critics_quantiles_at_the_moved_imitation_and_nothing_after_an_end() -> None:
    target = losses()[0]
    assert target.shape == (4, BATCH)
    np.testing.assert_allclose(target, target_by_hand(TARGET, IMITATION, ROWS, NOISE), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(target[:, 1], np.full(4, ROWS.reward[1]))


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
    """Targets spread widely against the Huber threshold, which draws the minimiser a little to the middle."""
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
U = np.array([0.0, *MIDDLE, 1.0 - 2**-24])  # one shape for all, as every shape is compiled anew


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
one_step = jax.jit(partial(oraac.update, CONFIG, PARTS, None))
drawn_noise = jax.jit(lambda key: oraac.draw_noise(CONFIG, (BATCH, LATENT), key))


@cache
def steps() -> tuple[list[State], list[dict[str, jax.Array]]]:
    """Six iterations on the same rows."""
    nets: Any = (IMITATION, *LEARNED)
    opts = [optax.adam(1.0).init(net) for net in nets]
    states, metrics = [State(IMITATION, LEARNED, TARGET, *opts, KEYS[0], f32(0).astype(int))], []
    for key in KEYS:
        state, found = one_step(states[-1], ROWS, key)
        states.append(state)
        metrics.append(found)
    return states, metrics


def test_the_vae_moves_until_its_steps_are_over_and_then_stays_to_the_bit() -> None:
    states, metrics = steps()
    for i in range(3):
        assert not same_bits(states[i].vae, states[i + 1].vae)
        assert metrics[i]["vae_loss"] > 0.0
    for i in range(3, 6):
        assert_same_bits((states[3].vae, states[3].vae_opt), (states[i + 1].vae, states[i + 1].vae_opt))
        assert metrics[i]["vae_loss"] == 0.0


def test_actor_and_targets_move_in_every_second_iteration_and_the_critic_in_all() -> None:
    states, _ = steps()
    for i, (before, after) in enumerate(pairwise(states)):
        assert not same_bits(before.learned.critic, after.learned.critic)
        resting = [(s.learned.actor, s.actor_opt, s.target) for s in (before, after)]
        if i % 2 == 0:
            assert_same_bits(*resting)
            continue
        for name in ("actor", "critic"):
            assert not same_bits(getattr(before.target, name), getattr(after.target, name))
        assert not same_bits(before.learned.actor, after.learned.actor)
        expected = jax.tree.map(lambda t, o: 0.9 * np.asarray(t) + 0.1 * np.asarray(o), before.target, after.learned)
        for a, b in zip(jax.tree.leaves(after.target), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


def test_an_update_takes_vae_then_critic_then_actor_each_with_what_came_before_it() -> None:
    states, metrics = steps()
    for i in (1, 5):  # with the VAE training, and frozen
        before, after, noise = states[i], states[i + 1], drawn_noise(KEYS[i])
        target = target_by_hand(before.target, after.vae, ROWS, noise)
        expected = critic_loss_by_hand(before.learned.critic, ROWS, noise.levels, target)
        np.testing.assert_allclose(metrics[i]["critic_loss"], expected, rtol=1e-3)
        expected = actor_loss_by_hand(before.learned.actor, after.vae, after.learned.critic, ROWS, noise)
        np.testing.assert_allclose(metrics[i]["actor_loss"], 2 * expected, rtol=1e-3)  # of two iterations
        assert metrics[i - 1]["actor_loss"] == 0.0


def test_latents_are_clipped_and_levels_are_shared_by_all_rows() -> None:
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
    log = Log(ROWS, *(ROWS.reward,) * 3)
    fresh = jax.eval_shape(lambda key: oraac.init(CONFIG, PARTS, log, key), KEYS[0])
    made = steps()[0][0]
    assert jax.tree.structure(fresh) == jax.tree.structure(made)
    assert [leaf.shape for leaf in jax.tree.leaves(fresh)] == [leaf.shape for leaf in jax.tree.leaves(made)]


# The policy


def test_the_deployed_policy_decodes_a_zero_latent_and_acts_alike_in_numpy_and_jax() -> None:
    state = steps()[0][-1]._replace(vae=IMITATION, learned=LEARNED)
    network = oraac.policies(state)["policy"]
    policy, obs = from_network(network, NORM, {}), RNG.normal(size=(50, OBS)).astype(np.float32)
    unit = action_by_hand(LEARNED.actor, IMITATION, features_by_hand(obs), np.zeros((50, LATENT)))
    expected = NORM.action_low + 0.5 * (unit + 1.0) * (NORM.action_high - NORM.action_low)
    np.testing.assert_allclose(policy(obs), expected, atol=1e-5)
    np.testing.assert_allclose(jax.jit(partial(act, network, NORM))(obs), expected, atol=1e-5)
    imitated = replace(policy, numbers=policy.numbers | {"reach": 0.0})
    width = NORM.action_high - NORM.action_low
    assert np.all(np.abs(policy(obs) - imitated(obs)) <= 0.5 * 0.3 * width + 1e-5)  # the unit range has length two
