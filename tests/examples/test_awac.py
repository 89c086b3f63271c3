"""The example algorithm: one update against NumPy, and the contract suite of the built-in algorithms."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
import scipy.special
import scipy.stats

from examples import awac
from tests.algorithms import contract_cases, test_contract
from tests.algorithms.baseline_cases import (
    ACT,
    adam_by_hand,
    adam_moments,
    assert_close,
    average_by_hand,
    backed_up,
    compiled_update,
    critics_by_hand,
    encoded,
    made_config,
    made_state,
    made_transitions,
    net_by_hand,
    slopes,
)
from tests.examples.example_cases import ROOT, registered

__all__ = ["registered"]

COMPONENTS, LAMBDA, MOST = 2, 0.5, 2.0
# A limit so low that some weights of this batch reach it.
CONFIG = made_config(awac, components=COMPONENTS, temperature=LAMBDA, weight_max=MOST, samples=3)
ROWS, KEY = made_transitions(), jax.random.PRNGKey(7)


@cache
def updated() -> tuple[Any, Any, dict[str, Any]]:
    state = made_state(awac, CONFIG)
    return state, *compiled_update(awac, CONFIG)(state, ROWS, KEY)


def value_by_hand(actor: Any, critic: Any, obs: Any, key: Any) -> np.ndarray:
    """Mean over samples of the smaller critic. Sampling itself is tested with the mixture."""
    x = np.asarray(actor(np.asarray(encoded(obs), np.float32)).sample(key, 3), np.float64)
    action = np.clip(1.02 * np.tanh(x), -1.0, 1.0)
    return critics_by_hand(critic, encoded(obs), action).min(axis=0).mean(axis=0)


def likelihood_by_hand(actor: Any) -> np.ndarray:
    """Log density of the dataset's actions before the squash."""
    out = net_by_hand(actor.net, encoded(ROWS.obs))
    x = np.arctanh(np.asarray(ROWS.action, np.float64) / 1.02)
    rest = out[:, COMPONENTS:].reshape(len(x), 2, COMPONENTS, ACT)
    mean, std = 3.0 * np.tanh(rest[:, 0] / 3.0), np.exp(-2.0 + 3.0 * np.tanh(rest[:, 1] / 3.0))
    each = scipy.stats.norm.pdf(x[:, None], mean, std).prod(axis=2)
    return np.log((scipy.special.softmax(out[:, :COMPONENTS], axis=1) * each).sum(axis=1))


def advantage_by_hand() -> np.ndarray:
    """Advantage of the dataset's actions over the policy's, by the critics after their step."""
    before, after, _ = updated()
    q = critics_by_hand(after.critic, encoded(ROWS.obs), np.asarray(ROWS.action, np.float64)).min(axis=0)
    return q - value_by_hand(before.actor, after.critic, ROWS.obs, jax.random.split(KEY)[1])


def test_critics_step_towards_the_value_of_the_policy() -> None:
    before, after, metrics = updated()
    following = value_by_hand(before.actor, before.target_critic, ROWS.next_obs, jax.random.split(KEY)[0])
    target = backed_up(ROWS, following, CONFIG.gamma)

    def loss(critic: Any) -> float:
        q = critics_by_hand(critic, encoded(ROWS.obs), np.asarray(ROWS.action, np.float64))
        return float(((q - target) ** 2).mean(axis=-1).sum())

    assert float(metrics["critic_loss"]) == pytest.approx(loss(before.critic), rel=1e-5)
    expected = adam_by_hand(before.critic, slopes(loss, before.critic), adam_moments(before.opts[1]), CONFIG.lr)
    assert_close(after.critic, expected, atol=1e-5)
    assert_close(after.target_critic, average_by_hand(before.target_critic, after.critic, CONFIG.tau))


def test_the_actor_weights_imitation_by_advantage() -> None:
    before, after, metrics = updated()
    advantage = advantage_by_hand()
    weight = np.minimum(np.exp(advantage / LAMBDA), MOST)
    assert 0 < (weight == MOST).sum() < len(weight)

    def loss(actor: Any) -> float:
        return float(-(weight * likelihood_by_hand(actor)).mean())

    assert float(metrics["advantage"]) == pytest.approx(advantage.mean(), rel=1e-4)
    assert float(metrics["actor_loss"]) == pytest.approx(loss(before.actor), rel=1e-4)
    expected = adam_by_hand(before.actor, slopes(loss, before.actor), adam_moments(before.opts[0]), CONFIG.lr)
    assert_close(after.actor, expected, atol=1e-4)


LEARNER = contract_cases.Learner({"lr": 3e-3, "tau": 0.05}, {"temperature": 1e6}, 1.2, chunks=30)
# Diagnostics are optional, and awac has none.
CHECKS = {
    name: check
    for name, check in vars(test_contract).items()
    if name.startswith("test_") and "algo" in inspect.signature(check).parameters and "diagnostics" not in name
}
COMPILE_ONCE_MORE = ("side_by_side", "extreme", "without_its_key_term")  # slow, as for most built-in algorithms


def marked(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.slow) if any(word in name for word in COMPILE_ONCE_MORE) else name


@pytest.mark.parametrize("name", [marked(name) for name in CHECKS])
@pytest.mark.usefixtures("registered")
def test_awac_passes_the_contract_suite(name: str, tmp_path, monkeypatch) -> None:
    """Every test of the built-in algorithms; it learns, and does not when all actions have the same weight."""
    monkeypatch.setitem(contract_cases.LEARNERS, "awac", LEARNER)
    check = CHECKS[name]
    check("awac", **({"tmp_path": tmp_path} if "tmp_path" in inspect.signature(check).parameters else {}))


def test_the_contract_suite_was_found() -> None:
    assert len(CHECKS) >= 8
    assert {"test_it_learns_the_tiny_task", "test_without_its_key_term_it_does_not"} <= set(CHECKS)


def test_awac_has_at_most_100_lines() -> None:
    assert len((ROOT / "examples" / "awac.py").read_text().splitlines()) <= 100
