"""What PSPO holds: what gradients move, what resuming needs, and what is fixed during training."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from pspo.algorithms.pspo.posterior import Limits
from pspo.data.batches import Transitions
from pspo.data.normalise import Normaliser
from pspo.dynamics.ensemble import Ensemble
from pspo.dynamics.persistent_rollouts import PersistentRollouts
from pspo.dynamics.prediction_range import PredictionRange
from pspo.dynamics.termination import Termination
from pspo.nets.categorical import CategoricalPolicy
from pspo.nets.mlp import MLP
from pspo.nets.policies import MixturePolicy

PolicyNetwork = MixturePolicy | CategoricalPolicy  # the second for discrete actions


class Params(NamedTuple):
    """What gradients move."""

    policy: PolicyNetwork
    critic: MLP  # stacked
    value: MLP


class State(NamedTuple):
    """Everything that resuming needs."""

    params: Params
    target_critic: MLP
    target_policy: PolicyNetwork  # pi', the centre of the trust region
    opt: Any
    log_lambda: Array  # of the trust-region multiplier
    f_scale: Array  # running standard deviation of F between models
    rollouts: PersistentRollouts
    visited: Array  # (capacity, obs_dim): past states of rollouts, the oldest overwritten first
    key: Array
    step: Array


class Arrays(NamedTuple):
    """Fixed during training, on the device."""

    pool: Ensemble
    log_prior: Array  # (pool,)
    reference: PolicyNetwork  # mu
    terminated: Termination


class Setup(NamedTuple):
    """Everything that is fixed during training."""

    arrays: Arrays
    norm: Normaliser
    range: PredictionRange
    limits: Limits = Limits()


class Batch(NamedTuple):
    real: Transitions
    restart: Array  # dataset states from which rollouts restart


class ModelReturns(NamedTuple):
    """What the policy gets in the models, from every state of its rollouts on (model_returns.py)."""

    obs: Array  # (steps x rollouts, obs_dim)
    returns: Array  # (steps x rollouts,): discounted, normalised
    alive: Array  # (steps x rollouts,): how many of the states so far lie before the end of their rollout

    def draw(self, key: Array, count: int) -> Array:
        """Indices of states before the end, with replacement."""
        return jnp.searchsorted(self.alive, jax.random.randint(key, (count,), 0, self.alive[-1]), side="right")


class Context(NamedTuple):
    """What is fixed during a chunk: the active set; with `value_rollouts` the policy's returns in it, and how far from
    mu they let the policy go."""

    models: Ensemble
    log_prior: Array
    returns: ModelReturns | None = None
    kl_limit: Array | None = None  # None: as configured
