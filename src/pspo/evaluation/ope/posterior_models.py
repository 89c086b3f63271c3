"""Posterior models: episodes of the policy in every model of the pool, weighted by P(T|E) in the states it visits.

One model is held for a whole episode, Eq. (2) (pre:eq5 in the paper's source), which separates disagreement between
models from chance:

    Var(return) = sum_i w_i (J_i - J)^2  +  sum_i w_i Var(return | T_i)
                  epistemic                  aleatoric
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.algorithms.pspo import algorithm as pspo
from pspo.data.normalise import Normaliser
from pspo.dynamics.ensemble import model_inputs
from pspo.dynamics.prediction_range import Box, PredictionRange, data_box, outside, prediction_range
from pspo.evaluation.models_and_critics import ModelsAndCritics, PosteriorArrays
from pspo.evaluation.ope.estimate_warnings import LONG_HORIZON
from pspo.evaluation.ope.estimator import EstimatorInputs
from pspo.evaluation.ope.long_episodes import noise_scale, return_of_dataset, with_study_error
from pspo.evaluation.ope.return_estimate import MODE, ReturnEstimate, effective_size, t_quantile, weighted_quantiles
from pspo.evaluation.problem import EvaluationProblem

MOST_STEPS = 50_000  # of one model, over all its episodes
WEIGHTED_STATES = 2000
QUANTILES = (0.05, 0.5, 0.95)  # of the returns of single episodes

LogWeight = Callable[[PosteriorArrays, Array, Array, Array], Array]
"""(arrays, raw observations, unit actions, key) -> (models, batch): log P(T|E)."""


def estimate(inputs: EstimatorInputs) -> ReturnEstimate:
    models = posterior_models(inputs.problem, inputs.models_and_critics)
    return estimate_by_models(inputs.problem, models, inputs.confidence)


def warnings(problem: EvaluationProblem) -> list[str]:
    """None beside those by the numbers of an estimate."""
    return []


class PosteriorModels(NamedTuple):
    """The models that episodes are simulated in, and their posterior weights."""

    norm: Normaliser  # of their inputs and rewards
    arrays: PosteriorArrays
    log_weight: LogWeight
    range: PredictionRange
    box: Box
    """The range of the data."""
    left_value: float | None = None
    """Leaving the box ends an episode with this value, normalised; if None, the episode continues from its edge."""
    noise: float = 1.0
    """Scale of the models' predicted noise; 0 uses their means."""


class ModelEpisodes(NamedTuple):
    """Episodes of all models from the same first states, with the same noise."""

    returns: Array  # (models, episodes), discounted, in the dataset's units
    obs: Array  # (states, obs_dim): some of the visited states
    action: Array
    outside: Array  # (): fraction of steps that left the range of the data
    running: Array  # (): fraction of episodes that had not ended at the horizon
    sums: Array  # (models, episodes): plain sums of rewards, in the dataset's units
    steps: Array  # (models, episodes): lengths


def posterior_models(problem: EvaluationProblem, fitted: ModelsAndCritics) -> PosteriorModels:
    config, norm = fitted.config, fitted.norm
    limits = pspo.make_limits(config, problem.dataset, norm) if config.box == "end" else None
    return PosteriorModels(
        norm=norm,
        arrays=fitted.arrays,
        log_weight=lambda arrays, obs, action, key: fitted.posterior(arrays, obs, action, key, None).log_weight,
        range=prediction_range(problem.dataset, norm),
        box=data_box(problem.dataset.obs, norm, config.box_margin),
        left_value=limits.left_value if limits else None,
        noise=noise_scale(problem, fitted.arrays.pool, norm, config.model_noise),
    )


