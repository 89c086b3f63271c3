"""TD3+BC: its target, its actor's loss, its delayed steps, and whole updates against NumPy."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from pspo.algorithms import td3bc
from tests.algorithms.baseline_cases import (
    adam_by_hand,
    adam_moments,
    assert_close,
    average_by_hand,
    backed_up,
    compiled_update,
    critics_by_hand,
    doubles,
    encoded,
    made_config,
    made_state,
    made_transitions,
    net_by_hand,
    slopes,
    started,
)
from tests.arrays import equal_bits, f32

CONFIG, ROWS, KEY = made_config(td3bc), made_transitions(), jax.random.PRNGKey(7)
FEATURES, NEXT_FEATURES, LOGGED = encoded(ROWS.obs), encoded(ROWS.next_obs), np.asarray(ROWS.action, np.float64)


def acts(actor: Any, features: np.ndarray) -> np.ndarray:
    return np.tanh(net_by_hand(actor.net, features))


def target_by_hand(config: Any, target: Any, noise: np.ndarray) -> np.ndarray:
    action = acts(target.actor, NEXT_FEATURES) + np.clip(config.noise * noise, -config.noise_clip, config.noise_clip)
    value = critics_by_hand(target.critic, NEXT_FEATURES, np.clip(action, -1.0, 1.0)).min(axis=0)
    return backed_up(ROWS, value, config.gamma)


def actor_loss_by_hand(config: Any, actor: Any, critic: Any, size: float | None = None) -> float:
    """`size`: the mean |Q_1| that lambda divides by; a number given from outside carries no gradient."""
    action = acts(actor, FEATURES)
    q = critics_by_hand(critic, FEATURES, action)[0]
    size = np.abs(q).mean() if size is None else size
    return -config.alpha / size * q.mean() + ((action - LOGGED) ** 2).sum() / action.size


class ByHand(NamedTuple):
    state: Any  # with NumPy arrays where an update moves something
    critic_loss: float
    actor_loss: float
    q: np.ndarray


def update_by_hand(config: Any, state: Any, acting: bool) -> ByHand:
    """The critics, and in an iteration with an actor step the actor and then both moving averages."""
    target = target_by_hand(config, state.target, np.asarray(jax.random.normal(KEY, ROWS.action.shape), np.float64))

    def td(critic: Any) -> float:
        return ((critics_by_hand(critic, FEATURES, LOGGED) - target) ** 2).mean(axis=1).sum()

    old = state.params
    critic = adam_by_hand(old.critic, slopes(td, old.critic), adam_moments(state.critic_opt), config.critic_lr)
    params, averages, loss = old._replace(critic=critic), state.target, 0.0
    if acting:
        size = np.abs(critics_by_hand(critic, FEATURES, acts(old.actor, FEATURES))[0]).mean()
        loss = actor_loss_by_hand(config, old.actor, critic)
        grads = slopes(lambda actor: actor_loss_by_hand(config, actor, critic, size), old.actor)
        params = params._replace(actor=adam_by_hand(old.actor, grads, adam_moments(state.actor_opt), config.actor_lr))
        averages = average_by_hand(state.target, params, config.tau)
    q = critics_by_hand(old.critic, FEATURES, LOGGED)
    return ByHand(state._replace(params=params, target=averages), td(old.critic), loss, q)


@cache
def updated(step: int) -> tuple[Any, Any, dict[str, Any]]:
    """A state before its iteration number `step`, counted from zero, and after it; one program for all."""
    state = made_state(td3bc, CONFIG, step)
    return state, *UPDATE(state, ROWS, KEY)


UPDATE = compiled_update(td3bc, CONFIG)


def test_the_defaults_are_the_papers() -> None:
    config = td3bc.Config()
    assert (config.alpha, config.noise, config.noise_clip, config.actor_period) == (2.5, 0.2, 0.5, 2)
    assert (config.critic_lr, config.actor_lr, config.tau) == (3e-4, 3e-4, 0.005)


def test_the_target_smooths_the_target_actors_action_and_takes_the_smaller_critic() -> None:
    state = made_state(td3bc, CONFIG)
    noise = np.random.default_rng(0).normal(size=ROWS.action.shape)
    noise[0], noise[1] = [9.0, -9.0], [-9.0, 9.0]  # beyond the clip of the noise
    expected = target_by_hand(CONFIG, doubles(state.target), noise)
    found = td3bc.critic_target(CONFIG, state.target, f32(NEXT_FEATURES), ROWS, f32(noise))
    assert found.shape == ROWS.reward.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    unclipped = target_by_hand(made_config(td3bc, noise_clip=10.0), doubles(state.target), noise)
    assert np.abs(unclipped - expected)[0] > 0.01  # the clip has a part in it
    q = critics_by_hand(state.target.critic, NEXT_FEATURES, acts(state.target.actor, NEXT_FEATURES))
    assert set(q.argmin(axis=0)) == {0, 1}  # and so has the minimum


def test_lambda_takes_the_first_critic_and_imitation_is_a_mean_over_all() -> None:
    state = made_state(td3bc, CONFIG)
    actor, critic = state.params
    for config in (CONFIG, made_config(td3bc, alpha=0.0), made_config(td3bc, alpha=0.7)):
        found = td3bc.actor_loss(config, actor, critic, f32(FEATURES), ROWS.action)
        assert found == pytest.approx(actor_loss_by_hand(config, actor, critic), rel=1e-5)
    q = critics_by_hand(critic, FEATURES, acts(actor, FEATURES))
    assert not np.allclose(q[0], q.min(axis=0))  # neither the minimum
    assert np.abs(q[0]).mean() != pytest.approx(np.abs(q).mean(), rel=1e-2)  # nor the mean of both


def test_an_iteration_without_actor_step_moves_the_critics_only() -> None:
    state, after, metrics = updated(0)
    expected = update_by_hand(CONFIG, state, acting=False)
    assert_close(after.params.critic, expected.state.params.critic)
    assert not equal_bits(after.params.critic, state.params.critic)
    for part in ("target", "actor_opt"):
        assert equal_bits(getattr(after, part), getattr(state, part))
    assert equal_bits(after.params.actor, state.params.actor)
    assert int(after.step) == 1
    assert metrics["actor_loss"] == 0.0


def test_an_iteration_with_actor_step_moves_critics_then_actor_then_averages() -> None:
    """The actor's gradient is taken at the new critics with lambda as a number, the averages at the new networks."""
    state, after, metrics = updated(1)
    expected = update_by_hand(CONFIG, state, acting=True)
    assert_close(after.params, expected.state.params)
    assert_close(after.target, expected.state.target)
    assert not equal_bits(after.params.actor, state.params.actor)
    assert float(metrics["critic_loss"]) == pytest.approx(expected.critic_loss, rel=1e-5)
    assert float(metrics["actor_loss"]) == pytest.approx(2.0 * expected.actor_loss, rel=1e-4)  # a mean over two
    for name, value in (("q_min", expected.q.min()), ("q_mean", expected.q.mean()), ("q_max", expected.q.max())):
        assert float(metrics[name]) == pytest.approx(value, rel=1e-5, abs=1e-6)


def test_every_second_iteration_counted_from_one_has_an_actor_step() -> None:
    moved = [not equal_bits(before.params.actor, after.params.actor) for before, after, _ in map(updated, range(4))]
    averaged = [not equal_bits(before.target, after.target) for before, after, _ in map(updated, range(4))]
    assert moved == averaged == [False, True, False, True]
    assert all(not equal_bits(before.params.critic, after.params.critic) for before, after, _ in map(updated, range(4)))


def test_a_fresh_state_has_targets_that_are_copies_and_networks_as_in_pytorch(monkeypatch) -> None:
    state, asked = started(td3bc, CONFIG, monkeypatch)
    assert asked == [([2, 5, 2], "relu", "torch"), (2, [4, 5, 1], "relu", "torch")]
    assert equal_bits(state.target, state.params)
    assert int(state.step) == 0
    assert td3bc.policies(state) == {"policy": state.params.actor}
