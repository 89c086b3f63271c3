"""BC: the negative log-likelihood of a Gaussian mixture before the squash, and whole updates against SciPy."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
import scipy.special
import scipy.stats

from pspo.algorithms import bc
from tests.algorithms.baseline_cases import (
    ACT,
    adam_by_hand,
    adam_moments,
    assert_close,
    compiled_update,
    cosine,
    encoded,
    made_config,
    made_state,
    made_transitions,
    net_by_hand,
    slopes,
)

COMPONENTS = 2
CONFIG, ROWS = made_config(bc, components=COMPONENTS), made_transitions()
UPDATE = compiled_update(bc, CONFIG)


def loss_by_hand(policy: Any) -> float:
    """Logits, means (held inside 3) and log standard deviations (between -5 and 1) of each component in turn."""
    out = net_by_hand(policy.net, encoded(ROWS.obs))
    x = np.arctanh(np.asarray(ROWS.action, np.float64) / 1.02)
    logits, rest = out[:, :COMPONENTS], out[:, COMPONENTS:].reshape(len(x), 2, COMPONENTS, ACT)
    mean, std = 3.0 * np.tanh(rest[:, 0] / 3.0), np.exp(-2.0 + 3.0 * np.tanh(rest[:, 1] / 3.0))
    weight = scipy.special.softmax(logits, axis=1)
    density = np.zeros(len(x))
    for k in range(COMPONENTS):
        density += weight[:, k] * scipy.stats.norm.pdf(x, mean[:, k], std[:, k]).prod(axis=1)
    return -np.log(density).mean()


@cache
def updated(moments: int) -> tuple[Any, Any, dict[str, Any]]:
    state = made_state(bc, CONFIG, moments=moments)
    return state, *UPDATE(state, ROWS, jax.random.PRNGKey(0))


@pytest.mark.parametrize("moments", [3, 10])
def test_an_update_is_a_step_of_adam_down_the_mixtures_negative_log_likelihood(moments: int) -> None:
    state, after, metrics = updated(moments)
    assert float(metrics["policy_loss"]) == pytest.approx(loss_by_hand(state.policy), rel=1e-5)
    grads = slopes(loss_by_hand, state.policy)
    lr = cosine(CONFIG.lr, moments, CONFIG.steps)
    assert_close(after.policy, adam_by_hand(state.policy, grads, adam_moments(state.opt), lr), atol=1e-5)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(grads)) > 0.1  # it is not the moments alone that move
    assert int(after.step) == 1


def test_the_learning_rate_ends_at_zero() -> None:
    state, after, _ = updated(CONFIG.steps)
    assert_close(after.policy, state.policy, atol=1e-7)


def test_many_updates_raise_the_likelihood() -> None:
    state, _, first = updated(3)
    for _ in range(10):
        state, metrics = UPDATE(state, ROWS, jax.random.PRNGKey(0))
    assert float(metrics["policy_loss"]) < float(first["policy_loss"]) - 0.3


def test_the_deployed_policy_is_the_mixture_of_the_shape_asked_for() -> None:
    state = made_state(bc, CONFIG)
    assert bc.policies(state) == {"policy": state.policy}
    assert (state.policy.components, state.policy.action_dim) == (COMPONENTS, ACT)
    assert [w.shape for w in state.policy.net.weights] == [(2, 5), (5, COMPONENTS * (1 + 2 * ACT))]
    assert bc.Config().components == 1
