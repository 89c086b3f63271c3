"""CQL (Kumar et al. 2020, "Conservative Q-Learning for Offline Reinforcement Learning"), its version CQL(H).

SAC with critics that are also pushed down on actions of the policy and random ones, and up on those of the dataset
(Eq. 4). The push-down term is a log-sum-exp over 3n sampled actions, each divided by the density it was drawn from
(appendix F). Where implementations differ, ours does this:
- The log-sum-exp runs over all 3n samples at once, and every sample is valued at s, those drawn at s' too.
- Targets carry no entropy term ("deterministic backup" in the authors' words; a' is still sampled).
- All losses are taken at the same parameters, in one fused step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from pspo.algorithms.common.losses import (
    proposals,
    pushed_down,
    q_range,
    q_values,
    sampled_target,
    soft_or_cloning_loss,
    td_loss,
    temperature_loss,
)
from pspo.algorithms.common.model_free import Setup, adam_by_part, begin_chunk, descend, draw, layer_sizes, prepare
from pspo.algorithms.common.settings import BatchConfig
from pspo.core.config import Bounds
from pspo.data.batches import DeviceDataset, Transitions
from pspo.nets.actors import TanhGaussian
from pspo.nets.mlp import MLP, mlp, mlp_stack, moving_average

__all__ = ["HEADLINE", "Config", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("critic_loss",)

LARGEST_WEIGHT = math.log(1e6)  # of the adapted penalty


@dataclass(frozen=True)
class Config(BatchConfig):
    conservatism: Annotated[float, Bounds(0.0, 1e6)] = 5.0
    """alpha_c: weight of the conservative gap; 0 is SAC on the dataset."""
    samples: Annotated[int, Bounds(1, 1000)] = 10
    """n: actions of each of the three kinds in the log-sum-exp."""
    gap_limit: Annotated[float, Bounds(0.0, 1e6)] = 0.0
    """tau of the paper's Lagrange form: the weighted gap that a multiplier holds; 0 keeps the weight fixed (Eq. 30)."""
    cloning_steps: Annotated[int, Bounds(0, 1_000_000_000)] = 0
    """Iterations of behaviour cloning at the start."""
    critic_lr: Annotated[float, Bounds(0.0, 1.0)] = 3e-4
    """Learning rate of the critics (and of the multiplier)."""
    actor_lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-4
    """Learning rate of the actor."""
    alpha_lr: Annotated[float, Bounds(0.0, 1.0)] = 0.0
    """Learning rate of the temperature; 0 takes the actor's."""
    tau: Annotated[float, Bounds(0.0, 1.0)] = 0.005
    """Moving-average rate of the target critics."""


class Params(NamedTuple):
    """What gradients move."""

    actor: TanhGaussian
    critic: MLP  # two, stacked
    log_alpha: Array
    log_multiplier: Array


class State(NamedTuple):
    """Everything that resuming needs."""

    params: Params
    target_critic: MLP
    opt: Any
    key: Array
    step: Array


class Noise(NamedTuple):
    """The random numbers of one iteration."""

    next_action: Array  # (batch, action_dim), as the next
    action: Array
    samples: Array  # (2, n, batch, action_dim): at s' and at s
    uniform: Array  # (n, batch, action_dim) in [-1, 1]


def optimiser(config: Config) -> optax.GradientTransformation:
    alpha_lr = config.alpha_lr or config.actor_lr
    return adam_by_part(Params(config.actor_lr, config.critic_lr, alpha_lr, config.critic_lr))  # pyright: ignore[reportArgumentType]


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    key, actor_key, critic_key = jax.random.split(key, 3)
    inputs, columns, hidden = layer_sizes(config, setup.norm, data)
    actor = TanhGaussian(mlp(actor_key, [inputs, *hidden, 2 * columns], "relu", init="rlkit-actor"))
    critic = mlp_stack(critic_key, 2, [inputs + columns, *hidden, 1], activation="relu", init="rlkit-critic")
    params = Params(actor, critic, jnp.float32(0.0), jnp.float32(0.0))
    return State(params, critic, optimiser(config).init(params), key, jnp.int32(0))  # pyright: ignore[reportArgumentType]


def draw_noise(config: Config, shape: tuple[int, ...], key: Array) -> Noise:
    k_next, k_action, k_samples, k_uniform = jax.random.split(key, 4)
    normal, n = jax.random.normal, config.samples
    uniform = jax.random.uniform(k_uniform, (n, *shape), minval=-1.0, maxval=1.0)
    return Noise(normal(k_next, shape), normal(k_action, shape), normal(k_samples, (2, n, *shape)), uniform)


def gap(critic: MLP, features: Array, real_q: Array, sampled: tuple[Array, Array]) -> Array:
    """(critics,): how far Q on sampled actions exceeds Q on the dataset's (Eq. 4)."""
    return (pushed_down(critic, features, sampled) - real_q).mean(-1)


def penalty(config: Config, gaps: Array, log_multiplier: Array) -> tuple[Array, Array]:
    """The term added to the critics' loss, and the loss of the multiplier (zero where the weight is fixed)."""
    weighted = config.conservatism * gaps
    if config.gap_limit == 0.0:
        return weighted.sum(), jnp.float32(0.0)
    multiplier = jnp.exp(jnp.minimum(log_multiplier, LARGEST_WEIGHT))
    excess = weighted - config.gap_limit
    return (jax.lax.stop_gradient(multiplier) * excess).sum(), -(multiplier * jax.lax.stop_gradient(excess)).mean()


def update(
    config: Config, setup: Setup, context: None, state: State, batch: Transitions, key: Array
) -> tuple[State, dict[str, Array]]:
    """One fused step of critics, actor, temperature and multiplier."""
    features, next_features = setup.norm.encode(batch.obs), setup.norm.encode(batch.next_obs)
    noise = draw_noise(config, batch.action.shape, key)
    old = state.params
    target = sampled_target(old.actor, state.target_critic, next_features, batch, noise.next_action, config.gamma)
    sampled = proposals(old.actor, features, next_features, noise.samples, noise.uniform)
    cloning = state.step < config.cloning_steps if config.cloning_steps else None

    def loss(moving: Params) -> tuple[Array, tuple[Array, ...]]:
        real_q = q_values(moving.critic, features, batch.action)
        error = td_loss(real_q, target)
        gaps = gap(moving.critic, features, real_q, sampled)
        push, multiplier = penalty(config, gaps, moving.log_multiplier)
        actor, log_prob = soft_or_cloning_loss(
            moving.actor,
            old.critic,
            log_alpha=old.log_alpha,
            features=features,
            real_action=batch.action,
            noise=noise.action,
            cloning=cloning,
        )
        temperature = temperature_loss(moving.log_alpha, log_prob, batch.action.shape[-1])
        return error + push + multiplier + actor + temperature, (error, gaps, actor, log_prob, real_q)

    grads, (error, gaps, actor, log_prob, q) = jax.grad(loss, has_aux=True)(old)
    params, opt = descend(optimiser(config), grads, state.opt, old)
    target_critic = moving_average(state.target_critic, params.critic, config.tau)
    return State(params, target_critic, opt, state.key, state.step + 1), {
        "critic_loss": error,
        "conservative_gap": gaps.mean(),
        "actor_loss": actor,
        "entropy": -log_prob.mean(),
        "alpha": jnp.exp(old.log_alpha),
        **q_range(q),
    }


def policies(state: State) -> dict[str, TanhGaussian]:
    return {"policy": state.params.actor}
