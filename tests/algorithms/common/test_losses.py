"""The shared losses and targets against NumPy on fixed arrays, and what the papers say of their minimisers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from pspo.algorithms.common.losses import (
    advantage_weight,
    bellman_target,
    cloning_actor_loss,
    conservative_value,
    expectile_loss,
    proposals,
    q_values,
    quantile_huber_loss,
    smoothed_action,
    soft_actor_loss,
    td_loss,
    temperature_loss,
)
from pspo.nets.actors import TanhGaussian
from pspo.nets.mlp import MLP
from tests.algorithms.baseline_cases import critics_by_hand, made_mlp, net_by_hand

BATCH, ACT, FEATURES = 4, 2, 3


def some(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def made_critic() -> MLP:
    return made_mlp(np.random.default_rng(0), [FEATURES + ACT, 5, 1], (2,))


# Values and targets


def test_q_values_are_those_of_each_critic_and_leave_no_axis_of_one_behind() -> None:
    """A critic's output (batch, 1) against rewards (batch,) would broadcast to (batch, batch) in a loss."""
    critic, features = made_critic(), some(BATCH, FEATURES)
    for action in (some(BATCH, ACT), some(6, BATCH, ACT)):
        found = q_values(critic, jnp.asarray(features), jnp.asarray(action))
        assert found.shape == (2, *action.shape[:-1])
        np.testing.assert_allclose(found, critics_by_hand(critic, features, action), rtol=1e-4, atol=1e-4)


def test_nothing_follows_a_terminal_and_a_time_out_keeps_its_value() -> None:
    """Transitions: in the middle, terminal, terminal with garbage after it, time-out (which is no terminal)."""
    reward, terminal = jnp.array([1.0, 2.0, 3.0, 4.0]), jnp.array([False, True, True, False])
    for garbage in (1e30, -np.inf, np.inf):
        found = bellman_target(reward, terminal, jnp.array([10.0, 20.0, garbage, 40.0]), 0.9)
        np.testing.assert_allclose(found, [1.0 + 9.0, 2.0, 3.0, 4.0 + 36.0], rtol=1e-6)


def test_a_target_carries_no_gradient() -> None:
    grads = jax.grad(lambda r, v: bellman_target(r, jnp.array([False, True]), v, 0.9).sum(), argnums=(0, 1))(
        jnp.ones(2), jnp.ones(2)
    )
    assert all(np.all(np.asarray(grad) == 0.0) for grad in grads)


def test_the_td_loss_averages_over_the_batch_and_sums_over_critics() -> None:
    q, target, weight = some(2, BATCH), some(BATCH, seed=1), np.array([0.0, 1.0, 2.0, 0.5], np.float32)
    square = (q.astype(np.float64) - target) ** 2
    assert float(td_loss(q, target)) == pytest.approx(square[0].mean() + square[1].mean(), rel=1e-5)
    weighted = sum(weight[i] * square[c, i] for c in range(2) for i in range(BATCH)) / BATCH
    assert float(td_loss(q, target, weight)) == pytest.approx(weighted, rel=1e-5)


def test_a_target_with_an_axis_of_one_is_refused_and_not_broadcast() -> None:
    q, target = jnp.zeros((2, 5)), jnp.zeros((5, 1))
    with pytest.raises((TypeError, ValueError), match=r"broadcast|incompatible"):
        td_loss(q, target)
    with pytest.raises((TypeError, ValueError), match=r"broadcast|incompatible"):
        td_loss(q, target[:, 0], jnp.ones((5, 1)))


def test_smoothing_clips_the_noise_and_then_the_action() -> None:
    action, noise = jnp.array([0.0, 0.0, 0.0, 0.9, -0.9]), jnp.array([1.0, -5.0, 5.0, 2.0, -2.0])
    np.testing.assert_allclose(smoothed_action(action, noise, 0.2, 0.5), [0.2, -0.5, 0.5, 1.0, -1.0], rtol=1e-6)


# Expectiles, weights, quantiles


def minimiser(loss: Any, low: float, high: float) -> float:
    """Of a loss of one number, on a fine grid in one program."""
    grid = jnp.linspace(low, high, 2001)
    return float(grid[jnp.argmin(jax.jit(jax.vmap(loss))(grid))])


def test_the_expectile_loss_is_asymmetric_in_the_sign_of_the_error() -> None:
    error = np.array([-2.0, -0.5, 0.0, 0.5, 3.0], np.float32)
    by_hand = np.mean([(0.7 if e > 0 else 0.3) * e * e for e in error.tolist()])
    assert float(expectile_loss(error, 0.7)) == pytest.approx(by_hand, rel=1e-6)


