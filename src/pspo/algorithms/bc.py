"""BC: behaviour cloning, the behaviour policy by maximum likelihood, which every other algorithm should beat.

It is the same density that PSPO takes as its reference mu: a Gaussian mixture before the squash, so that data with
several modes (a trader who sells all or nothing) are not averaged into actions that were never taken. `components=1`
is the usual single Gaussian. It acts by its mode. Discrete actions have a categorical policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from pspo.algorithms.common.behaviour import log_likelihood_loss
from pspo.algorithms.common.discrete import new_policy
from pspo.algorithms.common.model_free import Setup, begin_chunk, descend, draw, prepare
from pspo.algorithms.common.settings import BatchConfig
from pspo.core.config import Bounds
from pspo.data.batches import DeviceDataset, Transitions
from pspo.data.normalise import unsquash
from pspo.nets.categorical import CategoricalPolicy
from pspo.nets.policies import MixturePolicy, mixture_policy

__all__ = ["HEADLINE", "Config", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("policy_loss",)
UNUSED_IF_DISCRETE = ("components",)


@dataclass(frozen=True)
class Config(BatchConfig):
    components: Annotated[int, Bounds(1, 64)] = 1
    """Gaussians in the mixture."""
    lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-3
    """Initial learning rate; it decays to zero along a cosine."""
    rewards: Literal["raw", "range", "std"] = "std"
    """No effect on BC, which learns from no reward; here so that settings for batches fit all algorithms."""


class State(NamedTuple):
    """Everything that resuming needs."""

    policy: MixturePolicy | CategoricalPolicy
    opt: Any
    key: Array
    step: Array


def optimiser(config: Config) -> optax.GradientTransformation:
    return optax.adam(optax.cosine_decay_schedule(config.lr, config.steps))


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    key, net_key = jax.random.split(key)
    columns = data.transitions.action.shape[-1]
    if setup.labels:
        policy = new_policy(net_key, setup.norm, setup.labels, config.width, config.depth)
    else:
        policy = mixture_policy(net_key, setup.norm.features, columns, config.width, config.depth, config.components)
    return State(policy, optimiser(config).init(policy), key, jnp.int32(0))  # pyright: ignore[reportArgumentType]


def update(
    config: Config, setup: Setup, context: None, state: State, batch: Transitions, key: Array
) -> tuple[State, dict[str, Array]]:
    """One step of maximum likelihood."""
    features, x = setup.norm.encode(batch.obs), batch.action if setup.labels else unsquash(batch.action)
    loss, grads = jax.value_and_grad(log_likelihood_loss)(state.policy, features, x)
    policy, opt = descend(optimiser(config), grads, state.opt, state.policy)
    return State(policy, opt, state.key, state.step + 1), {"policy_loss": loss}


def policies(state: State) -> dict[str, MixturePolicy | CategoricalPolicy]:
    return {"policy": state.policy}
