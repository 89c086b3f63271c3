"""SAC: every formula against NumPy, updates that are equal bit for bit, and a task that it solves."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from pspo.algorithms.common import sac as soft
from pspo.algorithms.common.losses import q_values, td_loss, temperature_loss
from pspo.collecting import sac
from pspo.data.batches import Transitions

OBS, ACTION, BATCH = 4, 2, 6
CONFIG = sac.Config(width=8, batch=BATCH, lr=1e-3, gamma=0.9, alpha=0.3)


def rows(seed: int = 0, *lead: int) -> Transitions:
    rng = np.random.default_rng(seed)
    shape = (*lead, BATCH)

    def normal(*last: int):
        return jnp.asarray(rng.normal(size=(*shape, *last)), jnp.float32)

    terminal = jnp.asarray(np.broadcast_to(np.arange(BATCH) % 3 == 0, shape))
    return Transitions(normal(OBS), jnp.tanh(normal(ACTION)), normal(), normal(OBS), terminal)


@pytest.fixture(scope="module")
def state() -> sac.State:
    state = sac.init(CONFIG, OBS, ACTION, jax.random.PRNGKey(0))
    other = sac.init(CONFIG, OBS, ACTION, jax.random.PRNGKey(1))
    return state._replace(target_critic=other.params.critic)  # a target that is not the critic itself


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(BATCH, ACTION)).astype(np.float32)


# The same network and densities in NumPy, in double precision.


def network(net, x: np.ndarray, member: int | None = None) -> np.ndarray:
    pick = (lambda a: np.asarray(a, np.float64)) if member is None else (lambda a: np.asarray(a[member], np.float64))
    *hidden, last = zip(net.weights, net.biases, strict=True)
    for w, b in hidden:
        x = np.maximum(x @ pick(w) + pick(b), 0)
    return x @ pick(last[0]) + pick(last[1])


def act(actor, obs: np.ndarray, eps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    out = network(actor.net, np.asarray(obs, np.float64))
    mean, std = out[:, :ACTION], np.exp(np.clip(out[:, ACTION:], -20, 2))
    u = mean + std * eps
    # Change of variables: the density of tanh(u) is that of u over the slope of tanh.
    return np.tanh(u), (stats.norm.logpdf(u, mean, std) - np.log1p(-(np.tanh(u) ** 2))).sum(-1)


def lower_q(critic, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    both = np.concatenate([np.asarray(obs, np.float64), np.asarray(action, np.float64)], axis=-1)
    return np.minimum(network(critic, both, 0)[:, 0], network(critic, both, 1)[:, 0])


def test_log_densities_are_those_of_a_squashed_gaussian(state) -> None:
    action, log_prob = state.params.actor.sample(rows().obs, noise(1))
    expected = act(state.params.actor, rows().obs, noise(1))
    np.testing.assert_allclose(action, expected[0], rtol=1e-4)
    np.testing.assert_allclose(log_prob, expected[1], rtol=1e-4)


def test_log_densities_stay_finite_where_tanh_saturates(state) -> None:
    far = np.full((BATCH, ACTION), 300.0, np.float32)
    action, log_prob = state.params.actor.sample(rows().obs, far)
    assert (np.abs(action) == 1).all()
    assert np.isfinite(log_prob).all()
    slope = jax.jit(jax.grad(lambda actor: actor.sample(rows().obs, far)[1].sum()))(state.params.actor)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))


def target_of(state: sac.State, batch: Transitions, eps):
    seen = soft.EncodedBatch(batch, batch.obs, batch.next_obs)
    return soft.soft_target(state.params, state.target_critic, seen, eps, CONFIG.gamma)


def test_critic_target(state) -> None:
    batch, eps = rows(), noise(2)
    action, log_prob = act(state.params.actor, batch.next_obs, eps)
    soft = lower_q(state.target_critic, batch.next_obs, action) - 0.3 * log_prob
    expected = np.asarray(batch.reward) + 0.9 * np.where(np.asarray(batch.terminal), 0.0, soft)
    np.testing.assert_allclose(target_of(state, batch, eps), expected, rtol=1e-4)


def test_losses(state) -> None:
    batch, eps, target = rows(), noise(3), np.arange(BATCH, dtype=np.float32)
    both = np.concatenate([batch.obs, batch.action], axis=-1).astype(np.float64)
    critic = state.params.critic
    errors = [np.mean((network(critic, both, j)[:, 0] - target) ** 2) for j in (0, 1)]
    assert float(td_loss(q_values(critic, batch.obs, batch.action), target)) == pytest.approx(sum(errors), rel=1e-5)

    loss, result = soft.actor_loss(state.params.actor, critic, jnp.float32(0.7), batch.obs, eps)
    action, log_prob = act(state.params.actor, batch.obs, eps)
    assert float(loss) == pytest.approx(np.mean(0.7 * log_prob - lower_q(critic, batch.obs, action)), rel=1e-4)
    np.testing.assert_allclose(result, log_prob, rtol=1e-4)

    log_alpha = jnp.float32(-1.5)
    expected = -np.mean(-1.5 * (log_prob - ACTION))
    assert float(temperature_loss(log_alpha, result, ACTION)) == pytest.approx(expected, rel=1e-4)
    # Too much entropy (log pi below the target) lowers the temperature, too little raises it.
    push = jax.grad(temperature_loss)
    assert push(log_alpha, jnp.full(3, -10.0), ACTION) > 0 > push(log_alpha, jnp.full(3, 10.0), ACTION)


def test_each_network_is_trained_by_its_own_loss_only(state) -> None:
    """Adam's first step is rate times the sign of the gradient: it shows which loss a parameter follows."""
    batch = rows()

    @jax.jit
    def step_and_gradients(state: sac.State):
        moved, _ = sac.update(CONFIG, state, batch)
        keys = jax.random.split(jax.random.fold_in(state.key, 0))
        next_noise, own_noise = (jax.random.normal(key, (BATCH, ACTION)) for key in keys)
        before, alpha = state.params, jnp.exp(state.params.log_alpha)
        target = target_of(state, batch, next_noise)

        def actor_loss(actor):
            return soft.actor_loss(actor, before.critic, alpha, batch.obs, own_noise)

        by_actor, log_prob = jax.grad(actor_loss, has_aux=True)(before.actor)
        by_critic = jax.grad(lambda net: td_loss(q_values(net, batch.obs, batch.action), target))(before.critic)
        by_alpha = jax.grad(temperature_loss)(before.log_alpha, log_prob, ACTION)
        return moved, soft.Params(by_actor, by_critic, by_alpha)

    moved, gradients = step_and_gradients(state)
    for parts in zip(*map(jax.tree.leaves, (state.params, moved.params, gradients)), strict=True):
        old, new, gradient = map(np.atleast_1d, parts)
        clear = np.abs(gradient) > 1e-5  # Adam's epsilon rounds the smallest ones off
        np.testing.assert_allclose((new - old)[clear], -CONFIG.lr * np.sign(gradient[clear]), rtol=0.02)
    targets = (state.target_critic, moved.params.critic, moved.target_critic)
    for old, online, new in zip(*map(jax.tree.leaves, targets), strict=True):
        np.testing.assert_allclose(new, 0.995 * old + 0.005 * online, atol=1e-6)


