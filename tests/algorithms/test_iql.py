"""IQL: its losses, the order of its three steps, its learning rates, and whole updates against NumPy."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import scipy.stats

from pspo.algorithms import iql
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

# So sharp a temperature that the largest weight counts on these rows, and more steps than the moments have made.
CONFIG = made_config(iql, temperature=8.0, steps=40)
ROWS, KEY = made_transitions(), jax.random.PRNGKey(7)
FEATURES, NEXT_FEATURES, LOGGED = encoded(ROWS.obs), encoded(ROWS.next_obs), np.asarray(ROWS.action, np.float64)
UPDATE = compiled_update(iql, CONFIG)


def value_loss_by_hand(value: Any, q: np.ndarray, tau: float) -> float:
    error = q - net_by_hand(value, FEATURES)[:, 0]
    return (np.abs(tau - (error < 0)) * error**2).mean()


def actor_loss_by_hand(actor: Any, weight: np.ndarray) -> float:
    """Minus the weighted log-likelihood of a Gaussian that is not squashed, summed over the columns of an action."""
    mean, std = np.tanh(net_by_hand(actor.net, FEATURES)), np.exp(np.clip(actor.log_std, -5.0, 2.0))
    logged = np.clip(LOGGED, -1.0 + 1e-5, 1.0 - 1e-5)
    return -(weight * scipy.stats.norm.logpdf(logged, mean, std).sum(axis=1)).mean()


class ByHand(NamedTuple):
    actor: Any
    critic: Any
    value: Any
    target_critic: Any
    losses: dict[str, float]
    advantage: np.ndarray
    weight: np.ndarray


def update_by_hand(config: Any, state: Any) -> ByHand:
    """V from the target critics, the actor from the new V, Q from the new V, the average of the new Q."""
    moments = [adam_moments(opt) for opt in state.opts]
    rate = cosine(config.actor_lr, int(moments[0].count), config.steps)
    q = critics_by_hand(state.target_critic, FEATURES, LOGGED).min(axis=0)

    def of_value(net: Any) -> float:
        return value_loss_by_hand(net, q, config.expectile)

    value = adam_by_hand(state.value, slopes(of_value, state.value), moments[2], config.critic_lr)

    advantage = q - net_by_hand(value, FEATURES)[:, 0]
    weight = np.minimum(np.exp(config.temperature * advantage), config.weight_max)
    grads = slopes(lambda net: actor_loss_by_hand(net, weight), state.actor)
    actor = adam_by_hand(state.actor, grads, moments[0], rate)

    target = backed_up(ROWS, net_by_hand(value, NEXT_FEATURES)[:, 0], config.gamma)

    def of_critic(net: Any) -> float:
        return ((critics_by_hand(net, FEATURES, LOGGED) - target) ** 2).mean(axis=1).sum()

    critic = adam_by_hand(state.critic, slopes(of_critic, state.critic), moments[1], config.critic_lr)
    losses = {
        "value_loss": of_value(state.value),
        "actor_loss": actor_loss_by_hand(state.actor, weight),
        "critic_loss": of_critic(state.critic),
        "advantage": advantage.mean(),
        "q_min": q.min(),
        "q_mean": q.mean(),
        "q_max": q.max(),
    }
    average = average_by_hand(state.target_critic, critic, config.tau)
    return ByHand(actor, critic, value, average, losses, advantage, weight)


@cache
def updated(moments: int) -> tuple[Any, Any, dict[str, Any]]:
    """A state whose optimisers have made so many steps, and what one update makes of it; one program for all."""
    state = made_state(iql, CONFIG, moments=moments, seed=20)
    return state, *UPDATE(state, ROWS, KEY)


def test_the_defaults_are_the_papers() -> None:
    config = iql.Config()
    assert (config.expectile, config.temperature, config.weight_max) == (0.7, 3.0, 100.0)
    assert (config.critic_lr, config.actor_lr, config.tau) == (3e-4, 3e-4, 0.005)


def test_the_value_loss_is_the_expectile_loss_of_given_q() -> None:
    state, q = made_state(iql, CONFIG), np.linspace(-2.0, 2.0, len(LOGGED))
    for tau in (0.5, 0.7, 0.9):
        found = iql.value_loss(made_config(iql, expectile=tau), state.value, f32(FEATURES), f32(q))
        assert float(found) == pytest.approx(value_loss_by_hand(state.value, q, tau), rel=1e-5)


def test_the_actor_loss_weights_likelihoods_up_to_a_hundred() -> None:
    state, advantage = made_state(iql, CONFIG), np.linspace(-1.0, 1.0, len(LOGGED))
    weight = np.minimum(np.exp(8.0 * advantage), 100.0)
    assert (weight == 100.0).sum() == 2
    found = iql.actor_loss(CONFIG, state.actor, f32(FEATURES), ROWS.action, f32(advantage))
    assert float(found) == pytest.approx(actor_loss_by_hand(state.actor, weight), rel=1e-5)
    plain = iql.actor_loss(made_config(iql, temperature=0.0), state.actor, f32(FEATURES), ROWS.action, f32(advantage))
    assert float(plain) == pytest.approx(actor_loss_by_hand(state.actor, np.ones(len(LOGGED))), rel=1e-5)


def test_a_whole_update_is_v_then_actor_then_q_each_at_the_new_v() -> None:
    state, after, metrics = updated(3)
    expected = update_by_hand(CONFIG, state)
    assert_close(after.value, expected.value)
    assert_close(after.actor, expected.actor)
    assert_close(after.critic, expected.critic)
    assert_close(after.target_critic, expected.target_critic)
    for name, value in expected.losses.items():
        assert float(metrics[name]) == pytest.approx(value, rel=2e-5, abs=1e-6), name
    assert int(after.step) == 1
    assert 0 < (expected.weight == 100.0).sum() < len(LOGGED)  # some rows have the largest weight
    assert expected.weight.min() < 1.0


def test_the_update_would_show_another_order_or_another_critic() -> None:
    """The case has teeth: with the old V, or with the critics in the place of their averages, weights differ."""
    state, _, _ = updated(3)
    new = update_by_hand(CONFIG, state).advantage
    q = critics_by_hand(state.target_critic, FEATURES, LOGGED).min(axis=0)
    assert np.abs(q - net_by_hand(state.value, FEATURES)[:, 0] - new).max() > 0.01
    assert np.abs(critics_by_hand(state.critic, FEATURES, LOGGED).min(axis=0) - q).max() > 0.01
    assert set(critics_by_hand(state.target_critic, FEATURES, LOGGED).argmin(axis=0)) == {0, 1}


def test_the_actors_learning_rate_decays_along_a_cosine_to_zero() -> None:
    half, full = updated(20), updated(40)
    expected = update_by_hand(CONFIG, half[0])
    assert_close(half[1].actor, expected.actor)
    assert cosine(1.0, 20, 40) == pytest.approx(0.5)
    state, after, _ = full
    assert_close(after.actor, state.actor, atol=1e-7)
    for part in ("critic", "value"):  # their rates are constant
        assert_close(getattr(after, part), getattr(update_by_hand(CONFIG, state), part))
        assert not equal_bits(getattr(after, part), getattr(state, part))


def test_a_new_state_has_a_copied_target_and_a_standard_deviation_of_one(monkeypatch) -> None:
    state, asked = started(iql, CONFIG, monkeypatch)
    kind = ("relu", "orthogonal")
    assert asked == [([2, 5, 2], *kind), (2, [4, 5, 1], *kind), ([2, 5, 1], *kind)]
    assert equal_bits(state.target_critic, state.critic)
    np.testing.assert_array_equal(state.actor.log_std, np.zeros(2))
    assert int(state.step) == 0
    assert iql.policies(state) == {"policy": state.actor}
