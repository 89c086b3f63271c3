"""MOReL's natural steps: whole iterations against NumPy, what follows a halt does not count, behaviour cloning."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from pspo.algorithms.morel import algorithm as morel
from pspo.algorithms.morel import npg as morel_npg
from pspo.nets.actors import LinearGaussian
from pspo.nets.mlp import MLP
from tests.algorithms.baseline_cases import (
    ACT,
    OBS,
    adam_by_hand,
    adam_moments,
    assert_close,
    encoded,
    made_config,
    made_data,
    made_norm,
    made_setup,
    made_state,
    net_by_hand,
    slopes,
)
from tests.arrays import equal_bits, f32

KEY = jax.random.PRNGKey(7)


TIME, PATHS = 5, 6
TERMINAL = np.zeros((TIME, PATHS), bool)
TERMINAL[[1, 3], [0, 1]] = True  # the first halts, the second ends, the others are cut off
HALTED = TERMINAL & (np.arange(PATHS) == 0)
ALIVE = np.cumsum(TERMINAL, axis=0) - TERMINAL == 0


def natural_config(**changes: Any) -> Any:
    step = {"step_size": 0.1, "damping": 0.1, "cg_steps": 60, "log_std_min": -0.1, "log_std_max": 0.1}
    baseline = {"baseline_width": 4, "baseline_decay": 0.05, "baseline_lr": 0.03}
    return made_config(morel, **({"cloning_steps": 0} | step | baseline | changes))


def made_paths(seed: int = 5) -> morel_npg.Paths:
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(TIME + 1, PATHS, OBS))
    obs[2, 3] = 40.0  # more than the baseline looks at
    action = rng.normal(scale=1.5, size=(TIME, PATHS, ACT))
    reward = rng.normal(size=(TIME, PATHS))
    flags = jnp.asarray(TERMINAL), jnp.asarray(HALTED)
    return morel_npg.Paths(f32(obs[:-1]), f32(action), f32(reward), f32(obs[1:]), *flags)


def mean_by_hand(net: MLP, x: np.ndarray) -> np.ndarray:
    for w, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
        x = np.tanh(x @ np.asarray(w, np.float64) + np.asarray(b, np.float64))
    return x @ np.asarray(net.weights[-1], np.float64) + np.asarray(net.biases[-1], np.float64)


def inputs_by_hand(features: np.ndarray) -> np.ndarray:
    """(time, paths, ...): clipped features, and t / horizon to the powers one to four."""
    time = np.arange(len(features))[:, None] / TIME
    powers = np.stack([np.broadcast_to(time**k, features.shape[:2]) for k in (1, 2, 3, 4)], axis=-1)
    return np.concatenate([np.clip(features, -10.0, 10.0), powers], axis=-1)


def advantages_by_hand(config: Any, reward: np.ndarray, value: np.ndarray) -> np.ndarray:
    """One path and step at a time, backwards; zero where nothing happened."""
    found = np.zeros((TIME, PATHS))
    for p in range(PATHS):
        after = 0.0
        for t in reversed(range(TIME)):
            if not ALIVE[t, p]:
                continue
            goes_on = 0.0 if TERMINAL[t, p] else 1.0
            error = reward[t, p] + config.gamma * goes_on * value[t + 1, p] - value[t, p]
            after = error + config.gamma * config.gae * goes_on * after
            found[t, p] = after
    return found


def returns_by_hand(config: Any, reward: np.ndarray) -> np.ndarray:
    found = np.zeros((TIME + 1, PATHS))
    for t in reversed(range(TIME)):
        found[t] = ALIVE[t] * (reward[t] + config.gamma * found[t + 1])
    return found[:-1]


def policy_by_hand(
    config: Any,
    policy: LinearGaussian,
    features: np.ndarray,
    action: np.ndarray,
    weight: np.ndarray,
    chosen: np.ndarray,
) -> tuple[Any, float]:
    """g by differences, F made explicitly on the `chosen` steps, the system solved, the standard deviation bounded."""

    def objective(policy: Any) -> float:
        mean = mean_by_hand(policy.net, features)
        return (weight * scipy.stats.norm.logpdf(action, mean, np.exp(policy.log_std)).sum(-1)).mean()

    leaves, form = jax.tree.flatten(policy)
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(slopes(objective, policy))])
    rows, std = features[chosen], np.exp(np.asarray(policy.log_std, np.float64))
    fisher = np.zeros((flat.size, flat.size))
    for row in rows:
        for column in range(ACT):
            slope = slopes(lambda p, row=row, column=column: mean_by_hand(p.net, row[None])[0, column], policy)
            j = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(slope)]) / std[column]
            fisher += np.outer(j, j) / len(rows)
    spread = slopes(lambda p: p.log_std.sum(), policy)
    fisher += 2.0 * np.diag(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(spread)]))
    x = np.linalg.solve(fisher + config.damping * np.eye(flat.size), flat)
    theta = np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in leaves])
    theta = theta + np.sqrt(config.step_size / abs(flat @ x)) * x
    cuts = np.cumsum([leaf.size for leaf in leaves])[:-1]
    new = form.unflatten([part.reshape(leaf.shape) for part, leaf in zip(np.split(theta, cuts), leaves, strict=True)])
    bounded = np.clip(new.log_std, config.log_std_min, config.log_std_max)
    new = LinearGaussian(new.net, bounded)
    old_mean, new_mean, new_std = mean_by_hand(policy.net, rows), mean_by_hand(new.net, rows), np.exp(bounded)
    kl = np.log(new_std / std) + (std**2 + (old_mean - new_mean) ** 2) / (2.0 * new_std**2) - 0.5
    return new, kl.sum(1).mean()


def baseline_by_hand(config: Any, state: Any, inputs: np.ndarray, target: np.ndarray, rows: np.ndarray) -> Any:
    """Full batches of `rows` in turn, one if there are fewer; the decay is part of the gradient. Also the mean loss."""
    net, moments, losses = state.baseline, adam_moments(state.opt), []
    moments = moments._replace(mu=jax.tree.map(np.float64, moments.mu), nu=jax.tree.map(np.float64, moments.nu))
    for k in range(max(len(rows) // config.batch, 1)):
        batch = rows[k * config.batch : (k + 1) * config.batch]

        def loss(net: Any, batch: np.ndarray = batch) -> float:
            return ((net_by_hand(net, inputs[batch])[:, 0] - target[batch]) ** 2).mean()

        losses.append(loss(net))
        grads = jax.tree.map(lambda g, x: g + config.baseline_decay * np.asarray(x, np.float64), slopes(loss, net), net)
        net = adam_by_hand(net, grads, moments, config.baseline_lr)
        mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments.mu, grads)
        nu = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, moments.nu, grads)
        moments = moments._replace(mu=mu, nu=nu, count=moments.count + 1)
    return net, np.mean(losses)


def improved(config: Any) -> Any:
    """(state, paths) -> the next state and metrics, compiled."""
    return jax.jit(lambda state, paths: morel_npg.improve(config, made_norm(), state, paths, jnp.asarray(ALIVE), KEY))


IMPROVED = {rows: improved(natural_config(fisher_batch=rows)) for rows in (0, 10)}


@pytest.mark.parametrize("fisher_batch", [0, 10])
def test_a_whole_iteration_is_the_natural_step_and_then_an_epoch_of_the_baseline(fisher_batch: int) -> None:
    config, paths = natural_config(fisher_batch=fisher_batch), made_paths()
    state = made_state(morel, config)
    after, metrics = IMPROVED[fisher_batch](state, paths)
    order = np.asarray(morel_npg.alive_first(jnp.asarray(ALIVE), KEY))
    happened = order[: ALIVE.sum()]
    features = encoded(np.concatenate([paths.obs, paths.next_obs[-1:]]))
    reward, inputs = np.asarray(paths.reward, np.float64), inputs_by_hand(features)
    value = net_by_hand(state.baseline, inputs)[..., 0]
    advantage = advantages_by_hand(config, reward, value)[ALIVE]
    whitened = (advantage - advantage.mean()) / advantage.std()
    rows = features[:-1][ALIVE], np.asarray(paths.action, np.float64)[ALIVE]
    numbers = np.full(ALIVE.shape, -1)
    numbers[ALIVE] = np.arange(ALIVE.sum())  # of a step among those that happened
    chosen = numbers.ravel()[happened[: fisher_batch or None]]
    policy, kl = policy_by_hand(config, state.policy, *rows, whitened, chosen)
    assert np.isin(policy.log_std, (config.log_std_min, config.log_std_max)).any()
    assert_close(after.policy, policy, atol=2e-4)
    assert (
        max(np.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (policy.net, state.policy.net)), strict=True))
        > 0.02
    )
    to_go = returns_by_hand(config, reward).ravel()
    baseline, loss = baseline_by_hand(config, state, inputs[:-1].reshape(-1, inputs.shape[-1]), to_go, happened)
    assert_close(after.baseline, baseline, atol=2e-4)
    expected = {
        "rollout_return": (reward * ALIVE).sum(0).mean() * 1.7,  # in raw units
        "rollout_length": ALIVE.sum() / PATHS,
        "rollout_halted": 1 / PATHS,
        "kl": kl,
        "log_std": policy.log_std.mean(),
        "baseline_loss": loss,
    }
    assert set(metrics) == set(expected)
    for name, number in expected.items():
        assert float(metrics[name]) == pytest.approx(number, rel=1e-3, abs=1e-5), name
    assert (int(after.step), after.key.tolist()) == (1, state.key.tolist())


def test_nothing_of_what_follows_a_halt_or_an_end_is_learned_from() -> None:
    """Other states, actions and rewards there, and other states reached by the terminal step: equal bit for bit."""
    state, paths, other = made_state(morel, natural_config()), made_paths(), made_paths(seed=6)
    dead = ~ALIVE

    def pick(where: np.ndarray, a: Any, b: Any) -> Any:
        return jnp.where(where.reshape(*where.shape, *(1,) * (a.ndim - 2)), b, a)

    changed = paths._replace(
        obs=pick(dead, paths.obs, other.obs + 5.0),
        action=pick(dead, paths.action, other.action),
        reward=pick(dead, paths.reward, other.reward + 100.0),
        next_obs=pick(dead | TERMINAL, paths.next_obs, other.next_obs - 5.0),
    )
    assert not equal_bits(paths, changed)
    here, there = (IMPROVED[0](state, p) for p in (paths, changed))
    assert equal_bits(here, there)
    last = jnp.asarray(np.arange(TIME) == TIME - 1)[:, None, None]
    cut_off = paths._replace(next_obs=jnp.where(last, other.next_obs, paths.next_obs))
    assert not equal_bits(here[0].policy, IMPROVED[0](state, cut_off)[0].policy)  # what follows a cut does count


def test_an_epoch_of_fewer_steps_than_a_batch_is_one_step_on_them() -> None:
    config = natural_config()
    state, rng = made_state(morel, config), np.random.default_rng(2)
    inputs, target, order = rng.normal(size=(20, OBS + 4)), rng.normal(size=20), rng.permutation(20)
    fit = jax.jit(
        lambda s: morel_npg.fit_baseline(
            config,
            s.baseline,
            opt=s.opt,
            inputs=f32(inputs),
            target=f32(target),
            count=jnp.int32(3),
            order=jnp.asarray(order),
        )
    )
    net, _, loss = fit(state)
    expected, mean = baseline_by_hand(config, state, inputs, target, order[:3])
    assert_close(net, expected, atol=1e-4)
    assert float(loss) == pytest.approx(mean, rel=1e-4)


def test_steps_that_happened_come_first_in_a_random_order() -> None:
    alive = np.random.default_rng(0).random((20, 10)) < 0.3
    one, other = (np.asarray(morel_npg.alive_first(jnp.asarray(alive), jax.random.PRNGKey(k))) for k in (0, 1))
    assert sorted(one) == list(range(200))
    assert alive.ravel()[one[: alive.sum()]].all()
    assert not np.array_equal(one, other)
    assert abs(np.corrcoef(one[: alive.sum()], np.arange(alive.sum()))[0, 1]) < 0.5


# The start


def test_a_policy_starts_from_behaviour_cloning_with_its_own_std() -> None:
    """Where actions are a function of the state, least squares finds it; the standard deviation is not fitted."""
    data = made_data()
    action = f32(np.clip(0.5 * encoded(data.transitions.obs) + 0.1, -1.0, 1.0))
    data = data._replace(transitions=data.transitions._replace(action=action))
    config = natural_config(cloning_steps=300, cloning_lr=0.02, log_std=-0.7)
    fresh, state = (
        jax.jit(lambda key, c=c: morel.init(c, made_setup(), data, key))(KEY)  # pyright: ignore[reportArgumentType]
        for c in (natural_config(log_std=-0.7), config)
    )
    assert isinstance(state, morel_npg.State)
    assert isinstance(fresh, morel_npg.State)
    before, after = (
        ((mean_by_hand(s.policy.net, encoded(data.transitions.obs)) - action) ** 2).mean() for s in (fresh, state)
    )
    assert after < 0.05 * before
    assert np.abs(mean_by_hand(fresh.policy.net, encoded(data.transitions.obs))).max() < 0.05  # its last layer is small
    np.testing.assert_array_equal(state.policy.log_std, np.float32(-0.7))
    assert (state.policy.net.activation, state.baseline.activation) == ("tanh", "relu")
    assert [w.shape for w in state.baseline.weights] == [(OBS + 4, 4), (4, 4), (4, 1)]
    assert morel.policies(state) == {"policy": state.policy}
    assert int(state.step) == 0