def test_the_half_expectile_is_the_mean_and_a_higher_one_is_above_it() -> None:
    x = np.random.default_rng(0).exponential(size=500).astype(np.float32)
    assert minimiser(lambda m: expectile_loss(x - m, 0.5), 0.0, 4.0) == pytest.approx(x.mean(), abs=3e-3)
    upper = minimiser(lambda m: expectile_loss(x - m, 0.7), 0.0, 4.0)
    assert upper > x.mean() + 0.1
    above, below = np.maximum(x - upper, 0.0).mean(), np.maximum(upper - x, 0.0).mean()
    assert 0.7 * above == pytest.approx(0.3 * below, rel=0.02)  # what defines the expectile


def test_weights_are_exponentials_up_to_the_highest() -> None:
    advantage = np.array([-1.0, 0.0, 0.5, 1.6, 30.0], np.float32)
    by_hand = np.minimum(np.exp(3.0 * advantage.astype(np.float64)), 100.0)
    np.testing.assert_allclose(advantage_weight(advantage, 3.0, 100.0), by_hand, rtol=1e-5)
    assert by_hand[3] == 100.0


def test_weights_never_overflow_and_carry_no_gradient() -> None:
    extreme = jnp.array([1e3, 1e20, 3e38, -1e3, -3e38, jnp.inf])
    found, pull = jax.value_and_grad(lambda a: advantage_weight(a, 10.0, 100.0).sum())(extreme)
    assert float(found) == pytest.approx(400.0, rel=1e-5)
    np.testing.assert_array_equal(pull, 0.0)


def test_the_quantile_huber_loss_is_its_triple_mean() -> None:
    quantile, target, tau = 2.0 * some(3, 2), 2.0 * some(5, 2, seed=1), np.array([0.1, 0.5, 0.8], np.float32)
    total = 0.0
    for n in range(3):
        for m in range(5):
            for i in range(2):
                delta = float(target[m, i]) - float(quantile[n, i])
                huber = 0.5 * delta**2 if abs(delta) <= 1.0 else abs(delta) - 0.5
                total += abs(float(tau[n]) - (delta <= 0.0)) * huber
    assert np.abs(target[None] - quantile[:, None]).min() < 1.0 < np.abs(target[None] - quantile[:, None]).max()
    assert float(quantile_huber_loss(quantile, tau, target)) == pytest.approx(total / 30.0, rel=1e-5)


@pytest.mark.parametrize("tau", [0.1, 0.9])
def test_the_minimiser_of_the_quantile_huber_loss_is_near_the_quantile(tau: float) -> None:
    """Near, because the loss is quadratic within one of its kink: the targets are much further apart."""
    target = np.random.default_rng(0).exponential(scale=50.0, size=(500, 1)).astype(np.float32)
    levels = jnp.array([tau], jnp.float32)
    found = minimiser(lambda q: quantile_huber_loss(q[None, None], levels, target), 0.0, 200.0)
    assert np.quantile(target, tau - 0.015) < found < np.quantile(target, tau + 0.015)


# SAC's


def test_sacs_losses_are_their_formulas() -> None:
    log_prob, q, logged = (some(BATCH, seed=seed).astype(np.float64) for seed in range(3))
    assert float(soft_actor_loss(jnp.asarray(log_prob), jnp.asarray(q), 0.3)) == pytest.approx(
        np.mean(0.3 * log_prob - q), rel=1e-5
    )
    assert float(cloning_actor_loss(jnp.asarray(log_prob), jnp.asarray(logged), 0.3)) == pytest.approx(
        np.mean(0.3 * log_prob - logged), rel=1e-5
    )
    assert float(temperature_loss(jnp.float32(0.4), jnp.asarray(log_prob), ACT)) == pytest.approx(
        np.mean(-0.4 * (log_prob - ACT)), rel=1e-5
    )


def test_the_temperature_rises_where_the_policy_is_too_sure_and_moves_nothing_else() -> None:
    """The entropy's goal is -2 for two columns: a mean log density above 2 is too little entropy."""
    slope = jax.jit(jax.grad(temperature_loss, argnums=(0, 1)), static_argnums=2)
    for log_prob, sign in ((3.0, -1.0), (1.0, 1.0), (-3.0, 1.0)):
        of_alpha, of_policy = slope(jnp.float32(0.4), jnp.full(BATCH, log_prob), ACT)
        assert float(of_alpha) == pytest.approx(-(log_prob - 2.0))
        assert np.sign(of_alpha) == sign  # descent goes the other way
        np.testing.assert_array_equal(of_policy, 0.0)


# CQL's


def constant_policy(mean: tuple[float, float], log_std: tuple[float, float]) -> TanhGaussian:
    """The same Gaussian before the tanh in every state."""
    zero = MLP([jnp.zeros((FEATURES, 2 * ACT))], [jnp.asarray([*mean, *log_std], jnp.float32)], "relu")
    return TanhGaussian(zero)


