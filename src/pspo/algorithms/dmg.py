"""DMG (Mao et al. 2024, "Doubly Mild Generalization for Offline Reinforcement Learning").

The backup blends the value inside the dataset (an expectile of Q over its actions, as in IQL) with the value of an
actor that generalises a little beyond it (as in TD3); a weighted imitation term keeps the actor near the dataset's
better actions. As in the authors' code V moves first, then Q, then the actor in every second iteration, on a cosine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from pspo.algorithms.common.losses import (
    advantage_weight,
    bellman_target,
    expectile_loss,
    q_range,
    q_values,
    smoothed_action,
    td_loss,
)
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
    mixture: Annotated[float, Bounds(0.0, 1.0)] = 0.25
    """lambda: fraction of the actor's value in the backup; 0 stays inside the dataset."""
    imitation: Annotated[float, Bounds(0.0, 1e6)] = 0.1
    """nu: weight of imitation in the actor's loss."""
    expectile: Annotated[float, Bounds(0.0, 1.0)] = 0.7
    """tau of the value inside the dataset."""
    temperature: Annotated[float, Bounds(0.0, 1e6)] = 3.0
    """How sharply imitation prefers actions of high advantage."""
    weight_max: Annotated[float, Bounds(1e-6, 1e9)] = 3.0
    """Largest weight in the imitation term."""
    noise: Annotated[float, Bounds(0.0, 10.0)] = 0.2
    """Standard deviation of the target action's noise."""
    noise_clip: Annotated[float, Bounds(0.0, 10.0)] = 0.5
    """Largest size of that noise."""
    actor_period: Annotated[int, Bounds(1, 1000)] = 2
    """Critic steps per actor step; the target networks move with the actor."""
    critic_lr: Annotated[float, Bounds(0.0, 1.0)] = 3e-4
    """Learning rate of Q and V."""
    actor_lr: Annotated[float, Bounds(0.0, 1.0)] = 3e-4
    """Learning rate of the actor at the start; it falls to zero along a cosine."""
    tau: Annotated[float, Bounds(0.0, 1.0)] = 0.005
    """Moving-average rate of the target networks, per actor step."""


class Moving(NamedTuple):
    """What has a moving average."""

    actor: Deterministic
    critic: MLP  # two, stacked


class State(NamedTuple):
    """Everything that resuming needs."""

    online: Moving
    target: Moving
    value: MLP
    opts: tuple[Any, ...]  # of actor, critic, value
    key: Array
    step: Array


def optimisers(config: Config) -> tuple[optax.GradientTransformation, ...]:
    """Of actor, critic, value; the cosine counts actor steps."""
    cosine = optax.cosine_decay_schedule(config.actor_lr, max(1, config.steps // config.actor_period))
    return optax.adam(cosine), optax.adam(config.critic_lr), optax.adam(config.critic_lr)


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    key, actor_key, critic_key, value_key = jax.random.split(key, 4)
    inputs, columns, hidden = layer_sizes(config, setup.norm, data)
    actor = Deterministic(mlp(actor_key, [inputs, *hidden, columns], "relu", init="torch"))
    critic = mlp_stack(critic_key, 2, [inputs + columns, *hidden, 1], activation="relu", init="torch")
    value = mlp(value_key, [inputs, *hidden, 1], "relu", init="torch")
    nets: Any = (actor, critic, value)
    opts = tuple(rule.init(net) for rule, net in zip(optimisers(config), nets, strict=True))
    online = Moving(actor, critic)
    return State(online, online, value, opts, key, jnp.int32(0))


def critic_target(
    config: Config, target: Moving, value: MLP, next_features: Array, batch: Transitions, noise: Array
) -> Array:
    """r + gamma [lambda min_j Q'_j(s', a~') + (1 - lambda) V(s')]."""
    action = smoothed_action(target.actor(next_features), noise, config.noise, config.noise_clip)
    beyond = q_values(target.critic, next_features, action).min(0)
    inside = value(next_features)[..., 0]
    mixed = config.mixture * beyond + (1.0 - config.mixture) * inside
    return bellman_target(batch.reward, batch.terminal, mixed, config.gamma)


def actor_loss(
    config: Config, actor: Deterministic, critic: MLP, features: Array, real_action: Array, advantage: Array
) -> Array:
    """-min_j Q_j(s, pi(s)) over its own size + nu w (pi(s) - a)^2, w = min(exp(temp advantage), w_max)."""
    action = actor(features)
    q = q_values(critic, features, action).min(0)
    weight = advantage_weight(advantage, config.temperature, config.weight_max)
    imitation = (weight[:, None] * jnp.square(action - real_action)).mean()
    return -q.mean() / jax.lax.stop_gradient(jnp.abs(q).mean()) + config.imitation * imitation


def update(
    config: Config, setup: Setup, context: None, state: State, batch: Transitions, key: Array
) -> tuple[State, dict[str, Array]]:
    """One step each of V and Q; in every second iteration also of the actor and of the target networks."""
    features, next_features = setup.norm.encode(batch.obs), setup.norm.encode(batch.next_obs)
    actor_rule, critic_rule, value_rule = optimisers(config)
    actor_opt, critic_opt, value_opt = state.opts
    real_q = q_values(state.target.critic, features, batch.action).min(0)

    loss_value, grads = jax.value_and_grad(
        lambda net: expectile_loss(real_q - net(features)[..., 0], config.expectile)
    )(state.value)
    value, value_opt = descend(value_rule, grads, value_opt, state.value)

    noise = jax.random.normal(key, batch.action.shape)
    target = critic_target(config, state.target, value, next_features, batch, noise)

    def loss(critic: MLP) -> tuple[Array, Array]:
        q = q_values(critic, features, batch.action)
        return td_loss(q, target), q

    (loss_critic, q), grads = jax.value_and_grad(loss, has_aux=True)(state.online.critic)
    critic, critic_opt = descend(critic_rule, grads, critic_opt, state.online.critic)
    state = state._replace(
        online=state.online._replace(critic=critic), value=value, opts=(actor_opt, critic_opt, value_opt)
    )
    advantage = real_q - value(features)[..., 0]

    def improve(state: State) -> tuple[State, Array]:
        loss, grads = jax.value_and_grad(
            lambda actor: actor_loss(config, actor, state.online.critic, features, batch.action, advantage)
        )(state.online.actor)
        actor, actor_opt = descend(actor_rule, grads, state.opts[0], state.online.actor)
        online = state.online._replace(actor=actor)
        target = moving_average(state.target, online, config.tau)
        return state._replace(online=online, target=target, opts=(actor_opt, *state.opts[1:])), loss

    state, loss_actor = delayed(state.step, config.actor_period, improve, state)
    return state._replace(step=state.step + 1), {
        "critic_loss": loss_critic,
        "value_loss": loss_value,
        "actor_loss": loss_actor * config.actor_period,  # its mean over a chunk counts the iterations without one
        "advantage": advantage.mean(),
        **q_range(q),
    }


def policies(state: State) -> dict[str, Deterministic]:
    return {"policy": state.online.actor}
