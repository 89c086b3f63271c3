"""COMBO: the gap between synthetic states and real transitions, whole updates against NumPy, and the penalty."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from pspo.algorithms import combo, mopo
from pspo.algorithms.common.model_based import Arrays, Setup
from pspo.algorithms.common.sac import EncodedBatch, Params
from pspo.algorithms.pspo import algorithm as pspo
from pspo.algorithms.registry import preset
from pspo.core.config import build
from pspo.core.errors import UserError
from pspo.data.batches import Transitions
from pspo.dynamics.buffer import Buffer, mixed
from pspo.dynamics.termination import NeverTerminates
from tests.algorithms.baseline_cases import (
    ACT,
    adam_by_hand,
    adam_moments,
    assert_close,
    average_by_hand,
    backed_up,
    critics_by_hand,
    encoded,
    made_config,
    made_data,
    made_setup,
    made_state,
    made_transitions,
    net_by_hand,
    slopes,
)
from tests.arrays import equal_bits, f32
from tests.dynamics.dynamics_cases import made_ensemble, plain_norm, unlimited

TINY: dict[str, Any] = {"samples": 3, "starts": 4, "rollout_horizon": 1, "retain": 2, "real_ratio": 0.4}
MODEL = made_config(combo, conservatism=2.0, **TINY)
MIX = made_config(combo, conservatism=2.0, penalised="mix", **TINY)
NONE = made_config(combo, conservatism=0.0, **TINY)
ROWS, KEY, REAL = made_transitions(), jax.random.PRNGKey(7), 3  # 0.4 of 8, rounded down
UPDATES = {config: jax.jit(partial(combo.update, config, made_setup(), {})) for config in (MODEL, MIX, NONE)}


def made_buffer() -> Buffer:
    """Six transitions that were written, far from the real ones, and two that never were."""
    far = made_transitions(8, seed=9)
    far = far._replace(obs=far.obs + 2.0, next_obs=far.next_obs + 2.0)
    junk = Transitions(*(part.at[6:].set(True if part.dtype == bool else jnp.nan) for part in far))
    return Buffer(junk, jnp.int32(6), jnp.int32(6))


def state_of(config: Any) -> Any:
    return made_state(combo, config)._replace(buffer=made_buffer())


# By hand


def sample_by_hand(actor: Any, features: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, log_std = np.split(net_by_hand(actor.net, features), 2, axis=-1)
    std = np.exp(np.clip(log_std, -20.0, 2.0))
    u = mean + std * noise
    return np.tanh(u), (scipy.stats.norm.logpdf(u, mean, std) - np.log(1.0 - np.tanh(u) ** 2)).sum(axis=-1)


def normal(key: Any, *shape: int) -> np.ndarray:
    return np.asarray(jax.random.normal(key, shape), np.float64)


class Setting:
    """What is fixed within an iteration: the mixture, y and the sampled actions."""

    def __init__(self, config: Any, state: Any) -> None:
        mix_key, sample_key, step_key = jax.random.split(KEY, 3)
        self.rows = mixed(state.buffer, ROWS, config.real_ratio, mix_key)
        self.now, after = encoded(self.rows.obs), encoded(self.rows.next_obs)
        self.action = np.asarray(self.rows.action, np.float64)
        next_key, actor_key = jax.random.split(step_key)
        self.noise = normal(actor_key, 8, ACT)
        actor = state.agent.params.actor
        next_action, _ = sample_by_hand(actor, after, normal(next_key, 8, ACT))
        value = critics_by_hand(state.agent.target_critic, after, next_action).min(axis=0)
        self.y = backed_up(self.rows, value, config.gamma)
        self.rho = slice(REAL if config.penalised == "model" else 0, 8)
        count = 8 - self.rho.start
        k_normal, k_uniform = jax.random.split(sample_key)
        uniform = np.asarray(jax.random.uniform(k_uniform, (3, count, ACT), minval=-1.0, maxval=1.0), np.float64)
        noise = normal(k_normal, 2, 3, count, ACT)
        drawn = [sample_by_hand(actor, x[self.rho], e) for x, e in zip((after, self.now), noise, strict=True)]
        drawn.insert(0, (uniform, np.full((3, count), ACT * np.log(0.5))))
        self.actions, self.log_density = (np.concatenate(part) for part in zip(*drawn, strict=True))

    def gaps(self, critic: Any) -> np.ndarray:
        """One log-sum-exp over nine actions at each state of rho; less Q of the real transitions, and of no other."""
        q = critics_by_hand(critic, self.now[self.rho], self.actions)
        pushed = scipy.special.logsumexp(q - self.log_density, axis=1).mean(axis=1)
        return pushed - critics_by_hand(critic, self.now[:REAL], self.action[:REAL]).mean(axis=1)

    def td(self, critic: Any) -> float:
        return ((critics_by_hand(critic, self.now, self.action) - self.y) ** 2).mean(axis=1).sum()


@cache
def updated(config: Any) -> tuple[Any, Any, dict[str, Any]]:
    state = state_of(config)
    return state, *UPDATES[config](state, ROWS, KEY)


@pytest.mark.parametrize("config", [MODEL, MIX, NONE], ids=["synthetic", "all", "no penalty"])
def test_a_whole_update_is_that_of_its_losses_each_at_the_old_parameters(config: Any) -> None:
    state, after, metrics = updated(config)
    old, fixed = state.agent.params, Setting(config, state)
    alpha = np.exp(float(old.log_alpha))

    def of_actor(actor: Any) -> float:
        action, log_prob = sample_by_hand(actor, fixed.now, fixed.noise)
        return (alpha * log_prob - critics_by_hand(old.critic, fixed.now, action).min(axis=0)).mean()

    log_prob = sample_by_hand(old.actor, fixed.now, fixed.noise)[1]
    losses = {
        "actor": of_actor,
        "critic": lambda critic: fixed.td(critic) + config.conservatism * fixed.gaps(critic).sum(),
        "log_alpha": lambda log_alpha: -float(log_alpha) * (log_prob.mean() - ACT),
    }
    new = {}
    for name, loss in losses.items():
        moments, part = adam_moments(state.agent.opt.inner_states[name]), getattr(old, name)
        moments = moments._replace(mu=getattr(moments.mu, name), nu=getattr(moments.nu, name))
        rate = config.critic_lr if name == "critic" else config.actor_lr
        new[name] = adam_by_hand(part, slopes(loss, part), moments, rate)
    assert_close(after.agent.params, Params(**new), atol=1e-5)
    assert_close(after.agent.target_critic, average_by_hand(state.agent.target_critic, new["critic"], 0.1), atol=1e-5)
    expected = {
        "critic_loss": fixed.td(old.critic),
        "conservative_gap": fixed.gaps(old.critic).mean(),
        "actor_loss": of_actor(old.actor),
        "entropy": -log_prob.mean(),
    }
    for name, value in expected.items():
        assert float(metrics[name]) == pytest.approx(value, rel=1e-4, abs=1e-5), name
    assert equal_bits(after.buffer, state.buffer)
    assert int(after.step) == 1


def test_the_penalty_lowers_q_in_rollouts_and_raises_it_on_the_dataset() -> None:
    """The same state, batches and keys, with the penalty and without it."""
    q = {}
    synthetic = encoded(made_buffer().transitions.obs[:6])
    for config in (MODEL, NONE):
        state = state_of(config)
        start = state.agent.params.actor
        for step in range(15):
            state, _ = UPDATES[config](state, ROWS, jax.random.fold_in(KEY, step))
        critic, noise = state.agent.params.critic, np.random.default_rng(0).normal(size=(50, 6, ACT))
        # The policy that both begin with, and the one that each has now.
        drawn = [sample_by_hand(actor, synthetic, noise)[0] for actor in (start, state.agent.params.actor)]
        real = critics_by_hand(critic, encoded(ROWS.obs)[:REAL], np.asarray(ROWS.action, np.float64)[:REAL]).mean()
        q[config] = (*(critics_by_hand(critic, synthetic, action).mean() for action in drawn), real)
    assert q[MODEL][0] < q[NONE][0] - 0.1
    assert q[MODEL][1] < q[NONE][1] - 0.1
    assert q[MODEL][2] > q[NONE][2] + 0.1


@pytest.mark.parametrize("config", [MODEL, MIX], ids=["synthetic", "all"])
def test_the_gaps_gradient_reaches_q_at_sampled_and_at_real_actions_alone(config: Any) -> None:
    state = state_of(config)
    fixed, critic = Setting(config, state), state.agent.params.critic
    seen = EncodedBatch(fixed.rows, f32(fixed.now), f32(encoded(fixed.rows.next_obs)))

    @jax.jit
    def compute(critic: Any, q: Any) -> Any:
        sampled = combo.sampled_actions(config, state.agent.params.actor, seen, jax.random.split(KEY, 3)[1])
        gap = lambda critic, q: combo.gap(config, critic, seen.features, q, sampled)  # noqa: E731
        return gap(critic, q), sampled, jax.grad(lambda *x: gap(*x).sum(), argnums=(0, 1))(critic, q)

    q = critics_by_hand(critic, fixed.now, fixed.action)
    found, sampled, (of_critic, of_q) = compute(critic, f32(q))
    assert sampled[0].shape == (9, 8 - fixed.rho.start, ACT)
    np.testing.assert_allclose(sampled[0], fixed.actions, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found, fixed.gaps(critic), rtol=1e-4, atol=1e-5)
    wanted = np.zeros((2, 8))
    wanted[:, :REAL] = -1.0 / REAL
    np.testing.assert_allclose(of_q, wanted, rtol=1e-6)

    def pushed(critic: Any) -> float:
        at = critics_by_hand(critic, fixed.now[fixed.rho], fixed.actions)
        return scipy.special.logsumexp(at - fixed.log_density, axis=1).mean(axis=1).sum()

    assert_close(of_critic, slopes(pushed, critic), atol=1e-4)
    assert max(float(jnp.abs(leaf).max()) for leaf in of_critic.weights) > 0.1


def test_the_target_has_no_entropy_in_it() -> None:
    """One temperature or another: the critics go the same way, and only the actor differs."""
    state, after, _ = updated(MODEL)
    agent = state.agent
    warm = agent._replace(params=agent.params._replace(log_alpha=agent.params.log_alpha + 1.0))
    other, _ = UPDATES[MODEL](state._replace(agent=warm), ROWS, KEY)
    assert equal_bits(other.agent.params.critic, after.agent.params.critic)
    assert not equal_bits(other.agent.params.actor, after.agent.params.actor)


@pytest.mark.parametrize("uniform", [False, True])
def test_rollouts_follow_the_policy_or_random_actions(uniform: bool) -> None:
    config = made_config(combo, **(TINY | {"starts": 400}), uniform_rollouts=uniform)
    norm = plain_norm(action_dim=2)
    setup = Setup(
        Arrays(made_ensemble(inputs=4), jnp.arange(2), NeverTerminates()), norm, norm, unlimited(norm.obs_mean.size)
    )
    state = combo.init(config, setup, made_data(), KEY)
    actor = state.agent.params.actor
    bias = actor.net.biases[-1].at[2:].set(-5.0)  # a policy that is sure of itself
    sure = jax.tree.map(lambda leaf: bias if leaf is actor.net.biases[-1] else leaf, actor)
    state = state._replace(agent=state.agent._replace(params=state.agent.params._replace(actor=sure)))
    after, _, metrics = jax.jit(lambda s: combo.begin_chunk(config, setup, made_data(), s))(state)
    assert int(after.buffer.size) == 400
    assert float(metrics["rollout_alive"]) == 1.0
    rows = after.buffer.transitions
    away = np.abs(np.asarray(rows.action[:400] - sure.unit_action(norm.encode(rows.obs[:400]))))
    if not uniform:
        assert away.max() < 0.3
        return
    drawn = np.asarray(rows.action[:400])
    assert np.abs(drawn).max() <= 1.0
    assert drawn.mean() == pytest.approx(0.0, abs=0.1)
    assert drawn.std() == pytest.approx(3.0**-0.5, abs=0.05)
    assert not equal_bits(after.key, state.key)


@pytest.mark.parametrize("ratio", [0.0, 0.001, 1.0])
def test_a_batch_without_real_or_without_synthetic_transitions_is_refused(ratio: float) -> None:
    with pytest.raises(UserError, match=r"real_ratio=.* some of each"):
        build(combo.Config, {"real_ratio": ratio})


def test_the_defaults() -> None:
    config = combo.Config()
    assert (config.real_ratio, config.samples, config.penalised, config.uniform_rollouts) == (0.5, 10, "model", False)
    assert (config.critic_lr, config.actor_lr, config.retain, config.starts) == (3e-4, 1e-4, 5, 50_000)


@pytest.mark.parametrize("task", ["liquidation", "hopper", "walker2d", "halfcheetah"])
def test_on_a_laptop_it_shares_the_models_of_mopo_and_outside_mujoco_of_pspo(task: str) -> None:
    """The same model settings and discount, which the cache knows a pool by."""
    ours, mopos, pspos = (
        (config.model, config.gamma)
        for config in (
            build(a.Config, preset(n, "laptop", task)) for n, a in (("combo", combo), ("mopo", mopo), ("pspo", pspo))
        )
    )
    assert ours == mopos
    assert (ours == pspos) == (task == "liquidation")


@pytest.mark.parametrize("name", ["laptop", "paper"])
def test_horizon_and_conservatism_follow_the_dataset(name: str) -> None:
    found = build(combo.Config, preset("combo", name, "walker2d", "walker2d-medium-v2"))
    assert (found.rollout_horizon, found.conservatism) == (1, 5.0)
    found = build(combo.Config, preset("combo", name, "hopper", "hopper-medium-replay-v2"))
    assert (found.rollout_horizon, found.conservatism) == (5, 0.5)
