"""TD3+BC (Fujimoto and Gu 2021, "A Minimalist Approach to Offline Reinforcement Learning").

TD3 with a behaviour cloning term: the value term is divided by its own size, so that one alpha fits all rewards.
The critics, the target smoothing and the delayed actor are TD3's; the equation numbers are the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from pspo.algorithms.common.losses import bellman_target, q_range, q_values, smoothed_action, td_loss
from pspo.algorithms.common.model_free import Setup, begin_chunk, delayed, descend, draw, layer_sizes, prepare
from pspo.algorithms.common.settings import BatchConfig
from pspo.core.config import Bounds
from pspo.data.batches import DeviceDataset, Transitions
from pspo.nets.actors import Deterministic
from pspo.nets.mlp import MLP, mlp, mlp_stack, moving_average

__all__ = ["HEADLINE", "Config", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("critic_loss",)


@dataclass(frozen=True)
class Config(BatchConfig):
    alpha: Annotated[float, Bounds(0.0, 1e6)] = 2.5
    """Weight of the value against behaviour cloning (Eq. 5); 0 is pure behaviour cloning."""
    noise: Annotated[float, Bounds(0.0, 10.0)] = 0.2
    """Standard deviation of the target action's noise."""
    noise_clip: Annotated[float, Bounds(0.0, 10.0)] = 0.5
    """Largest size of that noise."""
    actor_period: Annotated[int, Bounds(1, 1000)] = 2
    """Critic steps per actor step; the target networks move with the actor."""
    critic_lr: Annotated[float, Bounds(0.0, 1.0)] = 3e-4
    """Learning rate of the critics."""
    actor_lr: Annotated[float, Bounds(0.0, 1.0)] = 3e-4
    """Learning rate of the actor."""
    tau: Annotated[float, Bounds(0.0, 1.0)] = 0.005
    """Moving-average rate of the target networks, per actor step."""


class Params(NamedTuple):
    """What gradients move."""

    actor: Deterministic
    critic: MLP  # two, stacked


class State(NamedTuple):
    """Everything that resuming needs."""

    params: Params
    target: Params
    actor_opt: Any
    critic_opt: Any
    key: Array
    step: Array


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    key, actor_key, critic_key = jax.random.split(key, 3)
    inputs, columns, hidden = layer_sizes(config, setup.norm, data)
    actor = Deterministic(mlp(actor_key, [inputs, *hidden, columns], "relu", init="torch"))
    critic = mlp_stack(critic_key, 2, [inputs + columns, *hidden, 1], activation="relu", init="torch")
    params = Params(actor, critic)
    opts = optax.adam(config.actor_lr).init(actor), optax.adam(config.critic_lr).init(critic)  # pyright: ignore[reportArgumentType]
    return State(params, params, *opts, key, jnp.int32(0))


def critic_target(config: Config, target: Params, next_features: Array, batch: Transitions, noise: Array) -> Array:
    """r + gamma min_j Q'_j(s', a~'), a~' the target actor's action, smoothed (TD3, Eqs. 10 and 14)."""
    action = smoothed_action(target.actor(next_features), noise, config.noise, config.noise_clip)
    next_value = q_values(target.critic, next_features, action).min(0)
    return bellman_target(batch.reward, batch.terminal, next_value, config.gamma)


def actor_loss(config: Config, actor: Deterministic, critic: MLP, features: Array, real_action: Array) -> Array:
    """-lambda Q_1(s, pi(s)) + (pi(s) - a)^2, lambda = alpha / mean |Q_1| (Eqs. 3, 5); means over batch and columns."""
    action = actor(features)
    q = q_values(critic, features, action)[0]
    scale = config.alpha / jax.lax.stop_gradient(jnp.abs(q).mean())
    return -scale * q.mean() + jnp.square(action - real_action).mean()


def update(
    config: Config, setup: Setup, context: None, state: State, batch: Transitions, key: Array
) -> tuple[State, dict[str, Array]]:
    """One critic step; in every second iteration also one of the actor and of the target networks."""
    features, next_features = setup.norm.encode(batch.obs), setup.norm.encode(batch.next_obs)
    target = critic_target(config, state.target, next_features, batch, jax.random.normal(key, batch.action.shape))

    def loss(critic: MLP) -> tuple[Array, Array]:
        q = q_values(critic, features, batch.action)
        return td_loss(q, target), q

    (loss_critic, q), grads = jax.value_and_grad(loss, has_aux=True)(state.params.critic)
    critic, critic_opt = descend(optax.adam(config.critic_lr), grads, state.critic_opt, state.params.critic)
    state = state._replace(params=state.params._replace(critic=critic), critic_opt=critic_opt)

    def improve(state: State) -> tuple[State, Array]:
        loss, grads = jax.value_and_grad(
            lambda actor: actor_loss(config, actor, state.params.critic, features, batch.action)
        )(state.params.actor)
        actor, actor_opt = descend(optax.adam(config.actor_lr), grads, state.actor_opt, state.params.actor)
        params = state.params._replace(actor=actor)
        target = moving_average(state.target, params, config.tau)
        return state._replace(params=params, target=target, actor_opt=actor_opt), loss

    state, loss_actor = delayed(state.step, config.actor_period, improve, state)
    return state._replace(step=state.step + 1), {
        "critic_loss": loss_critic,
        "actor_loss": loss_actor * config.actor_period,  # its mean over a chunk counts the iterations without one
        **q_range(q),
    }


def policies(state: State) -> dict[str, Deterministic]:
    return {"policy": state.params.actor}
