"""RAMBO (Rigter et al. 2022, "RAMBO-RL: Robust Adversarial Model-Based Offline Reinforcement Learning").

SAC learns from short rollouts in an ensemble, and in turn the ensemble learns to lower the policy's value while it
still explains the dataset. The models descend

    L_phi = lambda E[A log T_phi(s', r | s, a)] + L_MLE,    A = r + gamma min_j Q_j(s', pi(s')) - min_j Q_j(s, a)

with s from rollouts of the policy in the present models, T_phi the elites' mixture, pi(s') the policy's mode, and A
standardised in every batch; L_MLE is the likelihood of real transitions. lambda = 0 is SAC in models that stay as
fitted. The policy starts from behaviour cloning. An epoch is a chunk here: its SAC steps, then `adversary_steps` of the
models, at the beginning of the next chunk. Differences from the authors' code:
- Models are fitted as all of ours, with RAMBO's learning rates: targets are standardised (which changes no gradient but
  the clamp's), and predicted states stay inside the dataset's range when they are valued and continued.
- The elite of each synthetic transition is drawn again in every step; theirs is fixed by the position in the batch.
- L_MLE draws from the whole dataset, theirs from what is outside the hold-out, which is no longer needed by outcome.
- Behaviour cloning moves actions at the bounds just inside; theirs skips every batch that has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from pspo.algorithms.common import model_based
from pspo.algorithms.common.losses import bellman_target, q_values
from pspo.algorithms.common.model_based import (
    PoolConfig,
    Setup,
    SoftConfig,
    draw,
    fit_bc,
    model_env,
    policies,
    refresh,
    update,
)
from pspo.algorithms.common.model_free import descend
from pspo.algorithms.common.sac import Agent, Params
from pspo.core.config import Bounds
from pspo.core.progress import Progress
from pspo.data.batches import DeviceDataset, sample_transitions
from pspo.data.dataset import Dataset
from pspo.dynamics.adversary import (
    LoggedBatches,
    ModelOutcomes,
    adversarial_loss,
    draw_logged,
    draw_targets,
    likelihood_loss,
)
from pspo.dynamics.buffer import Buffer
from pspo.dynamics.ensemble import Ensemble, model_inputs
from pspo.dynamics.fit import is_trained, target_counts
from pspo.dynamics.model_env import ModelEnv, elite_step

__all__ = ["HEADLINE", "Config", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("critic_loss",)


@dataclass(frozen=True)
class Config(SoftConfig, PoolConfig):
    real_ratio: Annotated[float, Bounds(0.0, 1.0)] = 0.5
    """Fraction of a batch that is real; the rest is synthetic."""
    adversary_weight: Annotated[float, Bounds(0.0, 1e6)] = 3e-4
    """lambda: weight of the policy's value in the models' loss; 0 leaves the models as they were fitted."""
    adversary_steps: Annotated[int, Bounds(1, 1_000_000)] = 1000
    """Steps of the models after every chunk, with `batch` synthetic and `model.batch` real transitions in each."""
    adversary_lr: Annotated[float, Bounds(0.0, 1.0)] = 3e-4
    """Learning rate of those steps."""
    cloning_steps: Annotated[int, Bounds(0, 1_000_000_000)] = 5000
    """Steps of behaviour cloning at the start."""
    cloning_lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-4
    """Learning rate of those steps."""


class State(NamedTuple):
    """Everything that resuming needs."""

    agent: Agent
    models: Ensemble  # their trained parameters: the scales of targets are the pool's
    models_opt: Any
    buffer: Buffer
    key: Array
    step: Array


def prepare(config: Config, dataset: Dataset, seed: int, progress: Progress) -> tuple[Setup, dict[str, Any]]:
    setup, info = model_based.prepare(config, dataset, seed, progress)
    counts = target_counts(dataset)
    arrays = setup.arrays._replace(counts=None if counts is None else jnp.asarray(counts))
    return setup._replace(arrays=arrays), info


def models_optimiser(config: Config) -> optax.GradientTransformation:
    return optax.adamw(config.adversary_lr, weight_decay=config.model.weight_decay)


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    """SAC with a policy from behaviour cloning, and the pool's models with a new optimiser."""
    key, bc_key = jax.random.split(key)
    agent, buffer, key, step = model_based.init(config, setup, data, key)
    actor = fit_bc(
        actor=agent.params.actor,
        norm=setup.norm,
        data=data,
        steps=config.cloning_steps,
        batch=config.batch,
        lr=config.cloning_lr,
        key=bc_key,
    )
    models = eqx.filter(setup.arrays.pool, is_trained(setup.arrays.pool))
    models_opt = models_optimiser(config).init(models)
    return State(agent._replace(params=agent.params._replace(actor=actor)), models, models_opt, buffer, key, step)


