"""PSPO, step 1: the posterior over models at each (s, a), and the backup it gives.

F(T_i) = (Q(s,a) - (r + gamma E_{s'~T_i} V(s')))^2          Eq. (3), reweight_metric in the paper's source
P(T_i|E) = P(T_i) exp(-beta F(T_i)) / normaliser            Eq. (4), model:eq1
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from pspo.data.normalise import Normaliser
from pspo.dynamics.ensemble import Ensemble, Prediction, draw_next, model_inputs
from pspo.dynamics.prediction_range import Box, PredictionRange, outside
from pspo.dynamics.termination import Termination


def consistency(q: Array, backups: Array) -> Array:
    """F of Eq. (3): squared difference between Q(s, a) and each model's backup; backups (models, batch)."""
    return jnp.square(q - backups)


def log_posterior(log_prior: Array, f: Array, beta: float | Array) -> Array:
    """Eq. (4): the minimiser of KL(P || prior) + beta E_P[F]; log_prior (models,), f (models, batch)."""
    return jax.nn.log_softmax(log_prior[:, None] - beta * f, axis=0)


def entropy(log_weight: Array) -> Array:
    """Entropy in nats per column of (models, batch) log-weights; zero weights contribute nothing."""
    return -jnp.sum(jnp.where(log_weight > -jnp.inf, jnp.exp(log_weight) * log_weight, 0.0), axis=0)


# Nats per transition and target that make a member e times lighter. Members fitted to the same data differ by
# hundredths and keep their weight; one fitted to shuffled targets is worse by more than a nat and loses all of it.
PRIOR_TEMPERATURE = 0.05


def likelihood_log_prior(holdout_nll: Array, temperature: float) -> Array:
    """A prior from the members' hold-out likelihood: members that explain unseen transitions better weigh more.

    `temperature` is in nats per transition and target: a member worse by that much weighs e times less.
    """
    return jax.nn.log_softmax(-(holdout_nll - jnp.min(holdout_nll)) / temperature)


def f_scale(f: Array) -> Array:
    """Standard deviation of F between models (models, batch), averaged over the batch: the unit of beta."""
    return jnp.maximum(f.std(axis=0).mean(), 1e-12)


class Limits(NamedTuple):
    """What keeps model-based values within what the dataset supports; none of it is in the paper."""

    box: Box | None = None  # leaving it ends a rollout
    left_value: float = 0.0  # with this value
    backup_low: float | None = None  # backups are clipped to what rewards of the dataset's range can add up to
    backup_high: float | None = None


class PosteriorBackup(NamedTuple):
    """What each active model predicts after (s, a), and its posterior weight."""

    next_obs: Array  # (draws, models, batch, obs_dim)
    done: Array  # (draws, models, batch): the rollout ends here, by the task or by leaving the dataset's box
    reward: Array  # (models, batch)
    next_value: Array  # (draws, models, batch): V(s'), or the value of the end of the rollout
    backup: Array  # (models, batch): r + gamma E_{s'~T_i} V(s')
    f: Array  # (models, batch)
    log_weight: Array  # (models, batch)
    disagreement: Array  # (batch,): of the models' mean next observations, in standard deviations of the dataset's

    @property
    def target(self) -> Array:
        """Eq. (8): the backup in expectation over T ~ P(T|E)."""
        return (jnp.exp(self.log_weight) * self.backup).sum(0)


def posterior_backup(
    models: Ensemble,
    *,
    log_prior: Array,
    norm: Normaliser,
    terminated: Termination,
    range: PredictionRange,
    value: Callable[[Array], Array],
    q: Array,
    obs: Array,
    action: Array,
    noise: Array,
    gamma: float,
    beta: float | Array,
    limits: Limits = Limits(),  # noqa: B008
) -> PosteriorBackup:
    """Backups of all models and the posterior over them. `value` maps features to V(s')."""
    prediction = models.predict(model_inputs(norm, obs, action))
    predicted, reward = draw_next(obs, prediction, noise)
    reward = range.reward(reward)
    reached = range.reached(norm, predicted)
    done = terminated(norm, obs, action, reached)
    next_obs = range.clip(reached)
    next_value = jnp.where(done, 0.0, value(norm.encode(next_obs)))
    if limits.box is not None:
        left = outside(predicted, limits.box)
        next_value, done = jnp.where(left & ~done, limits.left_value, next_value), done | left
    backup = jnp.clip(reward + gamma * next_value.mean(0), limits.backup_low, limits.backup_high)
    f = consistency(q, backup)
    log_weight = log_posterior(log_prior, f, beta)
    return PosteriorBackup(next_obs, done, reward, next_value, backup, f, log_weight, disagreement(norm, prediction))


def disagreement(norm: Normaliser, prediction: Prediction) -> Array:
    """(batch,): standard deviation over models of the mean next observation, root mean square over its columns."""
    return jnp.sqrt(jnp.square(prediction.mean[..., :-1].std(0) / norm.obs_std).mean(-1))