def test_updates_are_reproducible_and_one_by_one_equal_to_many(state) -> None:
    batches = rows(5, 4)
    first, again = (sac.update_many(CONFIG, state, batches)[0] for _ in range(2))
    for left, right in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(left, right)
    single = state
    for i in range(4):
        single, _ = sac.update_many(CONFIG, single, Transitions(*(part[i : i + 1] for part in batches)))
    assert int(single.updates) == int(first.updates) == 4
    for left, right in zip(jax.tree.leaves(single.params), jax.tree.leaves(first.params), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)


def test_the_exported_actor_acts_like_the_network(state) -> None:
    actor, obs = state.params.actor, np.asarray(rows().obs)
    policy = sac.behaviour(actor)
    np.testing.assert_allclose(policy.sample(obs, noise(4)), actor.sample(obs, noise(4))[0], atol=1e-6)
    np.testing.assert_allclose(policy.mode(obs), actor.sample(obs, 0 * noise(4))[0], atol=1e-6)


# A task in two steps: the first action a becomes the second state, which pays -(a - 0.5)^2. Only the bootstrapped
# target tells the first step the value of its action.

TINY = sac.Config(width=16, batch=64, lr=3e-3, gamma=0.9, tau=0.05)


def two_step_rows(updates: int) -> Transitions:
    rng = np.random.default_rng(0)
    shape = (updates, TINY.batch)
    second = rng.random(shape) < 0.5
    choice, value = rng.uniform(-1, 1, (2, *shape))
    obs = np.stack([second, np.where(second, value, 0)], axis=-1)
    next_obs = np.stack([np.ones(shape), np.where(second, 0, choice)], axis=-1)
    reward = np.where(second, -4 * (value - 0.5) ** 2, 0.0)
    parts = (obs, choice[..., None], reward, next_obs)
    return Transitions(*(part.astype(np.float32) for part in parts), terminal=second)  # pyright: ignore


def chosen_action(config: sac.Config, updates: int = 1500) -> float:
    state = sac.init(config, 2, 1, jax.random.PRNGKey(0))
    many = jax.jit(lambda state, batches: jax.lax.scan(partial(sac.update, config), state, batches)[0])
    state = many(state, two_step_rows(updates))
    return float(sac.behaviour(state.params.actor).mode(np.zeros((1, 2)))[0, 0])


def test_it_learns_a_task_with_delayed_reward(monkeypatch) -> None:
    assert chosen_action(TINY) == pytest.approx(0.5, abs=0.12)
    assert chosen_action(sac.Config(**{**vars(TINY), "gamma": 0.0})) != pytest.approx(0.5, abs=0.12)
    # Without the critic in its loss, the actor only keeps its entropy.
    full_loss = soft.actor_loss

    def blind(actor, critic, alpha, obs, eps):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(soft, "q_values", lambda *words: 0 * q_values(*words))
            return full_loss(actor, critic, alpha, obs, eps)

    monkeypatch.setattr(soft, "actor_loss", blind)
    assert chosen_action(TINY) != pytest.approx(0.5, abs=0.12)
