"""Tiny cases for algorithms, made by NumPy (nothing is fitted), and formulas by hand.

By hand means double precision and NumPy: networks are evaluated layer by layer, gradients are finite differences
of a loss in which everything that carries no gradient is a plain number, and Adam is written out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.stats

from pspo.algorithms.common.model_free import Setup
from pspo.data.batches import DeviceDataset, Transitions
from pspo.data.normalise import Normaliser
from pspo.nets.mlp import MLP
from tests.arrays import f32

OBS, ACT, HIDDEN, ROWS = 2, 2, 5, 8


def made_mlp(
    rng: np.random.Generator, sizes: list[int], members: tuple[int, ...] = (), activation: str = "relu"
) -> MLP:
    """Random weights and biases; a stack where `members` is given."""
    weights = [f32(rng.normal(scale=0.6, size=(*members, *shape))) for shape in pairwise(sizes)]
    return MLP(weights, [f32(rng.normal(scale=0.3, size=(*members, size))) for size in sizes[1:]], activation)


def made_norm() -> Normaliser:
    """Unusual units: a formula that forgets to encode, or decodes twice, shows."""
    return Normaliser(
        obs_mean=np.array([0.1, -0.2], np.float32),
        obs_std=np.array([1.0, 1.5], np.float32),
        obs_low=np.full(OBS, -5.0, np.float32),
        obs_high=np.full(OBS, 5.0, np.float32),
        grid_column=np.zeros(0, np.int32),
        grid_points=np.zeros((0, 0), np.float32),
        action_low=np.array([-2.0, 0.0], np.float32),
        action_high=np.array([3.0, 1.0], np.float32),
        reward_scale=np.asarray(1.7, np.float32),
    )


def made_setup() -> Setup:
    return Setup((), made_norm())


def made_transitions(count: int = ROWS, seed: int = 3) -> Transitions:
    """Every third transition is terminal; the first two actions are at their bounds."""
    rng = np.random.default_rng(seed)
    action = rng.uniform(-0.95, 0.95, size=(count, ACT))
    action[0], action[1] = [1.0, -1.0], [-1.0, 0.3]
    return Transitions(
        obs=f32(rng.normal(size=(count, OBS))),
        action=f32(action),
        reward=f32(rng.normal(size=count)),
        next_obs=f32(rng.normal(size=(count, OBS))),
        terminal=jnp.asarray(np.arange(count) % 3 == 2),
    )


def made_data(count: int = 40) -> DeviceDataset:
    rng = np.random.default_rng(4)
    known = jnp.asarray(rng.random(count) < 0.8)
    return DeviceDataset(
        made_transitions(count), jnp.asarray(np.arange(count) // 2), f32(rng.normal(size=count)), known
    )


def made_config(algorithm: ModuleType, **changes: Any) -> Any:
    """The algorithm's defaults except for sizes, and learning rates that make one step visible."""
    tiny = {"gamma": 0.9, "batch": ROWS, "width": HIDDEN, "depth": 1, "steps": 20, "chunk": 5}
    tiny |= {"tau": 0.1, "target_tau": 0.1}
    fields = algorithm.Config.__dataclass_fields__
    rates = {name: 0.03 * (k + 1) for k, name in enumerate(("actor_lr", "critic_lr", "lr"))}
    return algorithm.Config(**({n: v for n, v in (tiny | rates).items() if n in fields} | changes))


