"""CQL: the conservative gap, its two weights, the cloning start, the target, and whole updates against NumPy."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from pspo.algorithms.common.losses import proposals, sampled_target
from pspo.algorithms.cql import algorithm as cql
from tests.algorithms.baseline_cases import (
    ACT,
    assert_close,
    average_by_hand,
    backed_up,
    compiled_update,
    critics_by_hand,
    encoded,
    likelihood_by_hand,
    made_config,
    made_state,
    made_transitions,
    part_by_hand,
    proposals_by_hand,
    sample_by_hand,
    started,
)
from tests.arrays import equal_bits, f32

FIXED = made_config(cql, samples=3)
ADAPTED = made_config(cql, samples=3, gap_limit=2.0, cloning_steps=4, conservatism=0.8)
ROWS, KEY = made_transitions(), jax.random.PRNGKey(7)
FEATURES, NEXT_FEATURES, LOGGED = encoded(ROWS.obs), encoded(ROWS.next_obs), np.asarray(ROWS.action, np.float64)
UPDATES = {FIXED: compiled_update(cql, FIXED), ADAPTED: compiled_update(cql, ADAPTED)}


def sampled_by_hand(actor: Any, noise: cql.Noise) -> tuple[np.ndarray, np.ndarray]:
    return proposals_by_hand(actor, FEATURES, NEXT_FEATURES, noise.samples, noise.uniform)


def gaps_by_hand(critic: Any, sampled: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """One log-sum-exp over all samples of a state, every one of them evaluated at s."""
    actions, log_density = sampled
    pushed = scipy.special.logsumexp(critics_by_hand(critic, FEATURES, actions) - log_density, axis=1)
    return pushed.mean(axis=1) - critics_by_hand(critic, FEATURES, LOGGED).mean(axis=1)


def doubled_noise(config: Any) -> cql.Noise:
    noise = cql.draw_noise(config, ROWS.action.shape, KEY)
    return cql.Noise(*(np.asarray(part, np.float64) for part in noise))


def target_by_hand(config: Any, state: Any, noise: np.ndarray) -> np.ndarray:
    action, _ = sample_by_hand(state.params.actor, NEXT_FEATURES, noise)
    return backed_up(ROWS, critics_by_hand(state.target_critic, NEXT_FEATURES, action).min(axis=0), config.gamma)


class ByHand(NamedTuple):
    params: Any
    target_critic: Any
    metrics: dict[str, float]


def update_by_hand(config: Any, state: Any) -> ByHand:
    """Every loss at the old parameters; each part of the parameters has the gradient of its own loss only."""
    noise, old = doubled_noise(config), state.params
    target, sampled = target_by_hand(config, state, noise.next_action), sampled_by_hand(old.actor, noise)
    alpha, multiplier = np.exp(float(old.log_alpha)), np.exp(float(old.log_multiplier))

    def td(critic: Any) -> float:
        return ((critics_by_hand(critic, FEATURES, LOGGED) - target) ** 2).mean(axis=1).sum()

    def of_critic(critic: Any) -> float:
        weighted = config.conservatism * gaps_by_hand(critic, sampled)
        return td(critic) + (multiplier * (weighted - config.gap_limit) if config.gap_limit else weighted).sum()

    def of_actor(actor: Any) -> float:
        action, log_prob = sample_by_hand(actor, FEATURES, noise.action)
        if int(state.step) < config.cloning_steps:
            return (alpha * log_prob - likelihood_by_hand(actor, FEATURES, LOGGED)).mean()
        return (alpha * log_prob - critics_by_hand(old.critic, FEATURES, action).min(axis=0)).mean()

    log_prob, gaps = sample_by_hand(old.actor, FEATURES, noise.action)[1], gaps_by_hand(old.critic, sampled)

    def of_log_alpha(log_alpha: Any) -> float:
        return -float(log_alpha) * (log_prob.mean() - ACT)  # the entropy's goal is minus the number of columns

    def of_log_multiplier(log_multiplier: Any) -> float:
        excess = (config.conservatism * gaps - config.gap_limit).mean()
        return -np.exp(float(log_multiplier)) * excess if config.gap_limit else 0.0

    losses = {"actor": of_actor, "critic": of_critic, "log_alpha": of_log_alpha, "log_multiplier": of_log_multiplier}
    new = {}
    for name, loss in losses.items():
        rate = config.critic_lr if name in ("critic", "log_multiplier") else config.actor_lr
        new[name] = part_by_hand(state, name, loss, rate)
    q = critics_by_hand(old.critic, FEATURES, LOGGED)
    metrics = {
        "critic_loss": td(old.critic),
        "conservative_gap": gaps.mean(),
        "actor_loss": of_actor(old.actor),
        "entropy": -log_prob.mean(),
        "alpha": alpha,
        "q_min": q.min(),
        "q_mean": q.mean(),
        "q_max": q.max(),
    }
    return ByHand(cql.Params(**new), average_by_hand(state.target_critic, new["critic"], config.tau), metrics)


@cache
def updated(config: Any, step: int) -> tuple[Any, Any, dict[str, Any]]:
    state = made_state(cql, config, step)
    return state, *UPDATES[config](state, ROWS, KEY)


def test_defaults_are_the_authors_except_for_cloning_and_depth() -> None:
    config = cql.Config()
    assert (config.conservatism, config.samples, config.gap_limit) == (5.0, 10, 0.0)
    assert (config.critic_lr, config.actor_lr, config.tau) == (3e-4, 1e-4, 0.005)
    assert (config.width, config.batch) == (256, 256)
    assert (config.cloning_steps, config.depth) == (0, 2)  # ours: theirs are 40,000 and 3, as in the preset paper


@pytest.mark.parametrize(
    ("config", "step"), [(FIXED, 0), (ADAPTED, 3), (ADAPTED, 4)], ids=["fixed weight", "cloning", "adapted weight"]
)
def test_a_whole_update_is_that_of_its_losses_each_at_the_old_parameters(config: Any, step: int) -> None:
    """The actor's own loss is all that moves the actor: the penalty's samples, drawn from it, carry no gradient."""
    state, after, metrics = updated(config, step)
    expected = update_by_hand(config, state)
    for name in cql.Params._fields:
        assert_close(getattr(after.params, name), getattr(expected.params, name), atol=1e-5)
    assert_close(after.target_critic, expected.target_critic, atol=1e-5)
    for name, value in expected.metrics.items():
        assert float(metrics[name]) == pytest.approx(value, rel=1e-4, abs=1e-5), name
    assert int(after.step) == step + 1


def test_the_cloning_start_ends_at_its_step_and_changes_the_actor_only() -> None:
    """Of two states that differ in their step alone, only the actor's new weights tell which loss it had."""
    (before, cloning, _), (_, last, _), (_, soft, _) = (updated(ADAPTED, step) for step in (0, 3, 4))
    assert equal_bits(cloning.params, last.params)
    assert not equal_bits(last.params.actor, soft.params.actor)
    assert equal_bits(last.params._replace(actor=before.params.actor), soft.params._replace(actor=before.params.actor))


