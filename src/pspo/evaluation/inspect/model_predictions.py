"""What the models predict after a state and an action, their posterior weights, and how much is chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pspo.dynamics.ensemble import model_inputs
from pspo.evaluation.inspect.networks import Networks
from pspo.evaluation.inspect.state_query import LoggedTransition
from pspo.evaluation.ope.return_estimate import effective_size

REPEATS = 32  # samples of the posterior's noise that weights are averaged over
REWARD = "reward"


class ModelPrediction(NamedTuple):
    """One model of the pool, in the dataset's units."""

    number: int
    weight: float
    next_obs: list[float]  # its mean
    reward: float
    termination: float  # fraction of its samples that terminate
    backup: float  # r + gamma E V(s')


class PredictedColumn(NamedTuple):
    """One column of the next state, or the reward: the mixture of all models under the posterior."""

    name: str
    now: float | None  # None for the reward
    expected: float
    model_std: float  # between models
    chance_std: float  # that models predict themselves
    observed: float | None = None  # in the dataset
    expected_after_logged: float | None = None  # after the logged action
    std_after_logged: float | None = None  # of both kinds


class ModelPredictions(NamedTuple):
    effective_models: float  # Kish's effective sample size of the weights
    entropy: float  # of the weights; 1 if uniform
    members: list[ModelPrediction]  # highest weight first
    columns: list[PredictedColumn]  # the columns of the state, then the reward
    termination: float  # probability that the episode terminates


class PoolPrediction(NamedTuple):
    """Of one state and action, (models, ...) each."""

    weight: np.ndarray
    mean: np.ndarray  # next state and reward, raw
    std: np.ndarray
    termination: np.ndarray
    backup: np.ndarray


def predictions_at(
    networks: Networks, names: Sequence[str], obs: np.ndarray, unit: np.ndarray, logged: LoggedTransition | None
) -> ModelPredictions:
    predicted = predict_pool(networks, obs, unit)
    order = np.argsort(-predicted.weight, kind="stable")
    return ModelPredictions(
        effective_models=effective_size(predicted.weight),
        entropy=_entropy(predicted.weight),
        members=[
            ModelPrediction(
                number=int(i),
                weight=float(predicted.weight[i]),
                next_obs=predicted.mean[i, :-1].tolist(),
                reward=float(predicted.mean[i, -1]),
                termination=float(predicted.termination[i]),
                backup=float(predicted.backup[i]),
            )
            for i in order
        ],
        columns=_following(networks, names, obs, predicted, logged),
        termination=float(predicted.weight @ predicted.termination),
    )


def predict_pool(networks: Networks, obs: np.ndarray, unit: np.ndarray) -> PoolPrediction:
    """Posterior weights are averaged over REPEATS samples of the posterior's noise."""
    many_obs, many_unit = (jnp.asarray(np.repeat(part[None], REPEATS, axis=0)) for part in (obs, unit))
    posterior = jax.device_get(networks.posterior(many_obs, many_unit, jax.random.PRNGKey(0)))
    prediction = networks.pool.predict(model_inputs(networks.norm, many_obs[:1], many_unit[:1]))
    scale = float(networks.norm.reward_scale)
    mean, std = (np.array(part[:, 0], np.float64) for part in prediction)
    mean[:, :-1] += obs
    mean[:, -1] *= scale
    std[:, -1] *= scale
    weight = np.exp(posterior.log_weight.astype(np.float64)).mean(1)
    return PoolPrediction(
        weight=weight / weight.sum(),
        mean=mean,
        std=std,
        termination=posterior.done.mean((0, 2)).astype(np.float64),
        backup=posterior.backup.mean(1).astype(np.float64) * scale,
    )


def mix(weight: np.ndarray, mean: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, and standard deviations between and within models, of a mixture (models, columns)."""
    expected = weight @ mean
    return expected, np.sqrt(weight @ np.square(mean - expected)), np.sqrt(weight @ np.square(std))


def _entropy(weight: np.ndarray) -> float:
    some = weight[weight > 0.0] if np.isfinite(weight).all() else weight
    return float(-(some * np.log(some)).sum() / np.log(max(len(weight), 2)))


def _following(
    networks: Networks,
    names: Sequence[str],
    obs: np.ndarray,
    predicted: PoolPrediction,
    logged: LoggedTransition | None,
) -> list[PredictedColumn]:
    now = [*obs.tolist(), None]
    columns = zip([*names, REWARD], now, *mix(predicted.weight, predicted.mean, predicted.std), strict=True)
    predictions = [PredictedColumn(name, here, *map(float, numbers)) for name, here, *numbers in columns]
    if logged is None:
        return predictions
    unit = np.clip(networks.norm.unit_action(np.asarray(logged.action, np.float32)), -1.0, 1.0).astype(np.float32)
    then = predict_pool(networks, obs, unit)
    expected, model_std, chance_std = mix(then.weight, then.mean, then.std)
    observed = [*(logged.next_obs or [None] * len(obs)), logged.reward]
    return [
        column._replace(observed=real, expected_after_logged=float(mean), std_after_logged=float(np.hypot(a, b)))
        for column, real, mean, a, b in zip(predictions, observed, expected, model_std, chance_std, strict=True)
    ]
