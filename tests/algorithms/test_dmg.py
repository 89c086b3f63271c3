"""DMG: the mixed backup, the actor's loss, its delayed steps, and whole updates against NumPy."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from pspo.algorithms import dmg
from tests.algorithms.baseline_cases import (
    adam_by_hand,
    adam_moments,
    assert_close,
    average_by_hand,
    backed_up,
    compiled_update,
    cosine,
    critics_by_hand,
    encoded,
    made_config,
    made_state,
    made_transitions,
    net_by_hand,
    slopes,
    started,
)
from tests.arrays import equal_bits, f32

CONFIG = made_config(dmg, imitation=0.5, steps=41)
ROWS, KEY = made_transitions(), jax.random.PRNGKey(7)
FEATURES, NEXT_FEATURES, LOGGED = encoded(ROWS.obs), encoded(ROWS.next_obs), np.asarray(ROWS.action, np.float64)
UPDATE = compiled_update(dmg, CONFIG)


def acts(actor: Any, features: np.ndarray) -> np.ndarray:
    return np.tanh(net_by_hand(actor.net, features))


def target_by_hand(config: Any, target: Any, value: Any, noise: np.ndarray) -> np.ndarray:
    action = acts(target.actor, NEXT_FEATURES) + np.clip(config.noise * noise, -config.noise_clip, config.noise_clip)
    beyond = critics_by_hand(target.critic, NEXT_FEATURES, np.clip(action, -1.0, 1.0)).min(axis=0)
    inside = net_by_hand(value, NEXT_FEATURES)[:, 0]
    return backed_up(ROWS, config.mixture * beyond + (1.0 - config.mixture) * inside, config.gamma)


def actor_loss_by_hand(config: Any, actor: Any, critic: Any, weight: np.ndarray, size: float | None = None) -> float:
    """`size`: the mean |min_j Q_j| that the value is divided by; a number from outside carries no gradient."""
    action = acts(actor, FEATURES)
    q = critics_by_hand(critic, FEATURES, action).min(axis=0)
    size = np.abs(q).mean() if size is None else size
    imitation = sum(weight[i] * (action[i, j] - LOGGED[i, j]) ** 2 for i in range(len(q)) for j in (0, 1))
    return -q.mean() / size + config.imitation * imitation / action.size


class ByHand(NamedTuple):
    online: Any
    target: Any
    value: Any
    losses: dict[str, float]
    weight: np.ndarray


def update_by_hand(config: Any, state: Any, acting: bool) -> ByHand:
    """V, then Q through the new V; in an iteration with an actor step the actor at the new Q and V, then averages."""
    moments = [adam_moments(opt) for opt in state.opts]
    logged_q = critics_by_hand(state.target.critic, FEATURES, LOGGED).min(axis=0)

    def of_value(net: Any) -> float:
        error = logged_q - net_by_hand(net, FEATURES)[:, 0]
        return (np.abs(config.expectile - (error < 0)) * error**2).mean()

    value = adam_by_hand(state.value, slopes(of_value, state.value), moments[2], config.critic_lr)
    noise = np.asarray(jax.random.normal(KEY, ROWS.action.shape), np.float64)
    y = target_by_hand(config, state.target, value, noise)

    def of_critic(net: Any) -> float:
        return ((critics_by_hand(net, FEATURES, LOGGED) - y) ** 2).mean(axis=1).sum()

    old = state.online
    critic = adam_by_hand(old.critic, slopes(of_critic, old.critic), moments[1], config.critic_lr)
    advantage = logged_q - net_by_hand(value, FEATURES)[:, 0]
    weight = np.minimum(np.exp(config.temperature * advantage), config.weight_max)
    online, target, loss = old._replace(critic=critic), state.target, 0.0
    if acting:
        size = np.abs(critics_by_hand(critic, FEATURES, acts(old.actor, FEATURES)).min(axis=0)).mean()
        loss = actor_loss_by_hand(config, old.actor, critic, weight)
        grads = slopes(lambda net: actor_loss_by_hand(config, net, critic, weight, size), old.actor)
        rate = cosine(config.actor_lr, int(moments[0].count), config.steps // 2)
        online = online._replace(actor=adam_by_hand(old.actor, grads, moments[0], rate))
        target = average_by_hand(target, online, config.tau)
    q = critics_by_hand(old.critic, FEATURES, LOGGED)
    losses = {
        "critic_loss": of_critic(old.critic),
        "value_loss": of_value(state.value),
        "actor_loss": 2.0 * loss,  # its mean over two iterations is the loss
        "advantage": advantage.mean(),
        "q_min": q.min(),
        "q_mean": q.mean(),
        "q_max": q.max(),
    }
    return ByHand(online, target, value, losses, weight)


@cache
def updated(step: int, moments: int = 3) -> tuple[Any, Any, dict[str, Any]]:
    """A state before its iteration number `step`, counted from zero, and after it; one program for all."""
    state = made_state(dmg, CONFIG, step, moments, seed=9)
    return state, *UPDATE(state, ROWS, KEY)


def test_the_defaults_are_the_papers() -> None:
    config = dmg.Config()
    assert (config.mixture, config.imitation, config.expectile, config.temperature) == (0.25, 0.1, 0.7, 3.0)
    assert config.weight_max == 3.0  # a hundred is for other tasks
    assert (config.noise, config.noise_clip, config.actor_period, config.tau) == (0.2, 0.5, 2, 0.005)


def test_the_backup_mixes_the_actors_value_with_the_datasets() -> None:
    state = made_state(dmg, CONFIG)
    noise = np.random.default_rng(0).normal(size=ROWS.action.shape)
    noise[0], noise[1] = [9.0, -9.0], [-9.0, 9.0]  # beyond the clip of the noise
    for mixture in (0.0, 0.25, 1.0):
        config = made_config(dmg, mixture=mixture)
        found = dmg.critic_target(config, state.target, state.value, f32(NEXT_FEATURES), ROWS, f32(noise))
        assert found.shape == ROWS.reward.shape
        expected = target_by_hand(config, state.target, state.value, noise)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_the_actor_loss_scales_the_smaller_critic_and_weights_imitation() -> None:
    actor, critic = made_state(dmg, CONFIG, seed=9).online
    advantage = np.linspace(-1.0, 1.0, len(LOGGED))
    weight = np.minimum(np.exp(3.0 * advantage), 3.0)
    assert 0 < (weight == 3.0).sum() < len(LOGGED)
    found = dmg.actor_loss(CONFIG, actor, critic, f32(FEATURES), ROWS.action, f32(advantage))
    assert float(found) == pytest.approx(actor_loss_by_hand(CONFIG, actor, critic, weight), rel=1e-5)
    q = critics_by_hand(critic, FEATURES, acts(actor, FEATURES))
    assert set(q.argmin(axis=0)) == {0, 1}  # the minimum is neither critic


def test_an_iteration_without_actor_step_moves_v_and_q_only() -> None:
    state, after, metrics = updated(0)
    expected = update_by_hand(CONFIG, state, acting=False)
    assert_close((after.online.critic, after.value), (expected.online.critic, expected.value))
    assert equal_bits(after.online.actor, state.online.actor)
    assert equal_bits((after.target, after.opts[0]), (state.target, state.opts[0]))
    for name, value in expected.losses.items():
        assert float(metrics[name]) == pytest.approx(value, rel=2e-5, abs=1e-6), name


def test_an_iteration_with_actor_step_is_v_then_q_then_actor_then_averages() -> None:
    state, after, metrics = updated(1)
    expected = update_by_hand(CONFIG, state, acting=True)
    assert_close(after.value, expected.value)
    assert_close(after.online, expected.online)
    assert_close(after.target, expected.target)
    for name, value in expected.losses.items():
        assert float(metrics[name]) == pytest.approx(value, rel=2e-5, abs=1e-6), name
    assert 0 < (expected.weight == 3.0).sum() < len(LOGGED)


def test_every_second_iteration_counted_from_one_has_an_actor_step() -> None:
    pairs = [updated(step)[:2] for step in range(4)]
    assert [not equal_bits(a.online.actor, b.online.actor) for a, b in pairs] == [False, True, False, True]
    assert [not equal_bits(a.target, b.target) for a, b in pairs] == [False, True, False, True]
    for part in ("online.critic", "value"):
        first, *rest = part.split(".")
        ends = [[getattr(getattr(s, first), rest[0]) if rest else getattr(s, first) for s in pair] for pair in pairs]
        assert not any(equal_bits(*end) for end in ends)


def test_the_actors_learning_rate_counts_actor_steps_and_ends_at_zero() -> None:
    """Forty-one iterations have twenty actor steps: after ten the rate is halved, after twenty nothing moves."""
    state, after, _ = updated(1, 10)
    assert_close(after.online.actor, update_by_hand(CONFIG, state, acting=True).online.actor)
    assert cosine(1.0, 10, 20) == pytest.approx(0.5)
    state, after, _ = updated(1, 20)
    assert_close(after.online.actor, state.online.actor, atol=1e-7)
    assert not equal_bits(after.target, state.target)  # it still follows


def test_a_fresh_state_has_targets_that_are_copies_and_networks_as_in_pytorch(monkeypatch) -> None:
    state, asked = started(dmg, CONFIG, monkeypatch)
    kind = ("relu", "torch")
    assert asked == [([2, 5, 2], *kind), (2, [4, 5, 1], *kind), ([2, 5, 1], *kind)]
    assert equal_bits(state.target, state.online)
    assert int(state.step) == 0
    assert dmg.policies(state) == {"policy": state.online.actor}
