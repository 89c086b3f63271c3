"""ADM, or ADMPO-OFF (Lin et al. 2024, "Any-step Dynamics Model Improves Future Predictions for Online and Offline
Reinforcement Learning").

One recurrent model predicts the next state from an old state and the k actions since, for every lag k up to m. Each
step of a rollout uses a random lag, and the reward is lowered where the lags disagree:

    r~ = r^ - lambda u,     u = sqrt(mean over columns of Var_k mu_k),     mu_k: mean next state by lag k

Then SAC on synthetic and real transitions, at a fixed temperature. u is in raw units. Differences from the authors:
- The model sees the features that PSPO's see, its targets are standardised (one scale for all lags), and rewards
  stay inside the dataset's range. A batch has windows of all lags, theirs of one; the hold-out is random.
- Lags are drawn per rollout, theirs per step for all rollouts. The outcome and u come from one pass of the network,
  theirs from two.
- Rollouts start from any state of the dataset with the past that it has; a past of fewer than m - 1 steps allows fewer
  lags, and none gives u = 0 at the first step. The authors start only where there are m - 1.
- Their dropout stays on in rollouts and on the hold-out. Here it is off on the hold-out, and a setting in rollouts.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from pspo.algorithms.adm.fit import AnyStepConfig, load_or_fit_any_step
from pspo.algorithms.adm.model import AnyStep
from pspo.algorithms.common.model_based import (
    SoftConfig,
    State,
    draw,
    fresh_buffer,
    optimiser,
    policies,
    prepare_termination,
    store,
    update,
)
from pspo.algorithms.common.model_free import layer_sizes
from pspo.algorithms.common.sac import Params, fresh_agent
from pspo.core.config import Bounds
from pspo.core.progress import Progress
from pspo.data.batches import DeviceDataset, Transitions, pick_transitions
from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser, fit_normaliser, normaliser_in
from pspo.dynamics.model_env import outcome_noise, rollout, rollouts_in_batches
from pspo.dynamics.prediction_range import PredictionRange, prediction_range
from pspo.dynamics.termination import Termination
from pspo.dynamics.uncertainty import lag_std
from pspo.nets.actors import TanhGaussian
from pspo.nets.mlp import mlp, mlp_stack

__all__ = ["HEADLINE", "Config", "State", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("critic_loss",)


@dataclass(frozen=True)
class Config(SoftConfig):
    penalty: Annotated[float, Bounds(0.0, 1e6)] = 1.0
    """lambda: weight of the lags' disagreement in a synthetic reward, both in raw units."""
    dropout_in_rollouts: bool = True
    """Keep the model's dropout on in rollouts, as the authors do; their penalties were chosen with it."""
    alpha: Annotated[float, Bounds(1e-6, 1e6)] = 0.1
    adapt_alpha: bool = False
    actor_decay: bool = True
    model: AnyStepConfig = dataclasses.field(default_factory=AnyStepConfig)


class Arrays(NamedTuple):
    """What is fixed during training and lives on the device."""

    model: AnyStep
    past: Array  # (n,): transitions of the same episode before each transition
    terminated: Termination


class Setup(NamedTuple):
    arrays: Arrays
    norm: Normaliser  # of policy and critics
    model_norm: Normaliser  # of the model
    lags: int  # the longest that was trained: m, or less where all episodes are shorter
    range: PredictionRange


def prepare(config: Config, dataset: Dataset, seed: int, progress: Progress) -> tuple[Setup, dict[str, Any]]:
    """Fit or load the model and the termination rule; with information for the report."""
    norm = normaliser_in(dataset, config.states, config.rewards, config.gamma)
    model_norm = fit_normaliser(dataset, config.gamma)
    report = partial(progress, "any-step model")
    model, info = load_or_fit_any_step(dataset, model_norm, config.model, seed, report)
    terminated, termination_info = prepare_termination(config.termination, dataset, model_norm)
    arrays = Arrays(model, jnp.asarray(dataset.ages().astype("int32")), terminated)
    setup = Setup(arrays, norm, model_norm, info["lags"], prediction_range(dataset, model_norm))
    return setup, {"any_step": info, "reward": "learned", **termination_info}


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    key, actor_key, critic_key = jax.random.split(key, 3)
    inputs, columns, hidden = layer_sizes(config, setup.norm, data)
    actor = TanhGaussian(mlp(actor_key, [inputs, *hidden, 2 * columns], "relu", init="torch"))
    critic = mlp_stack(critic_key, 2, [inputs + columns, *hidden, 1], activation="relu", init="torch")
    params = Params(actor, critic, jnp.log(jnp.float32(config.alpha)))
    return State(fresh_agent(params, optimiser(config)), fresh_buffer(config, data), key, jnp.int32(0))


