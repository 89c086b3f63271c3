"""ADM, or ADMPO-OFF (Lin et al. 2024, "Any-step Dynamics Model Improves Future Predictions for Online and Offline
Reinforcement Learning").

One recurrent model says where an old state leads by the k actions since, for every lag k up to m. Rollouts take each
step by a random lag, and where the lags disagree the reward is lowered:

    r~ = r^ - lambda u,     u = sqrt(mean over columns of Var_k mu_k),     mu_k: mean next state by lag k

Then SAC on imagined and logged rows, at a fixed temperature. u is in raw units. Ours and the authors' code differ:
- The model sees the features that PSPO's see, its targets are standardised (one scale for all lags), and rewards
  stay inside the log's range. A batch has windows of all lags, where theirs has one lag; hold-out rows are random.
- Lags are drawn per rollout, where theirs are per step for all rollouts. What is drawn and what u compares come from
  one pass of the network, where theirs are two.
- Rollouts start from any logged state with the past that it has; fewer than m - 1 rows of it allow fewer lags, and
  none leaves no doubt at the first step. The authors start only where there are m - 1.
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
    keep,
    optimiser,
    policies,
    prepare_ends,
    update,
)
from pspo.algorithms.common.sac import Params, fresh_agent
from pspo.core.config import Bounds
from pspo.core.progress import Progress
from pspo.data.batches import DeviceDataset, Transitions, pick_transitions
from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser, fit_normaliser, normaliser_in
from pspo.dynamics.model_env import in_blocks, rollout, target_noise
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
    """lambda: weight of the lags' disagreement in an imagined reward, both in raw units."""
    dropout_in_rollouts: bool = True
    """Let the model drop out units in rollouts too, as the authors' does; their penalties were chosen with it."""
    alpha: Annotated[float, Bounds(1e-6, 1e6)] = 0.1
    adapt_alpha: bool = False
    actor_decay: bool = True
    model: AnyStepConfig = dataclasses.field(default_factory=AnyStepConfig)


class Arrays(NamedTuple):
    """What is fixed during training and lives on the device."""

    model: AnyStep
    past: Array  # (n,): how many rows of the same episode come before each logged row
    terminated: Termination


class Setup(NamedTuple):
    arrays: Arrays
    norm: Normaliser  # of policy and critics
    model_norm: Normaliser  # of the model
    lags: int  # the longest that was trained: m, or less where all episodes are shorter
    range: PredictionRange


def prepare(config: Config, dataset: Dataset, seed: int, progress: Progress) -> tuple[Setup, dict[str, Any]]:
    """Fit or find the model, and the end of rollouts; with a report of each."""
    norm = normaliser_in(dataset, config.states, config.rewards, config.gamma)
    model_norm = fit_normaliser(dataset, config.gamma)
    said = partial(progress, "any-step model")
    model, facts = load_or_fit_any_step(dataset, model_norm, config.model, seed, said)
    ends, end_facts = prepare_ends(config.termination, dataset, model_norm)
    arrays = Arrays(model, jnp.asarray(dataset.ages().astype("int32")), ends)
    setup = Setup(arrays, norm, model_norm, facts["lags"], prediction_range(dataset, model_norm))
    return setup, {"any_step": facts, "reward": "learned", **end_facts}


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    key, actor_key, critic_key = jax.random.split(key, 3)
    inputs, columns, hidden = (
        setup.norm.features,
        data.transitions.action.shape[-1],
        [config.width] * config.depth,
    )
    actor = TanhGaussian(mlp(actor_key, [inputs, *hidden, 2 * columns], "relu", init="torch"))
    critic = mlp_stack(critic_key, 2, [inputs + columns, *hidden, 1], activation="relu", init="torch")
    params = Params(actor, critic, jnp.log(jnp.float32(config.alpha)))
    return State(fresh_agent(params, optimiser(config)), fresh_buffer(config, data), key, jnp.int32(0))


class Course(NamedTuple):
    """Rollouts under way: what they remember of themselves, the newest last."""

    obs: Array  # (lags, batch, obs_dim): the last of them is the present
    action: Array  # (lags - 1, batch, action_dim): that led from each to the next
    length: Array  # (batch,): how many of `obs` there are, 1 to lags; what lies before them is nobody's


