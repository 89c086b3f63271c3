"""SAC: soft actor-critic with a learned temperature (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and
Applications"), the learner that D4RL's medium and expert policies come from. It is used to collect data only.

Where implementations differ, ours does this:
- All three losses are taken at the same parameters, in one fused step, as in the authors' code.
- log sigma is clipped to [-20, 2], and hidden units are ReLU: what a behaviour policy file can say.
- Targets bootstrap through time-outs and stop at true ends only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from pspo.collecting.behaviour import LOG_STD_MAX, LOG_STD_MIN, Gaussian
from pspo.config import Bounds
from pspo.data.batches import Rows
from pspo.losses import bellman_target, q_values, soft_actor_loss, td_loss, temperature_loss
from pspo.nets.actors import TanhGaussian
from pspo.nets.mlp import MLP, mlp, mlp_stack, moving_average


@dataclass(frozen=True)
class Config:
    gamma: Annotated[float, Bounds(0.0, 1.0)] = 0.99
    """Discount factor."""
    start_steps: Annotated[int, Bounds(1, 1_000_000_000)] = 10_000
    """Steps of uniformly random actions before the first update."""
    chunk: Annotated[int, Bounds(1, 100_000)] = 50
    """Steps taken, then as many updates as one compiled program."""
    batch: Annotated[int, Bounds(1, 65536)] = 256
    """Rows per update."""
    width: Annotated[int, Bounds(4, 4096)] = 256
    """Units in a hidden layer."""
    depth: Annotated[int, Bounds(1, 8)] = 2
    """Hidden layers."""
    rate: Annotated[float, Bounds(0.0, 1.0)] = 3e-4
    """Learning rate of actor, critics and temperature."""
    alpha: Annotated[float, Bounds(1e-6, 1e6)] = 1.0
    """Temperature at the start. On halfcheetah 0.1 learned sooner, but stayed at a score of 11 where 1 reached 17."""
    target_rate: Annotated[float, Bounds(0.0, 1.0)] = 0.005
    """Moving-average rate of the target critics."""
    evaluate_every: Annotated[int, Bounds(1, 1_000_000_000)] = 5000
    """Steps between two looks at the score (at the end of a chunk)."""
    evaluate_episodes: Annotated[int, Bounds(1, 10_000)] = 10
    """Episodes of such a look, played with noise, as data are collected."""
    medium_score: Annotated[float, Bounds(-1000.0, 1000.0)] = 33.0
    """The policy is medium once a look gives this normalised score: a third of the way to the expert."""


class Learned(NamedTuple):
    """What gradients move."""

    actor: TanhGaussian
    critic: MLP  # two, stacked
    log_alpha: Array


class State(NamedTuple):
    """Everything that resuming needs, apart from the experience."""

    learned: Learned
    target_critic: MLP
    opt: Any
    key: Array
    updates: Array


def init(config: Config, obs_dim: int, action_dim: int, key: Array) -> State:
    key, actor_key, critic_key = jax.random.split(key, 3)
    hidden = [config.width] * config.depth
    net = mlp(actor_key, [obs_dim, *hidden, 2 * action_dim], "relu", last_scale=0.1)
    actor = TanhGaussian(net, LOG_STD_MIN, LOG_STD_MAX)
    critic = mlp_stack(critic_key, 2, [obs_dim + action_dim, *hidden, 1], activation="relu")
    learned = Learned(actor, critic, jnp.log(jnp.float32(config.alpha)))
    return State(learned, critic, optimiser(config).init(learned), key, jnp.int32(0))  # pyright: ignore[reportArgumentType]


def optimiser(config: Config) -> optax.GradientTransformation:
    return optax.adam(config.rate)


def critic_target(config: Config, state: State, rows: Rows, noise: Array) -> Array:
    """r + gamma (min_j Q'_j(s', a') - alpha log pi(a'|s')), a' ~ pi(.|s'); nothing follows a terminal (Eqs. 3, 5)."""
    action, log_prob = state.learned.actor.sample(rows.next_obs, noise)
    q = q_values(state.target_critic, rows.next_obs, action).min(0)
    soft = q - jnp.exp(state.learned.log_alpha) * log_prob
    return bellman_target(rows.reward, rows.terminal, soft, config.gamma)


def actor_loss(actor: TanhGaussian, critic: MLP, alpha: Array, obs: Array, noise: Array) -> tuple[Array, Array]:
    """alpha log pi(a|s) - min_j Q_j(s, a) at reparameterised actions (Eq. 9); also log pi itself."""
    action, log_prob = actor.sample(obs, noise)
    return soft_actor_loss(log_prob, q_values(critic, obs, action).min(0), alpha), log_prob


def update(config: Config, state: State, rows: Rows) -> tuple[State, dict[str, Array]]:
    """One step on one batch."""
    next_key, actor_key = jax.random.split(jax.random.fold_in(state.key, state.updates))
    next_noise, noise = (jax.random.normal(key, rows.action.shape) for key in (next_key, actor_key))
    learned = state.learned
    target = critic_target(config, state, rows, next_noise)

    def loss(moving: Learned):
        critic = td_loss(q_values(moving.critic, rows.obs, rows.action), target)  # Eq. 5, up to a factor
        actor, log_prob = actor_loss(moving.actor, learned.critic, jnp.exp(learned.log_alpha), rows.obs, noise)
        temperature = temperature_loss(moving.log_alpha, log_prob, rows.action.shape[-1])
        return critic + actor + temperature, (critic, actor, log_prob)

    grads, (loss_critic, loss_actor, log_prob) = jax.grad(loss, has_aux=True)(learned)
    changes, opt = optimiser(config).update(grads, state.opt)
    moved: Learned = optax.apply_updates(learned, changes)  # pyright: ignore[reportAssignmentType, reportArgumentType]
    target_critic = moving_average(state.target_critic, moved.critic, config.target_rate)
    return State(moved, target_critic, opt, state.key, state.updates + 1), {
        "critic_loss": loss_critic,
        "actor_loss": loss_actor,
        "entropy": -log_prob.mean(),
        "alpha": jnp.exp(learned.log_alpha),
    }


@partial(jax.jit, static_argnames="config")
def update_many(config: Config, state: State, batches: Rows) -> tuple[State, dict[str, Array]]:
    """One update per leading entry of `batches`, as one program."""
    state, metrics = jax.lax.scan(partial(update, config), state, batches)
    return state, {name: values.mean() for name, values in metrics.items()}


def behaviour(actor: TanhGaussian) -> Gaussian:
    """The actor in NumPy: what acts in the environment, and what a policy file holds."""
    net = actor.net
    layers = [(np.asarray(w), np.asarray(b)) for w, b in zip(net.weights, net.biases, strict=True)]
    *hidden, (w, b) = layers
    half = b.size // 2
    mean, log_std = ((np.ascontiguousarray(w[:, part]), b[part]) for part in (slice(half), slice(half, None)))
    return Gaussian(tuple(hidden), mean, log_std, net.activation, "tanh")