class History(NamedTuple):
    """Recent states and actions of each rollout, the newest last."""

    obs: Array  # (lags, batch, obs_dim): the last of them is the present
    action: Array  # (lags - 1, batch, action_dim): that led from each to the next
    length: Array  # (batch,): how many of `obs` are valid, 1 to lags


def starts(data: DeviceDataset, past: Array, lags: int, index: Array) -> History:
    """Rollouts from states of the dataset, with up to lags - 1 earlier steps of the same episode."""
    before = jnp.maximum(index - jnp.arange(lags)[::-1, None], 0)
    return History(
        data.transitions.obs[before],
        data.transitions.action[before[:-1]],
        jnp.minimum(past[index] + 1, lags),
    )


def extend(history: History, action: Array, next_obs: Array) -> History:
    """One step further; the oldest step is dropped."""
    lags = history.obs.shape[0]
    return History(
        jnp.concatenate([history.obs[1:], next_obs[None]]),
        jnp.concatenate([history.action, action[None]])[1:],
        jnp.minimum(history.length + 1, lags),
    )


class LagPredictions(NamedTuple):
    """Predictions of next state and reward by each lag: (lags, batch, obs_dim + 1), lag k at k - 1."""

    mean: Array  # next state in raw units, reward in the model's
    std: Array
    valid: Array  # (lags, batch): lags that the history allows


def predict_by_lag(setup: Setup, history: History, action: Array, key: Array | None) -> LagPredictions:
    """All lags in one pass; with a key, dropout is on."""
    lags, batch = history.obs.shape[:2]
    old = history.obs[::-1]  # lag 1 is from the present, lag 2 from the state before
    taken = jnp.moveaxis(jnp.concatenate([history.action, action[None]]), 0, 1)
    taken = jnp.broadcast_to(taken, (lags, *taken.shape))
    change = setup.arrays.model.predict(setup.model_norm.encode(old), taken, key)
    start = jnp.concatenate([old, jnp.zeros((lags, batch, 1))], axis=-1)
    return LagPredictions(start + change.mean, change.std, jnp.arange(lags)[:, None] < history.length)


def random_lag(key: Array, length: Array) -> Array:
    """(batch,): k - 1 for a lag k of 1 to `length` each."""
    return jax.random.randint(key, length.shape, 0, length)


def penalised_step(
    config: Config, setup: Setup, actor: TanhGaussian, history: History, key: Array
) -> tuple[History, Transitions]:
    """One step of rollouts: the policy's action, the outcome by a random lag, the penalised reward."""
    action_key, drop_key, lag_key, noise_key = jax.random.split(key, 4)
    obs = history.obs[-1]
    action = actor.unit_action(setup.norm.encode(obs), action_key)
    predicted = predict_by_lag(setup, history, action, drop_key if config.dropout_in_rollouts else None)
    pick = random_lag(lag_key, history.length), jnp.arange(obs.shape[0])
    drawn = predicted.mean[pick] + predicted.std[pick] * outcome_noise(noise_key, obs)
    reached = setup.range.reached(setup.model_norm, drawn[:, :-1])
    done = setup.arrays.terminated(setup.model_norm, obs, action, reached)
    next_obs = setup.range.clip(reached)
    reward = setup.range.reward(drawn[:, -1]) * setup.model_norm.reward_scale  # raw, as the penalty is
    reward = reward - config.penalty * lag_std(predicted.mean[..., :-1], predicted.valid)
    return extend(history, action, next_obs), Transitions(obs, action, reward / setup.norm.reward_scale, next_obs, done)


def begin_chunk(
    config: Config, setup: Setup, data: DeviceDataset, state: State
) -> tuple[State, None, dict[str, Array]]:
    """Between chunks: rollouts of the present policy into the buffer."""
    key, roll_key = jax.random.split(state.key)
    step = partial(penalised_step, config, setup, state.agent.params.actor)

    def roll(count: int, k: Array) -> tuple[Transitions, Array]:
        start_key, step_key = jax.random.split(k)
        start = starts(data, setup.arrays.past, setup.lags, pick_transitions(data, start_key, count))
        return rollout(step, start, count, config.rollout_horizon, step_key)

    buffer, metrics = store(state.buffer, *rollouts_in_batches(config.starts, roll, roll_key))
    return state._replace(buffer=buffer, key=key), None, metrics
