"""CQL for discrete actions (Kumar et al. 2020): Q-learning whose values are also pushed down where the data have none.

    L(Q) = (Q(s,a) - r - gamma Q'(s', argmax_a' Q(s',a')))^2  +  alpha_c (log sum_a exp Q(s,a) - Q(s,a_data))

The first term is that of Double DQN (van Hasselt et al. 2016), the second CQL(H) of Eq. 4 with an exact sum over
actions. One network gives Q of all actions. There is no actor: the policy is proportional to exp Q, the distribution
that the second term pushes down, and acts by the highest Q. The settings are those of algorithm.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from pspo.algorithms.common.discrete import new_policy
from pspo.algorithms.common.losses import bellman_target, q_range
from pspo.algorithms.common.model_free import Setup, begin_chunk, descend, draw, prepare
from pspo.algorithms.cql.algorithm import Config
from pspo.data.batches import DeviceDataset, Transitions
from pspo.nets.categorical import CategoricalPolicy
from pspo.nets.mlp import moving_average

__all__ = ["HEADLINE", "Config", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("critic_loss",)
UNUSED_IF_DISCRETE = ("samples", "gap_limit", "cloning_steps", "actor_lr", "alpha_lr")


class State(NamedTuple):
    """Everything that resuming needs."""

    critic: CategoricalPolicy  # its logits are Q of all actions
    target_critic: CategoricalPolicy
    opt: Any
    key: Array
    step: Array


def optimiser(config: Config) -> optax.GradientTransformation:
    return optax.adam(config.critic_lr)


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    key, net_key = jax.random.split(key)
    assert setup.labels is not None
    critic = new_policy(
        net_key, setup.norm, setup.labels, config.width, config.depth, activation="relu", init="rlkit-critic"
    )
    return State(critic, critic, optimiser(config).init(critic), key, jnp.int32(0))  # pyright: ignore[reportArgumentType]


def q_target(config: Config, state: State, next_features: Array, batch: Transitions) -> Array:
    """r + gamma Q'(s', a'), where a' is best by the other network: Double DQN."""
    best = state.critic.unit_action(next_features)
    next_q = (state.target_critic.net(next_features) * best).sum(-1)
    return bellman_target(batch.reward, batch.terminal, next_q, config.gamma)


def gap(critic: CategoricalPolicy, features: Array, q_data: Array) -> Array:
    """log sum_a exp Q(s,a) - Q(s,a_data), over the available actions (Eq. 4); zero at least."""
    return (jax.nn.logsumexp(critic.logits(features), -1) - q_data).mean()


def update(
    config: Config, setup: Setup, context: None, state: State, batch: Transitions, key: Array
) -> tuple[State, dict[str, Array]]:
    """One step of Q."""
    features, next_features = setup.norm.encode(batch.obs), setup.norm.encode(batch.next_obs)
    target = q_target(config, state, next_features, batch)

    def loss(critic: CategoricalPolicy) -> tuple[Array, tuple[Array, Array, Array]]:
        q = (critic.net(features) * batch.action).sum(-1)
        error, push = jnp.square(q - target).mean(), gap(critic, features, q)
        return error + config.conservatism * push, (error, push, q)

    grads, (error, push, q) = jax.grad(loss, has_aux=True)(state.critic)
    critic, opt = descend(optimiser(config), grads, state.opt, state.critic)
    target_critic = moving_average(state.target_critic, critic, config.tau)
    return State(critic, target_critic, opt, state.key, state.step + 1), {
        "critic_loss": error,
        "conservative_gap": push,
        "entropy": state.critic(features).entropy().mean(),
        **q_range(q),
    }


def policies(state: State) -> dict[str, CategoricalPolicy]:
    return {"policy": state.critic}
