"""PSPO learns: on a bandit whose best action is known it finds that action, and with its weights broken it does not."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.algorithms.pspo import algorithm as pspo
from pspo.algorithms.pspo import improvement as pspo_improvement
from pspo.algorithms.pspo.algorithm import Config
from pspo.core.config import build
from pspo.core.progress import silent
from pspo.data import Dataset
from pspo.data.batches import device_dataset
from pspo.dynamics.termination import KnownTermination
from pspo.nets.actors import act
from pspo.training.loop import compile_chunk
from tests.algorithms.contract_cases import usual
from tests.algorithms.tiny_task import tiny_dataset

BEST = 0.5
CONFIG = build(
    Config,
    {
        "gamma": 0.9,
        "alpha": 0.02,
        "active": 2,
        "next_pairs": 1,
        "action_samples": 8,
        "real_batch": 64,
        "synthetic_batch": 32,
        "width": 16,
        "depth": 1,
        "steps": 800,
        "chunk": 200,
        "critic_lr": 1e-2,
        "policy_lr": 5e-3,
        "tau": 0.1,
        "policy_tau": 0.1,
        "termination": "none",
        "model.pool": 2,
        "model.width": 16,
        "model.depth": 1,
        "model.steps": 400,
        "model.lr": 1e-2,
        "model.batch": 64,
        "model.evaluate_every": 200,
        "reference.components": 1,
        "reference.width": 8,
        "reference.depth": 1,
        "reference.steps": 200,
        "reference.lr": 1e-2,
        "reference.batch": 64,
        "reference.evaluate_every": 200,
    },
)


def bandit(rows: int = 2000) -> Dataset:
    """One random state, one action drawn uniformly from [-1, 1], one reward -(a - 0.5)^2, and the end."""
    rng = np.random.default_rng(0)
    obs, action = rng.uniform(-1, 1, size=(rows, 1)), rng.uniform(-1, 1, size=(rows, 1))
    return Dataset(
        obs=obs,
        action=action,
        reward=-((action[:, 0] - BEST) ** 2),
        next_obs=obs,
        terminal=np.ones(rows, bool),
        timeout=np.zeros(rows, bool),
        action_low=np.array([-1.0]),
        action_high=np.array([1.0]),
        name="bandit",
    )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    data = bandit()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PSPO_CACHE", str(tmp_path_factory.mktemp("cache")))
        setup, _ = pspo.prepare(CONFIG, data, 0, silent)
    every_step_ends = KnownTermination(lambda obs, action, next_obs: jnp.ones(next_obs.shape[:-1], bool))
    setup = setup._replace(arrays=setup.arrays._replace(terminated=every_step_ends))
    return SimpleNamespace(data=data, setup=setup)


def learned_actions(prepared) -> tuple[np.ndarray, dict[str, float]]:
    """The learned policy's actions by its mode over the states, and the last chunk's metrics."""
    setup, device_data = prepared.setup, device_dataset(prepared.data, prepared.setup.norm, CONFIG.gamma)
    state = jax.jit(lambda device_data, key: pspo.init(CONFIG, setup, device_data, key))(
        device_data, jax.random.PRNGKey(0)
    )
    chunk, metrics = compile_chunk(pspo, CONFIG, setup), {}
    for _ in range(CONFIG.steps // CONFIG.chunk):
        state, metrics = chunk(state, setup.arrays, device_data, length=CONFIG.chunk)
    states = np.linspace(-0.9, 0.9, 7, dtype=np.float32)[:, None]
    actions = jax.jit(lambda policy, obs: act(policy, setup.norm, obs))(pspo.policies(state)["policy"], states)
    return np.asarray(actions)[:, 0], {name: float(value) for name, value in metrics.items()}


def test_what_is_prepared_is_reported_and_reused_from_the_cache() -> None:
    """For another run on the same data: models have their own seed."""
    case = usual("pspo")
    setup, info = pspo.prepare(case.config, tiny_dataset(), 1, silent)
    assert info["termination"] == "none"
    assert info["pool"]["cached"]
    assert info["reference"]["cached"]
    for a, b in zip(jax.tree.leaves(case.setup.arrays), jax.tree.leaves(setup.arrays), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow  # the contract suite holds PSPO to another task in every run
def test_the_learned_mode_lands_on_the_best_action(prepared) -> None:
    actions, metrics = learned_actions(prepared)
    np.testing.assert_allclose(actions, BEST, atol=0.15)
    assert all(np.isfinite(value) for value in metrics.values())
    assert metrics["kl_mu"] > 0.3  # it has left the behaviour policy


@pytest.mark.slow
def test_with_uniform_improvement_weights_it_misses(prepared, monkeypatch) -> None:
    def uniform(q, *_):
        return jnp.full_like(q, -np.log(q.shape[0]))

    monkeypatch.setattr(pspo_improvement, "improvement_log_weights", uniform)
    actions, _ = learned_actions(prepared)
    assert np.all(np.abs(actions - BEST) > 0.15)