def starts(data: DeviceDataset, past: Array, lags: int, row: Array) -> Course:
    """Rollouts that begin in logged states, with up to lags - 1 steps of their own episode behind them."""
    before = jnp.maximum(row - jnp.arange(lags)[::-1, None], 0)
    return Course(
        data.transitions.obs[before],
        data.transitions.action[before[:-1]],
        jnp.minimum(past[row] + 1, lags),
    )


def go_on(course: Course, action: Array, next_obs: Array) -> Course:
    """One step further: the oldest is forgotten."""
    lags = course.obs.shape[0]
    return Course(
        jnp.concatenate([course.obs[1:], next_obs[None]]),
        jnp.concatenate([course.action, action[None]])[1:],
        jnp.minimum(course.length + 1, lags),
    )


class Outlook(NamedTuple):
    """What the lags say of the next state and reward: (lags, batch, obs_dim + 1), lag k at k - 1."""

    mean: Array  # next state in raw units, reward in the model's
    std: Array
    valid: Array  # (lags, batch): which of them the past allows


def look_ahead(setup: Setup, course: Course, action: Array, key: Array | None) -> Outlook:
    """All lags in one pass; with a key, the model drops out units."""
    lags, batch = course.obs.shape[:2]
    old = course.obs[::-1]  # lag 1 is from the present, lag 2 from the state before
    taken = jnp.moveaxis(jnp.concatenate([course.action, action[None]]), 0, 1)
    taken = jnp.broadcast_to(taken, (lags, *taken.shape))
    change = setup.arrays.model.predict(setup.model_norm.encode(old), taken, key)
    still = jnp.concatenate([old, jnp.zeros((lags, batch, 1))], axis=-1)
    return Outlook(still + change.mean, change.std, jnp.arange(lags)[:, None] < course.length)


def random_lag(key: Array, length: Array) -> Array:
    """(batch,): k - 1 for a lag k of 1 to `length` each."""
    return jax.random.randint(key, length.shape, 0, length)


def penalised_step(
    config: Config, setup: Setup, actor: TanhGaussian, course: Course, key: Array
) -> tuple[Course, Transitions]:
    """One step of rollouts: the policy's action, the outcome by a random lag, the reward less the lags' spread."""
    action_key, drop_key, lag_key, noise_key = jax.random.split(key, 4)
    obs = course.obs[-1]
    action = actor.unit_action(setup.norm.encode(obs), action_key)
    outlook = look_ahead(setup, course, action, drop_key if config.dropout_in_rollouts else None)
    pick = random_lag(lag_key, course.length), jnp.arange(obs.shape[0])
    drawn = outlook.mean[pick] + outlook.std[pick] * target_noise(noise_key, obs)
    reached = setup.range.reached(setup.model_norm, drawn[:, :-1])
    done = setup.arrays.terminated(setup.model_norm, obs, action, reached)
    next_obs = setup.range.keep(reached)
    reward = setup.range.reward(drawn[:, -1]) * setup.model_norm.reward_scale  # raw, as the penalty is
    reward = reward - config.penalty * lag_std(outlook.mean[..., :-1], outlook.valid)
    return go_on(course, action, next_obs), Transitions(obs, action, reward / setup.norm.reward_scale, next_obs, done)


def begin_chunk(
    config: Config, setup: Setup, data: DeviceDataset, state: State
) -> tuple[State, None, dict[str, Array]]:
    """Between chunks: rollouts of the present policy into the buffer."""
    key, roll_key = jax.random.split(state.key)
    step = partial(penalised_step, config, setup, state.agent.params.actor)

    def roll(count: int, k: Array) -> tuple[Transitions, Array]:
        start_key, step_key = jax.random.split(k)
        begin = starts(data, setup.arrays.past, setup.lags, pick_transitions(data, start_key, count))
        return rollout(step, begin, count, config.rollout_horizon, step_key)

    buffer, metrics = keep(state.buffer, *in_blocks(config.starts, roll, roll_key))
    return state._replace(buffer=buffer, key=key), None, metrics
