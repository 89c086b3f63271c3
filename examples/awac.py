"""AWAC (Nair et al. 2020, "AWAC: Accelerating Online RL with Offline Datasets"), trained on a fixed dataset.

docs/adding.md walks through this file. The policy is a Gaussian mixture here, not the authors' single Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, value_and_grad

from pspo.algorithms.common.losses import advantage_weight, bellman_target, q_values, td_loss
from pspo.algorithms.common.model_free import Setup, begin_chunk, descend, draw, prepare
from pspo.algorithms.common.settings import BatchConfig
from pspo.core.config import Bounds
from pspo.data.batches import DeviceDataset, Transitions
from pspo.data.normalise import squash, unsquash
from pspo.nets.mlp import MLP, mlp_stack, moving_average
from pspo.nets.policies import MixturePolicy, mixture_policy

__all__ = ["HEADLINE", "PRESETS", "Config", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("advantage", "critic_loss")  # shown in the progress display
PRESETS = {"laptop": {"common": {"steps": 10000, "width": 64}, "liquidation": {"gamma": 1.0, "components": 4}}}


@dataclass(frozen=True)
class Config(BatchConfig):
    temperature: Annotated[float, Bounds(1e-6, 1e6)] = 0.1
    """lambda: advantages are divided by it; small values prefer the best actions, large ones are BC."""
    weight_max: Annotated[float, Bounds(1e-6, 1e9)] = 20.0
    """Largest weight of a transition in the actor's loss."""
    samples: Annotated[int, Bounds(1, 1024)] = 4
    """Actions drawn from the policy to estimate V(s)."""
    components: Annotated[int, Bounds(1, 64)] = 1
    """Gaussians in the policy's mixture."""
    lr: Annotated[float, Bounds(0.0, 1.0)] = 3e-4
    """Learning rate of actor and critics."""
    tau: Annotated[float, Bounds(0.0, 1.0)] = 0.005
    """Step of the target critics towards the critics, once per iteration."""


class State(NamedTuple):
    """Everything that changes, and so everything that resuming needs."""

    actor: MixturePolicy
    critic: MLP  # two, stacked
    target_critic: MLP
    opts: tuple[Any, Any]  # of actor and critic
    key: Array
    step: Array


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    key, actor_key, critic_key = jax.random.split(key, 3)
    inputs, columns, rule = setup.norm.features, data.transitions.action.shape[-1], optax.adam(config.lr)
    actor = mixture_policy(actor_key, inputs, columns, config.width, config.depth, config.components)
    critic = mlp_stack(critic_key, 2, [inputs + columns, *[config.width] * config.depth, 1])
    return State(actor, critic, critic, (rule.init(actor), rule.init(critic)), key, jnp.int32(0))


def policy_value(actor: MixturePolicy, critic: MLP, config: Config, features: Array, key: Array) -> Array:
    """V(s) = E_{a~pi} min_j Q_j(s, a), estimated from a few samples."""
    action = squash(actor(features).sample(key, config.samples))
    return q_values(critic, features, action).min(0).mean(0)


def actor_loss(actor: MixturePolicy, config: Config, features: Array, action: Array, advantage: Array) -> Array:
    """-log pi(a|s) exp(A(s, a) / lambda) over the dataset's actions: AWAC's actor update."""
    weight = advantage_weight(advantage, 1.0 / config.temperature, config.weight_max)
    return -(weight * actor(features).log_prob(unsquash(action))).mean()


def update(
    config: Config, setup: Setup, context: None, state: State, batch: Transitions, key: Array
) -> tuple[State, dict[str, Array]]:
    """One step of the critics towards the policy's value, then one of the actor."""
    features, next_features = setup.norm.encode(batch.obs), setup.norm.encode(batch.next_obs)
    (actor_opt, critic_opt), rule, (k_next, k_now) = state.opts, optax.adam(config.lr), jax.random.split(key)

    next_value = policy_value(state.actor, state.target_critic, config, next_features, k_next)
    target = bellman_target(batch.reward, batch.terminal, next_value, config.gamma)  # y = r + gamma V(s')
    q_loss, grads = value_and_grad(lambda net: td_loss(q_values(net, features, batch.action), target))(state.critic)
    critic, critic_opt = descend(rule, grads, critic_opt, state.critic)

    q = q_values(critic, features, batch.action).min(0)
    advantage = q - policy_value(state.actor, critic, config, features, k_now)  # A(s, a) = Q(s, a) - V(s)
    pi_loss, grads = value_and_grad(actor_loss)(state.actor, config, features, batch.action, advantage)
    actor, actor_opt = descend(rule, grads, actor_opt, state.actor)
    target_critic = moving_average(state.target_critic, critic, config.tau)
    metrics = {"critic_loss": q_loss, "actor_loss": pi_loss, "advantage": advantage.mean(), "q_mean": q.mean()}
    return State(actor, critic, target_critic, (actor_opt, critic_opt), state.key, state.step + 1), metrics


def policies(state: State) -> dict[str, MixturePolicy]:
    return {"policy": state.actor}