def made_state(
    algorithm: ModuleType, config: Any, step: int = 0, moments: int = 3, seed: int = 1, setup: Any = None
) -> Any:
    """A state in the middle of training, in the shape of `init`'s (which is not run): all numbers are random.

    Adam's moments are not zero, since its first step would show only the signs of gradients; `moments` is how many
    steps its counters say that it has made. Target networks differ from the others.
    """
    setup = setup or made_setup()
    form = jax.eval_shape(partial(algorithm.init, config, setup, made_data()), jax.random.PRNGKey(0))
    rng = np.random.default_rng(seed)

    def fill(path: Any, leaf: Any) -> jax.Array:
        name = jax.tree_util.keystr(path)
        if "opt" in name:
            if jnp.issubdtype(leaf.dtype, jnp.integer):
                return jnp.asarray(np.asarray(moments, leaf.dtype))
            return f32(rng.uniform(0.01, 0.05, size=leaf.shape))
        return jnp.asarray(rng.normal(scale=0.6, size=leaf.shape).astype(leaf.dtype))

    state = jax.tree_util.tree_map_with_path(fill, form)
    return state._replace(step=jnp.asarray(np.int32(step)), key=jnp.asarray(np.zeros(2, np.uint32)))


def started(
    algorithm: ModuleType, config: Any, monkeypatch: Any, setup: Any = None
) -> tuple[Any, list[tuple[Any, ...]]]:
    """A state by `init` with networks by NumPy, and the networks it asked for: (sizes, activation, init), a stack with
    its number of members in front."""
    rng, asked = np.random.default_rng(0), []

    def mlp(key: Any, sizes: list[int], activation: str = "silu", init: str | None = None, members: Any = ()) -> MLP:
        asked.append((*members, sizes, activation, init))
        return made_mlp(rng, sizes, members, activation)

    monkeypatch.setattr(algorithm, "mlp", mlp)
    monkeypatch.setattr(
        algorithm, "mlp_stack", lambda key, count, sizes, **kind: mlp(key, sizes, members=(count,), **kind)
    )
    return algorithm.init(config, setup or made_setup(), made_data(), jax.random.PRNGKey(0)), asked


def compiled_update(algorithm: ModuleType, config: Any, setup: Any = None) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """(state, batch, key) -> the next state and metrics."""
    return jax.jit(partial(algorithm.update, config, setup or made_setup(), None))


# By hand, in double precision


def doubles(tree: Any) -> Any:
    """The same tree of NumPy arrays that can be changed."""
    return jax.tree.map(lambda leaf: np.array(leaf, np.float64), tree)


def encoded(obs: Any) -> np.ndarray:
    norm = made_norm()
    return (np.asarray(obs, np.float64) - norm.obs_mean) / norm.obs_std


def net_by_hand(net: MLP, x: np.ndarray) -> np.ndarray:
    """Matrix products and activations; a network with a leading axis of members is not for this one."""
    hidden = {"relu": lambda h: np.maximum(h, 0.0), "silu": lambda h: h / (1.0 + np.exp(-h))}[net.activation]
    for w, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
        x = hidden(x @ np.asarray(w, np.float64) + np.asarray(b, np.float64))
    return x @ np.asarray(net.weights[-1], np.float64) + np.asarray(net.biases[-1], np.float64)


