"""Models that are turned against a policy while they stay close to the log: RAMBO's model gradient.

With A = r + gamma V(s') - Q(s, a), of outcomes that the models themselves draw under the policy,

    d/dphi V_phi = E[A d/dphi log T_phi(s', r | s, a)]

so that descending A log T_phi lowers the policy's value: what turned out well becomes less likely. Beside it stands
the likelihood of logged rows, which says how far the models may go. Targets are standardised by column, as in the
fit; in raw units every log-likelihood would differ by the same constant, which no gradient sees.
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

SMALLEST_SPREAD = 1e-6  # of advantages in a batch


class Played(NamedTuple):
    """Outcomes that the models drew, and how much better than expected they were. Nothing here has a gradient."""

    x: Array  # (batch, inputs): what the models saw
    target: Array  # (batch, targets): what they drew, before it was kept inside the log's range
    advantage: Array  # (batch,)


class Logged(NamedTuple):
    """Rows of the log, another batch for every member."""

    x: Array  # (members, batch, inputs)
    targets: Targets


def draw_targets(models: Ensemble, x: Array, key: Array) -> Array:
    """(batch, targets): an outcome of each row from a member of its own, drawn anew at every call."""
    member_key, noise_key = jax.random.split(key)
    mean, log_std = models.normalised(x)
    pick = jax.random.randint(member_key, x.shape[:1], 0, models.size), jnp.arange(x.shape[0])
    noise = jax.random.normal(noise_key, mean.shape[1:])
    return jax.lax.stop_gradient(mean[pick] + jnp.exp(log_std[pick]) * noise)


def draw_logged(place: ModelEnv, data: DeviceDataset, counts: Array | None, batch: int, key: Array) -> Logged:
    """Logged rows as the models see and predict them. `counts` says which targets were logged; None: all."""
    models = place.models
    pick = jax.random.randint(key, (models.size, batch), 0, data.transitions.reward.shape[0])
    rows = jax.tree.map(lambda part: part[pick], data.transitions)
    target = jnp.concatenate([rows.next_obs - rows.obs, rows.reward[..., None] / place.reward_unit], axis=-1)
    value = (target - models.target_mean) / models.target_std
    return Logged(
        model_inputs(place.model_norm, rows.obs, rows.action), Targets(value, None if counts is None else counts[pick])
    )


def log_likelihood(models: Ensemble, x: Array, target: Array) -> Array:
    """(batch,): log of the members' average density of a target, jointly over all of its columns."""
    mean, log_std = models.normalised(x)
    each = -(nll(mean, log_std, target) + LOG_SQRT_2PI).sum(-1)
    return jax.nn.logsumexp(each, axis=0) - jnp.log(models.size)


def adversarial_loss(models: Ensemble, played: Played) -> Array:
    """E[A log T_phi], advantages standardised within the batch: its gradient is the policy's value's, scaled."""
    advantage = played.advantage - played.advantage.mean()
    advantage = jax.lax.stop_gradient(advantage / (played.advantage.std() + SMALLEST_SPREAD))
    return (advantage * log_likelihood(models, played.x, played.target)).mean()


def likelihood_loss(models: Ensemble, logged: Logged) -> Array:
    """The fit's loss at exponent 0, as RAMBO weighs it: twice the negative log-likelihood, averaged over targets."""
    targets = logged.targets
    loss = beta_nll_loss(models, logged.x, targets.value, 0.0, targets.counts)
    return 2.0 * loss / targets.value.shape[-1]