def complete(setup: Setup, models: Ensemble) -> Ensemble:
    """The models of a state with the scales of their targets."""
    return eqx.combine(models, setup.arrays.pool)


# Training of the models


def play(config: Config, env: ModelEnv, params: Params, obs: Array, key: Array) -> tuple[ModelOutcomes, Array]:
    """The policy's step in the models of `env`, as the models' loss needs it, and the next observations."""
    action_key, target_key = jax.random.split(key)
    features = env.norm.encode(obs)
    action = params.actor.unit_action(features, action_key)
    x, models = model_inputs(env.model_norm, obs, action), env.models
    target = draw_targets(models, x, target_key)
    outcome = env.outcome(obs, action, target * models.target_std + models.target_mean)
    next_features = env.norm.encode(outcome.next_obs)
    next_value = q_values(params.critic, next_features, params.actor.unit_action(next_features)).min(0)
    backup = bellman_target(outcome.reward, outcome.terminal, next_value, config.gamma)
    return ModelOutcomes(x, target, backup - q_values(params.critic, features, action).min(0)), outcome.next_obs


def models_loss(
    config: Config, models: Ensemble, elite: Array, played: ModelOutcomes, logged: LoggedBatches
) -> tuple[Array, dict[str, Array]]:
    """L_phi: the policy's value by the model gradient, through the elites, and the likelihood of all members."""
    adversary, likelihood = adversarial_loss(models.take(elite), played), likelihood_loss(models, logged)
    metrics = {"adversary_loss": adversary, "likelihood_loss": likelihood / models.size}
    return config.adversary_weight * adversary + likelihood, metrics


class ModelTraining(NamedTuple):
    """What changes while the models are trained."""

    models: Ensemble
    opt: Any
    obs: Array  # (batch, obs_dim): present states of the rollouts


def models_step(
    config: Config, setup: Setup, data: DeviceDataset, params: Params, training: ModelTraining, now: tuple[Array, Array]
) -> tuple[ModelTraining, dict[str, Array]]:
    """A step of the policy in the models, and one of the models. `now` is its number and key.

    Rollouts restart in every `rollout_horizon`-th step, whether or not they have ended.
    """
    number, (start_key, play_key, real_key) = now[0], jax.random.split(now[1], 3)
    starts = sample_transitions(data, start_key, config.batch).obs
    obs = jnp.where(number % config.rollout_horizon == 0, starts, training.obs)
    models, elite = complete(setup, training.models), setup.arrays.elite
    played, next_obs = play(config, model_env(setup, models.take(elite)), params, obs, play_key)
    logged = draw_logged(model_env(setup, models), data, setup.arrays.counts, config.model.batch, real_key)
    loss = lambda moving: models_loss(config, complete(setup, moving), elite, played, logged)  # noqa: E731
    grads, metrics = jax.grad(loss, has_aux=True)(training.models)
    moved = descend(models_optimiser(config), grads, training.opt, training.models)
    return ModelTraining(*moved, next_obs), metrics


def train_models(
    config: Config, setup: Setup, data: DeviceDataset, state: State, key: Array
) -> tuple[State, dict[str, Array]]:
    """`adversary_steps` of the models, and their mean losses."""
    now = jnp.arange(config.adversary_steps), jax.random.split(key, config.adversary_steps)
    start = ModelTraining(state.models, state.models_opt, jnp.zeros((config.batch, data.transitions.obs.shape[-1])))
    step = partial(models_step, config, setup, data, state.agent.params)
    trained, losses = jax.lax.scan(step, start, now)
    means = {name: values.mean() for name, values in losses.items()}
    return state._replace(models=trained.models, models_opt=trained.opt), means


def begin_chunk(
    config: Config, setup: Setup, data: DeviceDataset, state: State
) -> tuple[State, None, dict[str, Array]]:
    """Between chunks: train the models, then rollouts of the present policy in them.

    The first chunk has the models as fitted. Under a vmap over seeds their training is computed there too, and dropped.
    """
    key, train_key, roll_key = jax.random.split(state.key, 3)
    losses = {"adversary_loss": jnp.float32(0.0), "likelihood_loss": jnp.float32(0.0)}
    if config.adversary_weight:
        train, rest = partial(train_models, config, setup, data), lambda state, key, none=losses: (state, none)
        state, losses = jax.lax.cond(state.step > 0, train, rest, state, train_key)
    models = complete(setup, state.models).take(setup.arrays.elite)
    step = partial(elite_step, model_env(setup, models), jnp.arange(models.size), state.agent.params.actor)
    buffer, metrics = refresh(config, data, state.buffer, step, roll_key)
    return state._replace(buffer=buffer, key=key), None, metrics | losses
