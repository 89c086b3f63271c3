"""Adversarial training of the models against a policy, close to the data: RAMBO's model gradient.

With A = r + gamma V(s') - Q(s, a), for outcomes that the models themselves draw under the policy,

    d/dphi V_phi = E[A d/dphi log T_phi(s', r | s, a)]

so that gradient descent on A log T_phi lowers the policy's value: good outcomes become less likely. The likelihood of
logged transitions, the second term of the loss, limits how far the models move. Targets are standardised by column, as
in the fit; in raw units every log-likelihood would differ by the same constant, which has no gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from pspo.data.batches import DeviceDataset
from pspo.dynamics.ensemble import Ensemble, model_inputs
from pspo.dynamics.fit import Targets, beta_nll_loss, nll
from pspo.dynamics.model_env import ModelEnv
from pspo.nets.policies import LOG_SQRT_2PI

MIN_ADVANTAGE_STD = 1e-6  # added to the standard deviation of the advantages in a batch


class ModelOutcomes(NamedTuple):
    """Outcomes that the models drew, and their advantages. No gradient flows through these."""

    x: Array  # (batch, inputs): the models' inputs
    target: Array  # (batch, targets): what they drew, before clipping
    advantage: Array  # (batch,)


class LoggedBatches(NamedTuple):
    """Transitions of the dataset, another batch for every member."""

    x: Array  # (members, batch, inputs)
    targets: Targets


def draw_targets(models: Ensemble, x: Array, key: Array) -> Array:
    """(batch, targets): one outcome per input, each from a random member."""
    member_key, noise_key = jax.random.split(key)
    mean, log_std = models.normalised(x)
    pick = jax.random.randint(member_key, x.shape[:1], 0, models.size), jnp.arange(x.shape[0])
    noise = jax.random.normal(noise_key, mean.shape[1:])
    return jax.lax.stop_gradient(mean[pick] + jnp.exp(log_std[pick]) * noise)


def draw_logged(env: ModelEnv, data: DeviceDataset, counts: Array | None, batch: int, key: Array) -> LoggedBatches:
    """Inputs and targets of logged transitions. `counts` says which targets were logged; None means all."""
    models = env.models
    pick = jax.random.randint(key, (models.size, batch), 0, data.transitions.reward.shape[0])
    real = jax.tree.map(lambda part: part[pick], data.transitions)
    target = jnp.concatenate([real.next_obs - real.obs, real.reward[..., None] / env.reward_unit], axis=-1)
    value = (target - models.target_mean) / models.target_std
    return LoggedBatches(
        model_inputs(env.model_norm, real.obs, real.action), Targets(value, None if counts is None else counts[pick])
    )


def log_likelihood(models: Ensemble, x: Array, target: Array) -> Array:
    """(batch,): log of the members' average density of a target, jointly over all of its columns."""
    mean, log_std = models.normalised(x)
    each = -(nll(mean, log_std, target) + LOG_SQRT_2PI).sum(-1)
    return jax.nn.logsumexp(each, axis=0) - jnp.log(models.size)


def adversarial_loss(models: Ensemble, outcomes: ModelOutcomes) -> Array:
    """E[A log T_phi], advantages standardised within the batch: its gradient is that of the policy's value, scaled."""
    advantage = outcomes.advantage - outcomes.advantage.mean()
    advantage = jax.lax.stop_gradient(advantage / (outcomes.advantage.std() + MIN_ADVANTAGE_STD))
    return (advantage * log_likelihood(models, outcomes.x, outcomes.target)).mean()


def likelihood_loss(models: Ensemble, logged: LoggedBatches) -> Array:
    """The loss of the fit at exponent 0, with RAMBO's weight: twice the mean NLL of a target."""
    targets = logged.targets
    loss = beta_nll_loss(models, logged.x, targets.value, 0.0, targets.counts)
    return 2.0 * loss / targets.value.shape[-1]