def test_the_target_takes_the_smaller_critic_at_a_sampled_action_without_entropy() -> None:
    state, noise = made_state(cql, FIXED), np.random.default_rng(1).normal(size=ROWS.action.shape)
    nets = state.params.actor, state.target_critic
    found = sampled_target(*nets, f32(NEXT_FEATURES), ROWS, f32(noise), FIXED.gamma)
    assert found.shape == ROWS.reward.shape
    np.testing.assert_allclose(found, target_by_hand(FIXED, state, noise), rtol=1e-4, atol=1e-5)
    action, log_prob = sample_by_hand(state.params.actor, NEXT_FEATURES, noise)
    alive = ~np.asarray(ROWS.terminal)
    assert np.abs(log_prob[alive]).max() > 0.1  # an entropy term would show, and so would one critic alone
    assert set(critics_by_hand(state.target_critic, NEXT_FEATURES, action)[:, alive].argmin(axis=0)) == {0, 1}


def test_the_gap_is_one_log_sum_exp_over_thirty_actions_valued_at_s() -> None:
    config = made_config(cql)
    state, noise = made_state(cql, config), doubled_noise(config)
    actor, critic = state.params.actor, state.params.critic
    sampled = sampled_by_hand(actor, noise)
    assert sampled[0].shape == (30, *ROWS.action.shape)
    logged_q = critics_by_hand(critic, FEATURES, LOGGED)

    @jax.jit
    def both(noise: Any) -> Any:
        drawn = proposals(actor, f32(FEATURES), f32(NEXT_FEATURES), noise.samples, noise.uniform)
        return drawn, cql.gap(critic, f32(FEATURES), f32(logged_q), drawn)

    drawn, found = both(jax.tree.map(f32, noise))
    for part, expected in zip(drawn, sampled, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-4, atol=1e-4)
    expected = gaps_by_hand(critic, sampled)
    assert found.shape == expected.shape == (2,)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_fixed_weight_multiplies_the_gap_of_each_critic() -> None:
    push, multiplier = cql.penalty(FIXED, f32([0.5, 2.0]), jnp.float32(3.0))
    assert float(push) == pytest.approx(5.0 * 2.5)
    assert float(multiplier) == 0.0


