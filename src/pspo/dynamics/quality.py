"""Quality of the models on the hold-out and along logged episodes: likelihood, calibration, k-step error."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm as gaussian

from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser
from pspo.dynamics.ensemble import Ensemble, model_inputs
from pspo.dynamics.fit import Targets, fit_targets, mean_nll, target_counts
from pspo.dynamics.prediction_range import prediction_range

LEVELS = np.linspace(0.05, 0.95, 19)
MAX_TRANSITIONS = 5000
MAX_STARTS = 256
STEPS_AHEAD = 10


def _predictions(
    dataset: Dataset, norm: Normaliser, models: Ensemble, index: np.ndarray
) -> tuple[jax.Array, jax.Array, Targets]:
    """Mean and log-std of every member on these transitions, and the truth, all in the models' target units."""
    raw, _, _ = fit_targets(dataset, norm)
    unit = norm.unit_action(dataset.action[index])
    x = model_inputs(norm, jnp.asarray(dataset.obs[index]), jnp.asarray(unit))
    counts = target_counts(dataset)
    value = (jnp.asarray(raw[index]) - models.target_mean) / models.target_std
    mean, log_std = eqx.filter_jit(lambda m, x: m.normalised(x))(models, x)
    return mean, log_std, Targets(value, None if counts is None else jnp.asarray(counts[index]))


def holdout_nll(dataset: Dataset, norm: Normaliser, models: Ensemble, index: np.ndarray) -> jax.Array:
    """Negative log-likelihood of each member per transition and target; a prior from the hold-out is based on it."""
    return mean_nll(*_predictions(dataset, norm, models, index))


def holdout_error(dataset: Dataset, norm: Normaliser, models: Ensemble, index: np.ndarray) -> jax.Array:
    """(members,) mean squared error, each target in units of its standard deviation; elites are chosen by it."""
    mean, _, y = _predictions(dataset, norm, models, index)
    square = jnp.square(mean - y.value)
    return square.mean((1, 2)) if y.counts is None else (square * y.counts).sum((1, 2)) / y.counts.sum()


def model_quality(dataset: Dataset, norm: Normaliser, models: Ensemble, holdout: np.ndarray) -> dict[str, Any]:
    """Numbers for the report, as plain Python lists."""
    mean, log_std, y = _predictions(dataset, norm, models, holdout[:: -(-len(holdout) // MAX_TRANSITIONS)])
    likelihood = -np.asarray(mean_nll(mean, log_std, y)) - 0.5 * np.log(2 * np.pi)
    # Probability integral transform: uniform if the predicted standard deviations are right.
    pit = np.asarray(gaussian.cdf((y.value - mean) * jnp.exp(-log_std)))
    logged = np.ones(pit.shape[1:], bool) if y.counts is None else np.asarray(y.counts)
    coverage = _coverage(pit[:, logged])
    per_target = [_coverage(pit[:, logged[:, d], d]) for d in range(pit.shape[-1]) if logged[:, d].any()]
    return {
        "holdout_log_likelihood": [round(float(v), 5) for v in likelihood],
        "calibration_levels": LEVELS.round(3).tolist(),
        "calibration_coverage": coverage,
        "calibration_coverage_per_target": per_target,
        "calibration_error": float(np.abs(np.array(coverage) - LEVELS).mean()),
        **_k_step_error(dataset, norm, models),
    }


def _coverage(pit: np.ndarray) -> list[float]:
    """The share of values inside the central interval of each level."""
    return [float((np.abs(pit - 0.5) <= level / 2).mean()) for level in LEVELS]


def _k_step_error(dataset: Dataset, norm: Normaliser, models: Ensemble) -> dict[str, Any]:
    """Root mean square error of the members' mean prediction k steps ahead under the logged actions.

    In units of each column's standard deviation, with the error of predicting "no change" for comparison.
    """
    lengths = np.add.reduceat(dataset.next_known, dataset.episode_starts, dtype=int)  # only the last can be unknown
    ahead = int(min(STEPS_AHEAD, lengths.max()))
    if not ahead:  # a dataset of single decisions
        return {"k_step_error": [], "k_step_error_of_no_change": []}
    long_enough = dataset.episode_starts[lengths >= ahead]
    starts = long_enough[np.linspace(0, len(long_enough) - 1, min(MAX_STARTS, len(long_enough))).astype(int)]
    window = starts[:, None] + np.arange(ahead)
    unit = jnp.asarray(norm.unit_action(dataset.action[window]))
    truth = jnp.asarray(dataset.next_obs[window])
    start = jnp.asarray(dataset.obs[starts])
    limits = prediction_range(dataset, norm)

    @eqx.filter_jit
    def errors(models: Ensemble):
        def step(obs, k):
            x = jax.vmap(lambda o: model_inputs(norm, o, unit[:, k]))(obs)
            mean, _ = models.normalised(x, each=True)
            change = mean * models.target_std + models.target_mean
            obs = limits.clip(limits.reached(norm, obs + change[..., :-1]))
            return obs, jnp.sqrt(jnp.square((obs - truth[:, k]) / norm.obs_std).mean())

        first = jnp.broadcast_to(start, (models.size, *start.shape))
        _, error = jax.lax.scan(step, first, jnp.arange(ahead))
        still = jnp.sqrt(jnp.square((start[:, None] - truth) / norm.obs_std).mean(axis=(0, 2)))
        return error, still

    error, still = errors(models)
    return {
        "k_step_error": np.asarray(error).round(5).tolist(),
        "k_step_error_of_no_change": np.asarray(still).round(5).tolist(),
    }