def joined(features: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Side by side; leading axes of `other` may be missing in `features`."""
    return np.concatenate([np.broadcast_to(features, (*other.shape[:-1], features.shape[-1])), other], axis=-1)


def critics_by_hand(critic: MLP, features: np.ndarray, action: np.ndarray) -> np.ndarray:
    """(critics, ..., batch)"""
    x = joined(features, action)
    members = [
        MLP([w[c] for w in critic.weights], [b[c] for b in critic.biases], critic.activation)
        for c in range(critic.weights[0].shape[0])
    ]
    return np.stack([net_by_hand(member, x)[..., 0] for member in members])


def moments_by_hand(actor: Any, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation before the tanh."""
    mean, log_std = np.split(net_by_hand(actor.net, features), 2, axis=-1)
    return mean, np.exp(np.clip(log_std, -5.0, 2.0))


def sample_by_hand(actor: Any, features: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """tanh(u) and its log density by the change of variables, written as in a textbook."""
    mean, std = moments_by_hand(actor, features)
    u = mean + std * noise
    return np.tanh(u), (scipy.stats.norm.logpdf(u, mean, std) - np.log(1.0 - np.tanh(u) ** 2)).sum(axis=-1)


def likelihood_by_hand(actor: Any, features: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Log density of given actions; those at the bounds are taken at the float32 just inside."""
    inside = np.float64(np.float32(1.0 - 1e-6))
    mean, std = moments_by_hand(actor, features)
    action = np.clip(action, -inside, inside)
    return (scipy.stats.norm.logpdf(np.arctanh(action), mean, std) - np.log(1.0 - action**2)).sum(axis=-1)


def proposals_by_hand(
    actor: Any, features: np.ndarray, next_features: np.ndarray, noise: np.ndarray, uniform: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """CQL's: uniform actions (density 2^-A), the policy's at s', the policy's at s; and their log densities."""
    after, now = (sample_by_hand(actor, x, e) for x, e in zip((next_features, features), noise, strict=True))
    at_random = uniform, np.full(uniform.shape[:-1], uniform.shape[-1] * np.log(0.5))
    actions, log_density = (np.concatenate(part) for part in zip(at_random, after, now, strict=True))
    return actions, log_density


def backed_up(rows: Transitions, next_value: np.ndarray, gamma: float) -> np.ndarray:
    """r + gamma (1 - d) V(s')"""
    alive = 1.0 - np.asarray(rows.terminal, np.float64)
    return np.asarray(rows.reward, np.float64) + gamma * alive * next_value


def slopes(loss: Callable[[Any], Any], tree: Any, reach: float = 1e-6) -> Any:
    """The gradient of a NumPy loss at a tree of arrays, by central differences."""
    leaves, form = jax.tree.flatten(doubles(tree))
    grads = [np.zeros_like(leaf) for leaf in leaves]
    for leaf, grad in zip(leaves, grads, strict=True):
        for i in np.ndindex(leaf.shape):
            here = leaf[i]
            ends = []
            for leaf[i] in (here + reach, here - reach):
                ends.append(float(loss(form.unflatten(leaves))))
            leaf[i] = here
            grad[i] = (ends[0] - ends[1]) / (2.0 * reach)
    return form.unflatten(grads)


def adam_moments(opt: Any) -> Any:
    """The one state of Adam in an optimiser's."""
    found = jax.tree.leaves(opt, is_leaf=lambda part: isinstance(part, optax.ScaleByAdamState))
    (moments,) = (part for part in found if isinstance(part, optax.ScaleByAdamState))
    return moments


def adam_by_hand(tree: Any, grads: Any, moments: Any, rate: float) -> Any:
    """One step of Adam (Kingma and Ba 2014, algorithm 1) from moments `mu`, `nu` and a `count`."""
    t = int(moments.count) + 1

    def move(x: np.ndarray, g: np.ndarray, m: np.ndarray, v: np.ndarray) -> np.ndarray:
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        return x - rate * (m / (1.0 - 0.9**t)) / (np.sqrt(v / (1.0 - 0.999**t)) + 1e-8)

    return jax.tree.map(move, doubles(tree), grads, doubles(moments.mu), doubles(moments.nu))


def part_by_hand(state: Any, name: str, loss: Callable[[Any], Any], rate: float) -> Any:
    """One step of Adam on one part of the parameters, down the slopes of its own loss (optax.partition's states)."""
    moments, part = adam_moments(state.opt.inner_states[name]), getattr(state.params, name)
    moments = moments._replace(mu=getattr(moments.mu, name), nu=getattr(moments.nu, name))
    return adam_by_hand(part, slopes(loss, part), moments, rate)


def cosine(rate: float, done: int, steps: int) -> float:
    """A learning rate that decays to zero along half a cosine."""
    return rate * 0.5 * (1.0 + np.cos(np.pi * min(done, steps) / steps))


def average_by_hand(target: Any, online: Any, rate: float) -> Any:
    return jax.tree.map(lambda t, o: (1.0 - rate) * t + rate * o, doubles(target), doubles(online))


def assert_close(found: Any, expected: Any, atol: float = 3e-6) -> None:
    """Leaf by leaf; the default is a few roundings of a number near one, and far below what one step changes."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    for a, b in pairs:
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=atol)
