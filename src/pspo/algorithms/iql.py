"""IQL (Kostrikov et al. 2021, "Offline Reinforcement Learning with Implicit Q-Learning").

V is an upper expectile of Q over the dataset's actions, Q is backed up through V, and the policy imitates the dataset's
actions weighted by their advantage: no action outside the dataset is ever evaluated. Equation numbers are the paper's.
As in the authors' code the steps follow each other (V, actor, Q), the advantage takes the target critics and the new V,
and the actor is an unsquashed Gaussian around tanh of its network with one standard deviation for all states. For
discrete actions the actor is categorical, and nothing else changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from pspo.algorithms.common.discrete import new_policy
from pspo.algorithms.common.losses import advantage_weight, bellman_target, expectile_loss, q_range, q_values, td_loss
from pspo.algorithms.common.model_free import Setup, begin_chunk, descend, draw, layer_sizes, prepare
from pspo.algorithms.common.settings import BatchConfig
from pspo.core.config import Bounds
from pspo.data.batches import DeviceDataset, Transitions
from pspo.nets.actors import ClippedGaussian
from pspo.nets.categorical import CategoricalPolicy
from pspo.nets.mlp import MLP, mlp, mlp_stack, moving_average

__all__ = ["HEADLINE", "Config", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("critic_loss",)

INSIDE = 1.0 - 1e-5  # actions are clipped to this, as in the authors' code


@dataclass(frozen=True)
class Config(BatchConfig):
    expectile: Annotated[float, Bounds(0.0, 1.0)] = 0.7
    """tau: 0.5 evaluates the behaviour policy, near 1 the best of its actions (Eq. 5)."""
    temperature: Annotated[float, Bounds(0.0, 1e6)] = 3.0
    """beta: how sharply the actor prefers actions of high advantage; 0 is plain imitation (Eq. 7)."""
    weight_max: Annotated[float, Bounds(1e-6, 1e9)] = 100.0
    """Largest weight in the actor's loss (the authors' number)."""
    critic_lr: Annotated[float, Bounds(0.0, 1.0)] = 3e-4
    """Learning rate of Q and V."""
    actor_lr: Annotated[float, Bounds(0.0, 1.0)] = 3e-4
    """Learning rate of the actor at the start; it falls to zero along a cosine."""
    tau: Annotated[float, Bounds(0.0, 1.0)] = 0.005
    """Moving-average rate of the target critics."""


Actor = ClippedGaussian | CategoricalPolicy


class State(NamedTuple):
    """Everything that resuming needs."""

    actor: Actor
    critic: MLP  # two, stacked
    value: MLP
    target_critic: MLP
    opts: tuple[Any, ...]  # of actor, critic, value
    key: Array
    step: Array


def optimisers(config: Config) -> tuple[optax.GradientTransformation, ...]:
    """Of actor, critic, value."""
    cosine = optax.cosine_decay_schedule(config.actor_lr, config.steps)
    return optax.adam(cosine), optax.adam(config.critic_lr), optax.adam(config.critic_lr)


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    key, actor_key, critic_key, value_key = jax.random.split(key, 4)
    inputs, columns, hidden = layer_sizes(config, setup.norm, data)
    actor = new_actor(config, setup, columns, actor_key)
    critic = mlp_stack(critic_key, 2, [inputs + columns, *hidden, 1], activation="relu", init="orthogonal")
    value = mlp(value_key, [inputs, *hidden, 1], "relu", init="orthogonal")
    nets: Any = (actor, critic, value)
    opts = tuple(rule.init(net) for rule, net in zip(optimisers(config), nets, strict=True))
    return State(actor, critic, value, critic, opts, key, jnp.int32(0))


def new_actor(config: Config, setup: Setup, columns: int, key: Array) -> Actor:
    shape: dict[str, Any] = {"activation": "relu", "init": "orthogonal"}
    if setup.labels:
        return new_policy(key, setup.norm, setup.labels, config.width, config.depth, **shape)
    return ClippedGaussian(
        mlp(key, [setup.norm.features, *[config.width] * config.depth, columns], **shape), jnp.zeros(columns)
    )


def value_loss(config: Config, value: MLP, features: Array, q: Array) -> Array:
    """L_V: expectile regression of the target critics' minimum (Eq. 5)."""
    return expectile_loss(q - value(features)[..., 0], config.expectile)


def actor_loss(config: Config, actor: Actor, features: Array, action: Array, advantage: Array) -> Array:
    """L_pi: log-likelihood of the dataset's actions, weighted by exp(beta advantage) (Eq. 7)."""
    weight = advantage_weight(advantage, config.temperature, config.weight_max)
    inside = action if isinstance(actor, CategoricalPolicy) else jnp.clip(action, -INSIDE, INSIDE)
    return -(weight * actor.log_prob(features, inside)).mean()


def update(
    config: Config, setup: Setup, context: None, state: State, batch: Transitions, key: Array
) -> tuple[State, dict[str, Array]]:
    """One step each of V, actor and Q, in this order."""
    features, next_features = setup.norm.encode(batch.obs), setup.norm.encode(batch.next_obs)
    actor_rule, critic_rule, value_rule = optimisers(config)
    actor_opt, critic_opt, value_opt = state.opts
    q = q_values(state.target_critic, features, batch.action).min(0)

    loss_value, grads = jax.value_and_grad(lambda net: value_loss(config, net, features, q))(state.value)
    value, value_opt = descend(value_rule, grads, value_opt, state.value)

    advantage = q - value(features)[..., 0]
    loss_actor, grads = jax.value_and_grad(lambda net: actor_loss(config, net, features, batch.action, advantage))(
        state.actor
    )
    actor, actor_opt = descend(actor_rule, grads, actor_opt, state.actor)

    target = bellman_target(batch.reward, batch.terminal, value(next_features)[..., 0], config.gamma)  # L_Q (Eq. 6)
    loss_critic, grads = jax.value_and_grad(lambda net: td_loss(q_values(net, features, batch.action), target))(
        state.critic
    )
    critic, critic_opt = descend(critic_rule, grads, critic_opt, state.critic)

    target_critic = moving_average(state.target_critic, critic, config.tau)
    opts = (actor_opt, critic_opt, value_opt)
    return State(actor, critic, value, target_critic, opts, state.key, state.step + 1), {
        "critic_loss": loss_critic,
        "value_loss": loss_value,
        "actor_loss": loss_actor,
        "advantage": advantage.mean(),
        **q_range(q),
    }


def policies(state: State) -> dict[str, Actor]:
    return {"policy": state.actor}
