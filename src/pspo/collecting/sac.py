"""SAC: soft actor-critic with a learned temperature (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and
Applications"), the learner that D4RL's medium and expert policies come from. It is used to collect data only.

Where implementations differ:
- log sigma is clipped to [-20, 2], and hidden units are ReLU, as the file format of behaviour policies requires.
- Targets bootstrap through time-outs and stop only at terminals.
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

from pspo.algorithms.common.sac import Agent, EncodedBatch, Params, Rule, soft_step
from pspo.collecting.behaviour import LOG_STD_MAX, LOG_STD_MIN, Gaussian
from pspo.core.config import Bounds
from pspo.data.batches import Transitions
from pspo.nets.actors import TanhGaussian
from pspo.nets.mlp import MLP, mlp, mlp_stack


@dataclass(frozen=True)
class Config:
    """Settings of the learner."""

    gamma: Annotated[float, Bounds(0.0, 1.0)] = 0.99
    """Discount factor."""
    start_steps: Annotated[int, Bounds(1, 1_000_000_000)] = 10_000
    """Steps of uniformly random actions before the first update."""
    chunk: Annotated[int, Bounds(1, 100_000)] = 50
    """Environment steps between updates; then as many updates, as one compiled program."""
    batch: Annotated[int, Bounds(1, 65536)] = 256
    """Batch size."""
    width: Annotated[int, Bounds(4, 4096)] = 256
    """Units in a hidden layer."""
    depth: Annotated[int, Bounds(1, 8)] = 2
    """Hidden layers."""
    lr: Annotated[float, Bounds(0.0, 1.0)] = 3e-4
    """Learning rate of actor, critics and temperature (Adam)."""
    alpha: Annotated[float, Bounds(1e-6, 1e6)] = 1.0
    """Initial temperature. On halfcheetah 0.1 learned sooner, but stayed at a score of 11 where 1 reached 17."""
    tau: Annotated[float, Bounds(0.0, 1.0)] = 0.005
    """Step size of the target critics (Polyak averaging)."""
    evaluate_every: Annotated[int, Bounds(1, 1_000_000_000)] = 5000
    """Environment steps between two evaluations (at the end of a chunk)."""
    evaluate_episodes: Annotated[int, Bounds(1, 10_000)] = 10
    """Episodes per evaluation, with noise, as data are collected."""
    medium_score: Annotated[float, Bounds(-1000.0, 1000.0)] = 33.0
    """Normalised score at which the policy counts as medium: a third of the way to the expert."""


class State(NamedTuple):
    """The state of the learner, without the experience."""

    params: Params
    target_critic: MLP
    opt: Any
    key: Array
    updates: Array


def init(config: Config, obs_dim: int, action_dim: int, key: Array) -> State:
    """A new learner."""
    key, actor_key, critic_key = jax.random.split(key, 3)
    hidden = [config.width] * config.depth
    net = mlp(actor_key, [obs_dim, *hidden, 2 * action_dim], "relu", last_scale=0.1)
    actor = TanhGaussian(net, LOG_STD_MIN, LOG_STD_MAX)
    critic = mlp_stack(critic_key, 2, [obs_dim + action_dim, *hidden, 1], activation="relu")
    params = Params(actor, critic, jnp.log(jnp.float32(config.alpha)))
    return State(params, critic, optimiser(config).init(params), key, jnp.int32(0))  # pyright: ignore[reportArgumentType]


def optimiser(config: Config) -> optax.GradientTransformation:
    return optax.adam(config.lr)


def update(config: Config, state: State, batch: Transitions) -> tuple[State, dict[str, Array]]:
    """One update on one batch; the target entropy is minus the number of action columns."""
    rule = Rule(optimiser(config), config.gamma, config.tau, -float(batch.action.shape[-1]))
    agent = Agent(state.params, state.target_critic, state.opt)
    key = jax.random.fold_in(state.key, state.updates)
    agent, metrics = soft_step(rule, agent, EncodedBatch(batch, batch.obs, batch.next_obs), key)
    return State(*agent, state.key, state.updates + 1), metrics


@partial(jax.jit, static_argnames="config")
def update_many(config: Config, state: State, batches: Transitions) -> tuple[State, dict[str, Array]]:
    """One update per leading entry of `batches`, as one program."""
    state, metrics = jax.lax.scan(partial(update, config), state, batches)
    return state, {name: values.mean() for name, values in metrics.items()}


def behaviour(actor: TanhGaussian) -> Gaussian:
    """The actor in NumPy, for acting in the environment and for policy files."""
    net = actor.net
    layers = [(np.asarray(w), np.asarray(b)) for w, b in zip(net.weights, net.biases, strict=True)]
    *hidden, (w, b) = layers
    half = b.size // 2
    mean, log_std = ((np.ascontiguousarray(w[:, part]), b[part]) for part in (slice(half), slice(half, None)))
    return Gaussian(tuple(hidden), mean, log_std, net.activation, "tanh")
