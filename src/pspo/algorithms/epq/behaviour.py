"""What EPQ fits before training: a VAE of the dataset's actions, and weights by how good each transition is among its
neighbours. The VAE, the search for neighbours (which depends on states alone) and Q_beta are kept in the cache. All
seeds share them, as in the authors' code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from pspo.algorithms.common.losses import bellman_target, q_values, td_loss
from pspo.algorithms.common.model_free import descend
from pspo.core.cache import content_key, remember
from pspo.core.config import Bounds
from pspo.core.errors import Diverged, UserError
from pspo.core.files import digest
from pspo.core.progress import Progress
from pspo.core.trees import Expected
from pspo.data.dataset import Dataset
from pspo.data.neighbours import Neighbourhoods, chunks, neighbourhoods
from pspo.data.normalise import Normaliser
from pspo.nets.mlp import MLP, mlp_stack, moving_average
from pspo.nets.vae import VAE, vae, vae_loss

RECIPE = 1
LATENTS_PER_COLUMN = 2  # latent dimensions per column of the state; the authors'
TARGET_TAU = 0.005  # of Q_beta's target
SEED = 0

T = TypeVar("T")


@dataclass(frozen=True)
class VAEConfig:
    """Recipe of the behaviour model."""

    width: Annotated[int, Bounds(4, 4096)] = 512
    """Units in a hidden layer of encoder and decoder."""
    depth: Annotated[int, Bounds(1, 8)] = 2
    """Hidden layers of each."""
    steps: Annotated[int, Bounds(1, 100_000_000)] = 2_000_000
    """Gradient steps before EPQ starts; training continues with EPQ."""
    batch: Annotated[int, Bounds(1, 65536)] = 512
    """Transitions per step."""
    lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-4
    """Adam's learning rate in those steps; afterwards it is the actor's."""
    evaluate_every: Annotated[int, Bounds(1, 1_000_000)] = 1000
    """Steps between reports of the loss."""


@dataclass(frozen=True)
class QBetaConfig:
    """Settings of the behaviour's value, learned by SARSA with the steps and learning rate of the VAE."""

    gamma: float
    width: int
    depth: int
    fit: VAEConfig


@dataclass(frozen=True)
class SearchConfig:
    """Settings of the search for neighbours."""

    neighbours: int
    epsilon: float


@dataclass(frozen=True)
class PriorityConfig:
    """Settings of the weights of transitions."""

    search: SearchConfig
    zeta: float
    gamma: float
    q_beta: QBetaConfig | None  # None: the dataset's returns


# Stage A: the behaviour


def load_or_fit_vae(
    dataset: Dataset, norm: Normaliser, config: VAEConfig, progress: Progress
) -> tuple[VAE, dict[str, Any]]:
    """beta^ from the cache, or fitted now."""
    key = content_key("epq-vae", RECIPE, dataset, norm, config, SEED)

    def fresh(key: Array) -> VAE:
        latent = LATENTS_PER_COLUMN * dataset.obs_dim
        return vae(key, norm.features, dataset.action_dim, latent, config.width, config.depth)

    def make() -> tuple[VAE, dict[str, Any]]:
        pairs = jnp.asarray(norm.encode(dataset.obs)), _unit(dataset, norm)
        net, loss = fit_vae(fresh(jax.random.PRNGKey(SEED)), pairs, config, partial(progress, "behaviour VAE"))
        return net, {"loss": loss}

    net, info, cached = remember(key, lambda: eqx.filter_eval_shape(fresh, jax.random.PRNGKey(0)), make)
    return net, info | {"key": key, "cached": cached}


def _unit(dataset: Dataset, norm: Normaliser) -> Array:
    return jnp.asarray(np.clip(norm.unit_action(dataset.action), -1.0, 1.0))


