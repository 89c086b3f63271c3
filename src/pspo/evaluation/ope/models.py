"""Posterior models: the policy in every model of the pool, each weighed by P(T|E) where the policy goes.

One model is held for a whole episode (Eq. pre:eq5), so that what the models disagree about stays apart from chance:

    Var(return) = sum_i w_i (J_i - J)^2  +  sum_i w_i Var(return | T_i)
                  what nobody knows          what nobody can foresee
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.data.normalise import Normaliser
from pspo.dynamics.ensemble import Ensemble, model_inputs
from pspo.dynamics.prediction_range import Box, PredictionRange, outside
from pspo.dynamics.termination import Termination
from pspo.evaluation.ope.estimates import Estimate, effective, student, weighted_quantiles
from pspo.evaluation.ope.subject import Subject

MOST_STEPS = 50_000  # of one model, over all its episodes
WEIGHED_ROWS = 2000
QUANTILES = (0.05, 0.5, 0.95)  # of the returns of single episodes

LogWeight = Callable[[Any, Ensemble, Array, Array, Array], Array]
"""(what weighs, the pool, raw observations, unit actions, key) -> (members, rows): log P(T|E)."""


class Models(NamedTuple):
    """The pool, and how much each member is believed."""

    norm: Normaliser  # theirs: of what they see, and of the rewards they predict
    pool: Ensemble
    ends: Termination
    critics: Any  # what weighs: arrays, handed to `log_weight`
    log_weight: LogWeight
    range: PredictionRange
    box: Box
    """Where the log has been."""
    left_value: float | None = None
    """Leaving the box ends an episode and is worth this, normalised; None goes on from its edge."""
    noise: float = 1.0
    """Scale of the noise that models predict; 0 takes their means."""


class Played(NamedTuple):
    """Episodes of all members from the same first states, with the same noise."""

    returns: Array  # (members, episodes), discounted, in the log's units
    obs: Array  # (rows, obs_dim): some of the states met
    action: Array
    left: Array  # (): share of steps that ended outside of where the log has been
    running: Array  # (): share of episodes that had not ended at the horizon


def play(subject: Subject, models: Models, starts: Array, key: Array) -> Played:
    """Every member from every start, side by side."""
    pool, norm, gamma = models.pool, models.norm, subject.gamma
    members, count = pool.size, starts.shape[0]
    keep = max(1, -(-WEIGHED_ROWS // (subject.horizon * members)))  # episodes whose states are weighed afterwards

    def step(carry: tuple[Array, Array, Array], k: Array) -> tuple[tuple[Array, Array, Array], tuple[Array, ...]]:
        obs, alive, discount = carry
        action = subject.act(obs)
        mean, log_std = pool.normalised(model_inputs(norm, obs, action), each=True)
        noise = models.noise * jax.random.normal(k, (1, count, mean.shape[-1] - 1))  # the same for all members
        target = mean.at[..., :-1].add(jnp.exp(log_std[..., :-1]) * noise) * pool.target_std + pool.target_mean
        predicted = obs + target[..., :-1]
        reached = models.range.reached(norm, predicted)
        done = models.ends(norm, obs, action, reached)
        gone, worth = outside(predicted, models.box) & ~done, models.range.reward(target[..., -1])
        if models.left_value is not None:
            worth, done = worth + gamma * jnp.where(gone, models.left_value, 0.0), done | gone
        row = (jnp.where(alive, discount * worth, 0.0), alive, obs[:, :keep], action[:, :keep], gone & alive)
        return (models.range.keep(reached), alive & ~done, discount * gamma), row

    start = jnp.broadcast_to(starts, (members, *starts.shape))
    first = (start, jnp.ones((members, count), bool), jnp.float32(1.0))
    (_, running, _), rows = jax.lax.scan(step, first, jax.random.split(key, subject.horizon))
    gained, alive, obs, action, gone = rows
    # Only states that were met are weighed: rows after an end are replaced by others before it.
    met = alive[:, :, :keep].reshape(-1)
    order = jnp.argsort(~met, stable=True)
    pick = order[jnp.arange(met.shape[0]) % met.sum()][:: max(1, met.shape[0] // WEIGHED_ROWS)]
    return Played(
        returns=gained.sum(0) * norm.reward_scale,
        obs=obs.reshape(-1, obs.shape[-1])[pick],
        action=action.reshape(-1, action.shape[-1])[pick],
        left=gone.sum() / alive.sum(),
        running=running.mean(),
    )


def play_and_weigh(subject: Subject, models: Models, starts: Array, key: Array) -> tuple[Played, Array]:
    """The episodes, and (members,) the mean posterior weight at the states that the policy meets."""
    k_play, k_weigh = jax.random.split(key)
    played = play(subject, models, starts, k_play)
    log_weight = models.log_weight(models.critics, models.pool, played.obs, played.action, k_weigh)
    return played, jnp.exp(log_weight).mean(1)


def by_models(subject: Subject, models: Models, confidence: float, seed: int = 0) -> Estimate:
    """The estimate, with an interval in which a further model of the same kind would give the return.

    The truth is one more model that explains the log: among members that were fitted to resamples of it, its return
    lies within t s sqrt(1 + 1/n) of their mean, n being the effective number of members. To that comes the error of
    the few first states.
    """
    count = int(np.clip(MOST_STEPS // subject.horizon, 1, len(subject.starts)))
    repeats = max(1, MOST_STEPS // (subject.horizon * count))  # few first states are played several times each
    chosen = np.random.default_rng(seed).choice(len(subject.starts), count, replace=False)
    starts = jnp.asarray(np.repeat(subject.starts[chosen], repeats, axis=0))

    @jax.jit
    def run(network: Any, arrays: Any, starts: Array, key: Array) -> tuple[Played, Array]:
        pool, ends, critics = arrays
        given = models._replace(pool=pool, ends=ends, critics=critics)
        return play_and_weigh(subject._replace(network=network), given, starts, key)

    arrays = (models.pool, models.ends, models.critics)
    played, weight = jax.device_get(run(subject.network, arrays, starts, jax.random.PRNGKey(seed)))
    returns = played.returns.astype(np.float64).reshape(models.pool.size, count, repeats)
    weight = weight.astype(np.float64) / weight.sum(dtype=np.float64)
    found = summarise(returns, weight, confidence)
    unseen = float(played.running) * subject.gamma**subject.horizon
    further = {"share_outside": float(played.left), "weight_of_the_rest": unseen}
    return replace(found, numbers=found.numbers | further)


def summarise(returns: np.ndarray, weight: np.ndarray, confidence: float) -> Estimate:
    """From the returns (members, first states, repeats) of all members, and their weights, which add up to one."""
    flat = returns.reshape(len(returns), -1)
    each = flat.mean(1)
    value, members = float(weight @ each), effective(weight)
    between, within = float(weight @ np.square(each - value)), float(weight @ flat.var(1))
    # Averaged over members and repeats, what is left of luck is that of the first states, and a rest of the noise.
    by_start = np.tensordot(weight, returns.mean(2), 1)
    error = float(by_start.std(ddof=1) / len(by_start) ** 0.5) if len(by_start) > 1 else float("inf")
    half = float("inf")
    if members > 1.0 + 1e-9:
        spread = between * members / (members - 1.0) * (1.0 + 1.0 / members)
        half = student(confidence, members - 1.0) * (spread + error**2) ** 0.5
    quantiles = weighted_quantiles(flat.reshape(-1), np.repeat(weight, flat.shape[1]), QUANTILES)
    return Estimate(
        "posterior models",
        value,
        value - half,
        value + half,
        "mode",
        {
            "model_std": between**0.5,
            "chance_std": within**0.5,
            "sampling_error": error,
            "effective_models": members,
            "lowest_model": float(each.min()),
            "highest_model": float(each.max()),
            **{f"return_{round(100 * level)}": found for level, found in zip(QUANTILES, quantiles, strict=True)},
        },
    )
