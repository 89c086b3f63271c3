"""The improvement step along its own gradient, against the objective of Eq. (9) written out in NumPy."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from pspo.algorithms.pspo import rollout
from pspo.algorithms.pspo.improvement import Policies, improvement
from pspo.algorithms.pspo.rollout import rollout_action
from pspo.core.errors import UserError
from tests.algorithms.pspo.pspo_cases import (
    COMPONENTS,
    constraints,
    critics_by_hand,
    made_config,
    made_policy,
    made_setup,
    mlp_by_hand,
    start,
)
from tests.arrays import f32

KEY, LAMBDA = jax.random.PRNGKey(3), 0.2
NETS = Policies(made_policy(1), made_policy(2), made_policy(4))
FEATURES = np.random.default_rng(0).normal(size=(7, 2))
CRITIC = start().target_critic
CONFIG = made_config(improvement="gradient", action_samples=4, alpha=0.3)


def mixture_by_hand(policy) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, means and standard deviations, (batch, components) each: actions have one column."""
    out = mlp_by_hand(policy.net, FEATURES)
    weight = np.exp(out[:, :COMPONENTS])
    mean = 3.0 * np.tanh(out[:, COMPONENTS : 2 * COMPONENTS] / 3.0)
    std = np.exp(-2.0 + 3.0 * np.tanh(out[:, 2 * COMPONENTS :] / 3.0))
    return weight / weight.sum(axis=1, keepdims=True), mean, std


def kl_by_hand(p, q) -> np.ndarray:
    (w, m, s), (v, n, t) = p, q
    each = np.log(t / s) + (s**2 + (m - n) ** 2) / (2 * t**2) - 0.5
    return (w * (np.log(w / v) + each)).sum(axis=1)


def by_hand(policy, alpha, noise=1.0) -> SimpleNamespace:
    """`alpha` is one number or one per state; without noise, actions are the means of the components."""
    half = noise * np.asarray(jax.random.normal(KEY, (2, 1, len(FEATURES), COMPONENTS, 1)), np.float64)[:, 0, :, :, 0]
    weight, mean, std = mixture = mixture_by_hand(policy)
    x = mean + std * np.concatenate([half, -half])
    action = np.clip(1.02 * np.tanh(x), -1.0, 1.0)[..., None]
    q = critics_by_hand(CRITIC, FEATURES[:, None, :], action).mean(axis=0)
    expected = (weight * q.mean(axis=0)).sum(axis=1)
    kl_mu, kl_target = (kl_by_hand(mixture, mixture_by_hand(net)) for net in (NETS.mu, NETS.target))
    loss = (alpha * kl_mu + LAMBDA * kl_target - expected).mean()
    return SimpleNamespace(loss=loss, expected=expected, kl_mu=kl_mu, kl_target=kl_target, q=q)


def step(config):
    return jax.jit(lambda key: improvement(config, NETS, CRITIC, f32(FEATURES), constraints(config, LAMBDA), key))(KEY)


def slope_by_hand(alpha, direction) -> float:
    def moved(size):
        policy = jax.tree.map(lambda a, d: np.asarray(a, np.float64) + size * d, NETS.policy, direction)
        return by_hand(policy, alpha).loss

    return (moved(1e-5) - moved(-1e-5)) / 2e-5


def directions(count: int):
    rng = np.random.default_rng(5)
    for _ in range(count):
        yield jax.tree.map(lambda a: rng.normal(size=a.shape), NETS.policy)


def test_loss_value_and_divergences_are_those_of_the_objective() -> None:
    found, expected = step(CONFIG), by_hand(NETS.policy, 0.3)
    assert float(found.loss) == pytest.approx(expected.loss, rel=1e-4)
    np.testing.assert_allclose(found.soft, expected.expected - 0.3 * expected.kl_mu, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found.kl_states, expected.kl_mu, rtol=1e-3)
    assert float(found.kl_mu) == pytest.approx(expected.kl_mu.mean(), rel=1e-4)
    assert float(found.kl_target) == pytest.approx(expected.kl_target.mean(), rel=1e-4)
    np.testing.assert_allclose(found.q, expected.q, rtol=1e-3, atol=1e-4)


def test_the_value_of_the_mode_has_no_noise() -> None:
    config = made_config(improvement="gradient", value_of="mode", action_samples=4, alpha=0.3)
    found, expected = step(config), by_hand(NETS.policy, 0.3, noise=0.0)
    assert float(found.loss) == pytest.approx(expected.loss, rel=1e-4)
    np.testing.assert_allclose(found.q[0], expected.q[0], rtol=1e-3, atol=1e-5)
    assert np.abs(expected.q - by_hand(NETS.policy, 0.3).q).max() > 1e-3
    np.testing.assert_allclose(found.soft, expected.expected - 0.3 * expected.kl_mu, rtol=1e-3, atol=1e-4)


def test_the_value_of_the_mode_is_refused_with_weights() -> None:
    with pytest.raises(UserError, match="improvement=gradient"):
        made_config(value_of="mode")


def test_rollouts_by_the_mode_have_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "REFERENCE_ROLLOUTS", 0.0)
    obs = f32(np.random.default_rng(1).normal(size=(9, 2)))
    setup, state = made_setup(), start()
    modes = np.asarray(state.params.policy.unit_action(setup.norm.encode(obs)))
    for fraction, least, most in ((0.0, 0.0, 0.0), (0.5, 0.1, 0.9), (1.0, 1.0, 1.0)):
        config = made_config(mode_rollouts=fraction)
        action = rollout_action(config, setup, state, obs, KEY)
        assert least <= np.isclose(action, modes, atol=1e-6).mean() <= most


def test_the_step_goes_along_the_gradient() -> None:
    grads = step(CONFIG).grads
    for direction in directions(5):
        slope = sum(jax.tree.leaves(jax.tree.map(lambda g, d: float((np.asarray(g) * d).sum()), grads, direction)))
        assert slope == pytest.approx(slope_by_hand(0.3, direction), rel=1e-2, abs=1e-3)


def test_a_limit_raises_the_slope_and_leaves_the_value() -> None:
    config = made_config(improvement="gradient", action_samples=4, alpha=0.3, kl_limit=25.0)
    free, limited = step(CONFIG), step(config)
    kl = by_hand(NETS.policy, 0.3).kl_mu
    assert kl.min() < 25.0 < kl.max()
    alpha = 0.3 * np.exp(np.minimum(4.0 * np.maximum(kl / 25.0 - 1.0, 0.0), 12.0))
    np.testing.assert_allclose(limited.soft, free.soft, rtol=1e-5)
    for direction in directions(3):
        slope = sum(
            jax.tree.leaves(jax.tree.map(lambda g, d: float((np.asarray(g) * d).sum()), limited.grads, direction))
        )
        assert slope == pytest.approx(slope_by_hand(alpha, direction), rel=1e-2)


def test_without_the_reference_term_mu_has_no_part() -> None:
    config = made_config(improvement="gradient", action_samples=4, reference_term=False)
    found, expected = step(config), by_hand(NETS.policy, 0.0)
    assert float(found.loss) == pytest.approx(expected.loss, rel=1e-4)
    np.testing.assert_allclose(found.soft, expected.expected, rtol=1e-3, atol=1e-4)