def fit_vae(net: VAE, pairs: tuple[Array, Array], config: VAEConfig, report: Callable[..., None]) -> tuple[VAE, float]:
    """Adam on the evidence bound of (features, action); also the last loss."""
    rule = optax.adam(config.lr)

    def step(state: tuple[VAE, Any], pairs: tuple[Array, Array], key: Array) -> tuple[tuple[VAE, Any], Array]:
        k_pick, k_noise = jax.random.split(key)
        pick = jax.random.randint(k_pick, (config.batch,), 0, pairs[0].shape[0])
        noise = jax.random.normal(k_noise, (config.batch, net.latent_dim))
        loss, grads = jax.value_and_grad(vae_loss)(state[0], pairs[0][pick], pairs[1][pick], noise)
        return descend(rule, grads, state[1], state[0]), loss

    (net, _), loss = _steps(step, (net, rule.init(net)), pairs, config, report)  # pyright: ignore[reportArgumentType]
    return net, loss


def _steps(
    step: Callable[[T, Any, Array], tuple[T, Array]],
    state: T,
    data: Any,
    config: VAEConfig,
    report: Callable[..., None],
) -> tuple[T, float]:
    """`config.steps` steps in compiled windows, and the mean loss of the last one."""

    @partial(jax.jit, static_argnames="count")
    def window(state: T, data: Any, key: Array, count: int) -> tuple[T, Array]:
        state, losses = jax.lax.scan(lambda s, k: step(s, data, k), state, jax.random.split(key, count))
        return state, losses.mean()

    key, done, loss = jax.random.PRNGKey(SEED), 0, np.inf
    while done < config.steps:
        count = min(config.evaluate_every, config.steps - done)
        state, mean = window(state, data, jax.random.fold_in(key, done), count)
        done, loss = done + count, float(mean)
        if not np.isfinite(loss):
            raise Diverged(f"the behaviour model diverged by step {done}: its loss is {loss}; lower vae.lr.")
        report(done, config.steps, {"loss": loss})
    return state, loss


class Sarsa(NamedTuple):
    """Transitions with the next action."""

    features: Array
    action: Array
    reward: Array
    terminal: Array
    next_features: Array
    next_action: Array


def sarsa_transitions(dataset: Dataset, norm: Normaliser) -> Sarsa:
    """Without the last transitions of truncated episodes: their next action is unknown."""
    index = np.flatnonzero(dataset.terminal | ~dataset.episode_end)
    if not len(index):
        raise UserError(
            f"no transition of '{dataset.name}' is followed by another: Q_beta needs some; set use_q_beta=false."
        )
    action = _unit(dataset, norm)
    return Sarsa(
        features=jnp.asarray(norm.encode(dataset.obs[index])),
        action=action[index],
        reward=jnp.asarray(dataset.reward[index] / norm.reward_scale),
        terminal=jnp.asarray(dataset.terminal[index]),
        next_features=jnp.asarray(norm.encode(dataset.next_obs[index])),
        next_action=action[np.minimum(index + 1, dataset.size - 1)],  # ignored after a terminal
    )


def fit_q_beta(data: Sarsa, config: QBetaConfig, report: Callable[..., None]) -> tuple[MLP, float]:
    """One critic on r + gamma Q'(s', a'), a' being the dataset's; also the last loss."""
    rule, fit = optax.adam(config.fit.lr), config.fit
    sizes = [data.features.shape[1] + data.action.shape[1], *[config.width] * config.depth, 1]
    critic = mlp_stack(jax.random.PRNGKey(SEED), 1, sizes, activation="relu", init="rlkit-critic")

    def step(state: tuple[MLP, MLP, Any], data: Sarsa, key: Array) -> tuple[tuple[MLP, MLP, Any], Array]:
        critic, target_critic, opt = state
        pick = jax.random.randint(key, (fit.batch,), 0, data.reward.shape[0])
        now = Sarsa(*(part[pick] for part in data))
        after = q_values(target_critic, now.next_features, now.next_action)
        target = bellman_target(now.reward, now.terminal, after, config.gamma)
        loss, grads = jax.value_and_grad(lambda net: td_loss(q_values(net, now.features, now.action), target))(critic)
        critic, opt = descend(rule, grads, opt, critic)
        return (critic, moving_average(target_critic, critic, TARGET_TAU), opt), loss

    start = (critic, critic, rule.init(critic))  # pyright: ignore[reportArgumentType]
    (critic, _, _), loss = _steps(step, start, data, fit, report)
    return critic, loss