POLICY = constant_policy((0.3, -0.4), (0.1, -0.1))  # broad: the inverse densities of a narrow one are wild


def test_the_conservative_value_is_a_log_sum_exp_over_samples() -> None:
    q, log_density = some(2, 6, BATCH), some(6, BATCH, seed=1)
    by_hand = np.log(np.exp(q.astype(np.float64) - log_density).sum(axis=1))
    found = conservative_value(q, log_density)
    assert found.shape == (2, BATCH)
    np.testing.assert_allclose(found, by_hand, rtol=1e-5, atol=1e-5)


def test_the_gap_ignores_a_constant_added_to_all_q() -> None:
    q, log_density, logged = some(2, 6, BATCH), some(6, BATCH, seed=1), some(2, BATCH, seed=2)
    gap = conservative_value(q, log_density) - logged
    for constant in (-50.0, 1.0, 50.0):
        shifted = conservative_value(q + constant, log_density) - (logged + constant)
        np.testing.assert_allclose(shifted, gap, rtol=1e-4, atol=5e-5)


def test_large_q_do_not_overflow() -> None:
    found = conservative_value(jnp.full((2, 3, 1), 1e4), jnp.zeros((3, 1)))
    np.testing.assert_allclose(found, 1e4 + np.log(3.0), rtol=1e-6)


def test_the_gap_of_a_constant_q_is_the_log_of_samples_times_action_volume() -> None:
    """Every inverse density has the expectation 2^A, whatever the proposal: not zero."""
    n, rng = 4000, np.random.default_rng(0)
    uniform = rng.uniform(-1, 1, size=(n, 1, ACT)).astype(np.float32)
    features = jnp.zeros((1, FEATURES))
    drawn = jax.jit(proposals)(POLICY, features, features, rng.normal(size=(2, n, 1, ACT)).astype(np.float32), uniform)
    gap = float(conservative_value(jnp.full((1, 3 * n, 1), 7.0), drawn[1])[0, 0]) - 7.0
    assert gap == pytest.approx(np.log(3 * n) + ACT * np.log(2.0), abs=0.03)
    for k in range(3):  # and each of the three kinds alone
        part = conservative_value(jnp.zeros((1, n, 1)), drawn[1][k * n : (k + 1) * n])
        assert float(part[0, 0]) == pytest.approx(np.log(n) + ACT * np.log(2.0), abs=0.06)


def test_proposals_are_uniform_ones_then_those_at_the_next_state_then_those_here() -> None:
    n = 3
    net = made_mlp(np.random.default_rng(4), [FEATURES, 5, 2 * ACT])
    policy = TanhGaussian(jax.tree.map(lambda leaf: 0.5 * leaf, net))
    features, next_features = some(BATCH, FEATURES, seed=5), some(BATCH, FEATURES, seed=6)
    noise, uniform = some(2, n, BATCH, ACT, seed=7), np.tanh(some(n, BATCH, ACT, seed=8))
    actions, log_density = jax.jit(proposals)(policy, features, next_features, noise, uniform)
    assert (actions.shape, log_density.shape) == ((3 * n, BATCH, ACT), (3 * n, BATCH))
    np.testing.assert_array_equal(actions[:n], uniform)
    np.testing.assert_allclose(log_density[:n], np.log(0.25), rtol=1e-6)
    for k, x in ((1, next_features), (2, features)):
        out = net_by_hand(policy.net, x.astype(np.float64))
        mean, std = out[:, :ACT], np.exp(np.clip(out[:, ACT:], -5.0, 2.0))
        u = mean + std * noise[k - 1]
        np.testing.assert_allclose(actions[k * n : (k + 1) * n], np.tanh(u), rtol=1e-4, atol=1e-5)
        density = (scipy.stats.norm.logpdf(u, mean, std) - np.log(1.0 - np.tanh(u) ** 2)).sum(axis=-1)
        np.testing.assert_allclose(log_density[k * n : (k + 1) * n], density, rtol=1e-4, atol=1e-3)


def test_proposals_carry_no_gradient_to_the_policy() -> None:
    """The penalty must not move the actor: neither through its actions nor through their densities."""
    critic, features = made_critic(), jnp.asarray(some(BATCH, FEATURES))
    noise, uniform = jnp.asarray(some(2, 3, BATCH, ACT)), jnp.zeros((3, BATCH, ACT))

    @jax.jit
    @jax.grad
    def slopes(nets: Any) -> Any:
        policy, critic = nets
        actions, log_density = proposals(policy, features, features, noise, uniform)
        return conservative_value(q_values(critic, features, actions), log_density).sum()

    of_policy, of_critic = slopes((POLICY, critic))
    assert all(np.all(np.asarray(leaf) == 0.0) for leaf in jax.tree.leaves(of_policy))
    assert all(np.any(np.asarray(leaf) != 0.0) for leaf in jax.tree.leaves(of_critic))