def simulate(problem: EvaluationProblem, models: PosteriorModels, starts: Array, key: Array) -> ModelEpisodes:
    """Every model from every start, in parallel."""
    pool, norm, gamma = models.arrays.pool, models.norm, problem.gamma
    members, count = pool.size, starts.shape[0]
    keep = max(1, -(-WEIGHTED_STATES // (problem.horizon * members)))  # episodes whose states are weighted afterwards

    def step(carry: tuple[Array, Array, Array], k: Array) -> tuple[tuple[Array, Array, Array], tuple[Array, ...]]:
        obs, alive, discount = carry
        action = problem.act(obs)
        mean, log_std = pool.normalised(model_inputs(norm, obs, action), each=True)
        noise = models.noise * jax.random.normal(k, (1, count, mean.shape[-1] - 1))  # the same for all models
        target = mean.at[..., :-1].add(jnp.exp(log_std[..., :-1]) * noise) * pool.target_std + pool.target_mean
        predicted = obs + target[..., :-1]
        reached = models.range.reached(norm, predicted)
        done = models.arrays.terminated(norm, obs, action, reached)
        left, plain = outside(predicted, models.box) & ~done, models.range.reward(target[..., -1])
        reward = plain
        if models.left_value is not None:
            reward, done = reward + gamma * jnp.where(left, models.left_value, 0.0), done | left
        counted = jnp.where(alive, discount * reward, 0.0), jnp.where(alive, plain, 0.0)
        now = (*counted, alive, obs[:, :keep], action[:, :keep], left & alive)
        return (models.range.clip(reached), alive & ~done, discount * gamma), now

    start = jnp.broadcast_to(starts, (members, *starts.shape))
    first = (start, jnp.ones((members, count), bool), jnp.float32(1.0))
    (_, running, _), steps = jax.lax.scan(step, first, jax.random.split(key, problem.horizon))
    rewards, plain, alive, obs, action, left = steps
    # Only visited states are weighted: steps after the end of an episode are replaced by others before it.
    visited = alive[:, :, :keep].reshape(-1)
    order = jnp.argsort(~visited, stable=True)
    pick = order[jnp.arange(visited.shape[0]) % visited.sum()][:: max(1, visited.shape[0] // WEIGHTED_STATES)]
    return ModelEpisodes(
        returns=rewards.sum(0) * norm.reward_scale,
        obs=obs.reshape(-1, obs.shape[-1])[pick],
        action=action.reshape(-1, action.shape[-1])[pick],
        outside=left.sum() / alive.sum(),
        running=running.mean(),
        sums=plain.sum(0) * norm.reward_scale,
        steps=alive.sum(0),
    )


def simulate_and_weight(
    problem: EvaluationProblem, models: PosteriorModels, starts: Array, key: Array
) -> tuple[ModelEpisodes, Array]:
    """The episodes, and (models,) the mean posterior weight in the states that the policy visits."""
    k_simulate, k_weight = jax.random.split(key)
    episodes = simulate(problem, models, starts, k_simulate)
    log_weight = models.log_weight(models.arrays, episodes.obs, episodes.action, k_weight)
    return episodes, jnp.exp(log_weight).mean(1)


def estimate_by_models(
    problem: EvaluationProblem, models: PosteriorModels, confidence: float, seed: int = 0
) -> ReturnEstimate:
    """The estimate, with a prediction interval for the return in one more model of the same kind.

    The true dynamics are treated as one more model that explains the data: among models fitted to resamples of the
    data its return lies within t s sqrt(1 + 1/n) of their mean, n being the effective number of models. The sampling
    error of the first states is added.
    """
    count = int(np.clip(MOST_STEPS // problem.horizon, 1, len(problem.starts)))
    repeats = max(1, MOST_STEPS // (problem.horizon * count))  # if there are few first states, each is used repeatedly
    chosen = np.random.default_rng(seed).choice(len(problem.starts), count, replace=False)
    starts = jnp.asarray(np.repeat(problem.starts[chosen], repeats, axis=0))

    @jax.jit
    def run(network: Any, arrays: PosteriorArrays, starts: Array, key: Array) -> tuple[ModelEpisodes, Array]:
        return simulate_and_weight(problem._replace(network=network), models._replace(arrays=arrays), starts, key)

    episodes, weight = jax.device_get(run(problem.network, models.arrays, starts, jax.random.PRNGKey(seed)))
    returns = episodes.returns.astype(np.float64).reshape(models.arrays.pool.size, count, repeats)
    weight = weight.astype(np.float64) / weight.sum(dtype=np.float64)
    result = summarise(returns, weight, confidence)
    truncated = 0.0 if problem.bounded else float(episodes.running) * problem.gamma**problem.horizon
    further = {"fraction_outside": float(episodes.outside), "truncated_weight": truncated}
    if problem.horizon > LONG_HORIZON:
        result = with_study_error(result, confidence)
        sums, steps = (float(weight @ part.mean(1)) for part in (episodes.sums, episodes.steps))
        further |= {"model_noise": models.noise, "episode_steps": steps}
        further["return_of_dataset"] = return_of_dataset(problem, sums)
    return replace(result, numbers=result.numbers | further)


def summarise(returns: np.ndarray, weight: np.ndarray, confidence: float) -> ReturnEstimate:
    """From the returns (models, first states, repeats) of all models, and their weights, which add up to one."""
    flat = returns.reshape(len(returns), -1)
    each = flat.mean(1)
    value, members = float(weight @ each), effective_size(weight)
    between, within = float(weight @ np.square(each - value)), float(weight @ flat.var(1))
    # Averaged over models and repeats, the variance left is that of the first states and a remainder of the noise.
    by_start = np.tensordot(weight, returns.mean(2), 1)
    error = float(by_start.std(ddof=1) / len(by_start) ** 0.5) if len(by_start) > 1 else float("inf")
    half = float("inf")
    if members > 1.0 + 1e-9:
        variance = between * members / (members - 1.0) * (1.0 + 1.0 / members)
        half = t_quantile(confidence, members - 1.0) * (variance + error**2) ** 0.5
    quantiles = weighted_quantiles(flat.reshape(-1), np.repeat(weight, flat.shape[1]), QUANTILES)
    return ReturnEstimate(
        "posterior models",
        value,
        value - half,
        value + half,
        MODE,
        {
            "model_std": between**0.5,
            "chance_std": within**0.5,
            "sampling_error": error,
            "effective_models": members,
            "lowest_model": float(each.min()),
            "highest_model": float(each.max()),
            **{f"return_{round(100 * level)}": number for level, number in zip(QUANTILES, quantiles, strict=True)},
        },
    )