# Stage B: the weights of transitions


def make_weights(
    dataset: Dataset, norm: Normaliser, config: PriorityConfig, progress: Progress
) -> tuple[Array, dict[str, Any]]:
    """w of every transition, which takes seconds once neighbours and values are known."""
    near, search = load_or_find_neighbours(dataset, config.search, progress)
    value, value_info = return_values(dataset, norm, config, progress)
    weight = priority_weights(near, value, config.zeta)
    about = {"mean_weight": float(weight.mean()), "digest": digest({"weight": weight})}
    return jnp.asarray(weight), {"search": search, **value_info, **about}


def load_or_find_neighbours(
    dataset: Dataset, config: SearchConfig, progress: Progress
) -> tuple[Neighbourhoods, dict[str, Any]]:
    """Neighbours of every state, from the cache or searched now: minutes on a large dataset, the same for all units."""
    key = content_key("nearest-states", RECIPE, dataset, None, config, SEED)

    def make() -> tuple[Neighbourhoods, dict[str, Any]]:
        near, spacing = neighbourhoods(
            dataset.obs,
            config.neighbours,
            config.epsilon,
            lambda done: progress("nearest states", done, 2 * dataset.size, {}),
        )
        return near, {"spacing": spacing, "neighbours": near.others}

    shapes: Any = (Expected((size,), np.dtype(np.int32)) for size in (dataset.size, None))
    like = Neighbourhoods(*shapes)
    near, info, cached = remember(key, lambda: like, make)
    return Neighbourhoods(*map(np.asarray, near)), info | {"key": key, "cached": cached}


def return_values(
    dataset: Dataset, norm: Normaliser, config: PriorityConfig, progress: Progress
) -> tuple[np.ndarray, dict[str, Any]]:
    """G: the return from each transition to its episode's end, in the critics' unit, or Q_beta."""
    if config.q_beta is None:
        return dataset.returns_to_go(config.gamma) / float(norm.reward_scale), {}
    recipe, key = config.q_beta, content_key("epq-value", RECIPE, dataset, norm, config.q_beta, SEED)

    def make() -> tuple[dict[str, Array], dict[str, Any]]:
        critic, loss = fit_q_beta(sarsa_transitions(dataset, norm), recipe, partial(progress, "behaviour value"))
        evaluate, action = jax.jit(q_values), _unit(dataset, norm)
        parts = [evaluate(critic, jnp.asarray(norm.encode(dataset.obs[r])), action[r])[0] for r in chunks(dataset.size)]
        return {"value": jnp.concatenate(parts)}, {"loss": loss}

    like: Any = {"value": jax.ShapeDtypeStruct((dataset.size,), jnp.float32)}
    values, info, cached = remember(key, lambda: like, make)
    return np.asarray(values["value"], np.float64), {"value": info | {"key": key, "cached": cached}}


def priority_weights(near: Neighbourhoods, value: np.ndarray, zeta: float) -> np.ndarray:
    """w_i = exp(G_i / zeta) / sum_k exp(G_k / zeta) over the neighbours k of transition i, itself included.

    In (0, 1]; far below the best of its neighbours a weight rounds to zero, and both of its uses have a floor.
    """
    weight, start = np.empty(len(value), np.float32), np.concatenate([[0], near.size.cumsum(dtype=np.int64)])
    for some in chunks(len(value)):
        begin, end = start[some[0]], start[some[-1] + 1]
        logit = value[near.row[begin:end]] / zeta
        best = np.maximum.reduceat(logit, start[some] - begin)
        total = np.add.reduceat(np.exp(logit - np.repeat(best, near.size[some])), start[some] - begin)
        weight[some] = np.exp(value[some] / zeta - best) / total
    return weight