def test_the_adapted_weight_rises_above_the_limit_and_falls_below_it() -> None:
    """Descent goes against the slope of the multiplier's loss; conservatism 0.8 times the gap is held at 2."""

    @jax.jit
    def terms(gaps: Any, log_multiplier: Any) -> Any:
        push, pulls = jax.value_and_grad(lambda g: cql.penalty(ADAPTED, g, log_multiplier)[0])(gaps)
        loss, slope = jax.value_and_grad(lambda m: cql.penalty(ADAPTED, gaps, m)[1])(log_multiplier)
        crossed = jax.grad(lambda m: cql.penalty(ADAPTED, gaps, m)[0])(log_multiplier)
        return push, pulls, loss, slope, crossed, jax.grad(lambda g: cql.penalty(ADAPTED, g, log_multiplier)[1])(gaps)

    for gaps, sign in (([3.0, 4.0], -1.0), ([0.5, 2.0], 1.0)):
        weight, excess = np.exp(0.3), 0.8 * np.array(gaps) - 2.0
        push, pulls, loss, slope, *crossed = terms(f32(gaps), jnp.float32(0.3))
        assert float(push) == pytest.approx(weight * excess.sum(), rel=1e-5)
        np.testing.assert_allclose(pulls, 0.8 * weight, rtol=1e-5)
        assert float(loss) == pytest.approx(-weight * excess.mean(), rel=1e-5)
        assert float(slope) == pytest.approx(-weight * excess.mean(), rel=1e-5)
        assert np.sign(slope) == sign
        assert all(np.all(np.asarray(part) == 0.0) for part in crossed)  # neither loss moves the other's part
    push, *_ = terms(f32([3.0, 4.0]), jnp.float32(200.0))
    assert float(push) == pytest.approx(1e6 * (0.4 + 1.2), rel=1e-4)  # the weight has an end


def test_the_noise_is_fresh_in_every_part_and_of_the_right_kind() -> None:
    noise = cql.draw_noise(made_config(cql), (8, ACT), KEY)
    assert (noise.samples.shape, noise.uniform.shape) == ((2, 10, 8, ACT), (10, 8, ACT))
    assert noise.next_action.shape == noise.action.shape == (8, ACT)
    assert float(np.abs(noise.uniform).max()) <= 1.0
    assert np.asarray(noise.uniform).min() < -0.9
    assert np.asarray(noise.uniform).std() == pytest.approx(3.0**-0.5, abs=0.06)
    assert np.asarray(noise.samples).std() == pytest.approx(1.0, abs=0.15)
    parts = [noise.next_action, noise.action, *np.asarray(noise.samples).reshape(-1, 8, ACT), *noise.uniform]
    assert len({np.asarray(part).tobytes() for part in parts}) == 32


def test_a_fresh_state_has_a_target_that_is_a_copy_and_weights_of_one(monkeypatch) -> None:
    state, asked = started(cql, FIXED, monkeypatch)
    assert asked == [([2, 5, 4], "relu", "rlkit-actor"), (2, [4, 5, 1], "relu", "rlkit-critic")]
    assert equal_bits(state.target_critic, state.params.critic)
    assert float(state.params.log_alpha) == float(state.params.log_multiplier) == 0.0
    assert (state.params.actor.log_std_min, state.params.actor.log_std_max) == (-5.0, 2.0)
    assert int(state.step) == 0
    assert cql.policies(state) == {"policy": state.params.actor}
