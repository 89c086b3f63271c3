"""SAC's step (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications") as functions.

Used by the online learner that collects data, and by the model-based algorithms that learn from synthetic transitions.
All losses are taken at the same parameters, in one fused step, as in the authors' code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from pspo.algorithms.common.discrete import all_actions
from pspo.algorithms.common.losses import bellman_target, q_range, q_values, soft_actor_loss, td_loss, temperature_loss
from pspo.data.batches import Transitions
from pspo.nets.actors import TanhGaussian
from pspo.nets.categorical import CategoricalPolicy
from pspo.nets.mlp import MLP, moving_average

Actor = TanhGaussian | CategoricalPolicy


class Params(NamedTuple):
    """What gradients move."""

    actor: Any  # an `Actor`
    critic: MLP  # two or more, stacked
    log_alpha: Array


class Agent(NamedTuple):
    """What a step changes."""

    params: Params
    target_critic: MLP
    opt: Any


class EncodedBatch(NamedTuple):
    """Transitions, and their states as networks see them."""

    batch: Transitions
    features: Array
    next_features: Array


class Rule(NamedTuple):
    """Settings of a step."""

    optimiser: optax.GradientTransformation
    gamma: float
    tau: float
    entropy_goal: float  # in nats, for the whole action; alpha is adapted to it
    adapt: bool = True  # whether alpha is adapted at all


def fresh_agent(params: Params, optimiser: optax.GradientTransformation) -> Agent:
    return Agent(params, params.critic, optimiser.init(params))  # pyright: ignore[reportArgumentType]


def soft_target(params: Params, target_critic: MLP, encoded: EncodedBatch, noise: Array, gamma: float) -> Array:
    """r + gamma (min_j Q'_j(s', a') - alpha log pi(a'|s')), a' ~ pi(.|s'); nothing follows a terminal (Eqs. 3, 5)."""
    q, log_prob = lowest_q(params.actor, target_critic, encoded.next_features, noise)
    soft = q - jnp.exp(params.log_alpha) * log_prob
    return bellman_target(encoded.batch.reward, encoded.batch.terminal, soft, gamma)


def actor_loss(actor: Actor, critic: MLP, alpha: Array, features: Array, noise: Array) -> tuple[Array, Array]:
    """alpha log pi(a|s) - min_j Q_j(s, a) at reparameterised actions (Eq. 9); also log pi itself."""
    q, log_prob = lowest_q(actor, critic, features, noise)
    return soft_actor_loss(log_prob, q, alpha), log_prob


def lowest_q(actor: Actor, critic: MLP, features: Array, noise: Array) -> tuple[Array, Array]:
    """min_j Q_j(s, a) and log pi(a|s) at a reparameterised action.

    Discrete actions need no noise: both are exact expectations over a ~ pi (Christodoulou 2019, "Soft Actor-Critic for
    Discrete Action Settings", Eqs. 10 and 12).
    """
    if isinstance(actor, CategoricalPolicy):
        policy, labels = actor(features), actor.action_dim
        q = q_values(critic, features, all_actions(labels, features.shape[0])).min(0).T
        return policy.mean(q), -policy.entropy()
    action, log_prob = actor.sample(features, noise)
    return q_values(critic, features, action).min(0), log_prob


Penalty = Callable[[MLP, Array], tuple[Array, dict[str, Array]]]
"""(critics, their Q on the batch) -> a term that is added to their loss, and metrics of it."""


def soft_step(
    rule: Rule,
    agent: Agent,
    encoded: EncodedBatch,
    key: Array,
    target: Callable[[Array], Array] | None = None,
    penalty: Penalty = lambda critic, q: (jnp.float32(0.0), {}),
) -> tuple[Agent, dict[str, Array]]:
    """One fused step of critics, actor and temperature.

    `target` (a function of the noise) replaces SAC's own; `penalty` is added to the critics' loss.
    """
    next_key, actor_key = jax.random.split(key)
    next_noise, noise = (jax.random.normal(k, encoded.batch.action.shape) for k in (next_key, actor_key))
    old = agent.params
    backup = target(next_noise) if target else soft_target(old, agent.target_critic, encoded, next_noise, rule.gamma)

    def loss(moving: Params) -> tuple[Array, tuple[Any, ...]]:
        q = q_values(moving.critic, encoded.features, encoded.batch.action)
        critic = td_loss(q, backup)  # Eq. 5, up to a factor
        extra, extra_metrics = penalty(moving.critic, q)
        actor, log_prob = actor_loss(moving.actor, old.critic, jnp.exp(old.log_alpha), encoded.features, noise)
        temperature = temperature_loss(moving.log_alpha, log_prob, -rule.entropy_goal) if rule.adapt else 0.0
        return critic + extra + actor + temperature, (critic, actor, log_prob, q, extra_metrics)

    grads, (loss_critic, loss_actor, log_prob, q, extra_metrics) = jax.grad(loss, has_aux=True)(old)
    changes, opt = rule.optimiser.update(grads, agent.opt, old)  # pyright: ignore[reportArgumentType]
    params: Params = optax.apply_updates(old, changes)  # pyright: ignore[reportAssignmentType, reportArgumentType]
    target_critic = moving_average(agent.target_critic, params.critic, rule.tau)
    return Agent(params, target_critic, opt), {
        "critic_loss": loss_critic,
        "actor_loss": loss_actor,
        "entropy": -log_prob.mean(),
        "alpha": jnp.exp(old.log_alpha),
        **q_range(q),
        **extra_metrics,
    }
