"""RAMBO (Rigter et al. 2022, "RAMBO-RL: Robust Adversarial Model-Based Offline Reinforcement Learning").

A game in turns: SAC learns from short rollouts in an ensemble, then the ensemble learns to lower the policy's value
while it still explains the log. The models descend

    L_phi = lambda E[A log T_phi(s', r | s, a)] + L_MLE,    A = r + gamma min_j Q_j(s', pi(s')) - min_j Q_j(s, a)

with s from rollouts of the policy in the present models, T_phi the elites' mixture, pi(s') the policy's mode, and A
standardised in every batch; L_MLE is the likelihood of logged rows. lambda = 0 is SAC in models that stay as they
were fitted. Before all of it the policy is cloned from the log. An epoch is a chunk here: its SAC steps, then
`adversary_steps` of the models, which are the beginning of the next chunk. Ours and the authors' code differ:
- Models are fitted as all of ours, with RAMBO's rates: targets are standardised (which changes no gradient but the
  clamp's), and predicted states stay inside the log's range when they are judged and continued.
- The elite that a row is drawn from is drawn anew in every step; theirs is fixed once by the row's place in a batch.
- L_MLE draws from all logged rows, theirs from those outside the hold-out, which nothing needs by then.
- Cloning takes actions at the bounds just inside them, where theirs leaves out every batch that has one.
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
    cloned,
    draw,
    policies,
    refresh,
    update,
    world,
)
from pspo.algorithms.common.model_free import descend
from pspo.algorithms.common.sac import Agent, Params
from pspo.core.config import Bounds
from pspo.core.progress import Progress
from pspo.data.batches import DeviceDataset, sample_transitions
from pspo.data.dataset import Dataset
from pspo.dynamics.adversary import Logged, Played, adversarial_loss, draw_logged, draw_targets, likelihood_loss
from pspo.dynamics.buffer import Buffer
from pspo.dynamics.ensemble import Ensemble, model_inputs
from pspo.dynamics.fit import is_trained, target_counts
from pspo.dynamics.model_env import ModelEnv, elite_step

__all__ = ["HEADLINE", "Config", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("critic_loss",)


@dataclass(frozen=True)
class Config(SoftConfig, PoolConfig):
    real_ratio: Annotated[float, Bounds(0.0, 1.0)] = 0.5
    """Share of a batch that is logged; the rest is imagined."""
    adversary_weight: Annotated[float, Bounds(0.0, 1e6)] = 3e-4
    """lambda: weight of the policy's value in the models' loss; 0 leaves the models as they were fitted."""
    adversary_steps: Annotated[int, Bounds(1, 1_000_000)] = 1000
    """Steps of the models after every chunk, `batch` imagined and `model.batch` logged rows in each."""
    adversary_lr: Annotated[float, Bounds(0.0, 1.0)] = 3e-4
    """Learning rate of those steps."""
    cloning_steps: Annotated[int, Bounds(0, 1_000_000_000)] = 5000
    """Steps in which the policy first imitates the log."""
    cloning_lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-4
    """Learning rate of those steps."""


class State(NamedTuple):
    """Everything that resuming needs."""

    agent: Agent
    models: Ensemble  # what learns of them: the scales of targets are the pool's
    models_opt: Any
    buffer: Buffer
    key: Array
    step: Array


def prepare(config: Config, dataset: Dataset, seed: int, progress: Progress) -> tuple[Setup, dict[str, Any]]:
    setup, facts = model_based.prepare(config, dataset, seed, progress)
    counts = target_counts(dataset)
    arrays = setup.arrays._replace(counts=None if counts is None else jnp.asarray(counts))
    return setup._replace(arrays=arrays), facts


def models_optimiser(config: Config) -> optax.GradientTransformation:
    return optax.adamw(config.adversary_lr, weight_decay=config.model.weight_decay)


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    """SAC's start with a cloned policy, and the pool's models with a new optimiser."""
    key, clone_key = jax.random.split(key)
    agent, buffer, key, step = model_based.init(config, setup, data, key)
    actor = cloned(
        agent.params.actor, setup.norm, data, config.cloning_steps, config.batch, config.cloning_lr, clone_key
    )
    models = eqx.filter(setup.arrays.pool, is_trained(setup.arrays.pool))
    models_opt = models_optimiser(config).init(models)
    return State(agent._replace(params=agent.params._replace(actor=actor)), models, models_opt, buffer, key, step)


def complete(setup: Setup, models: Ensemble) -> Ensemble:
    """The models of a state with the scales of their targets."""
    return eqx.combine(models, setup.arrays.pool)


# The models' side of the game


def play(config: Config, place: ModelEnv, params: Params, obs: Array, key: Array) -> tuple[Played, Array]:
    """The policy's step in the models of `place`, as they are to judge it, and where it leads."""
    action_key, target_key = jax.random.split(key)
    features = place.norm.encode(obs)
    action = params.actor.unit_action(features, action_key)
    x, models = model_inputs(place.model_norm, obs, action), place.models
    target = draw_targets(models, x, target_key)
    then = place.outcome(obs, action, target * models.target_std + models.target_mean)
    next_features = place.norm.encode(then.next_obs)
    next_value = q_values(params.critic, next_features, params.actor.unit_action(next_features)).min(0)
    backup = bellman_target(then.reward, then.terminal, next_value, config.gamma)
    return Played(x, target, backup - q_values(params.critic, features, action).min(0)), then.next_obs


def models_loss(
    config: Config, models: Ensemble, elite: Array, played: Played, logged: Logged
) -> tuple[Array, dict[str, Array]]:
    """L_phi: the policy's value by the model gradient, through the elites, and the likelihood of all members."""
    adversary, likelihood = adversarial_loss(models.take(elite), played), likelihood_loss(models, logged)
    facts = {"adversary_loss": adversary, "likelihood_loss": likelihood / models.size}
    return config.adversary_weight * adversary + likelihood, facts


class Turn(NamedTuple):
    """The models' turn under way."""

    models: Ensemble
    opt: Any
    obs: Array  # (batch, obs_dim): where its rollouts are


def models_step(
    config: Config, setup: Setup, data: DeviceDataset, params: Params, turn: Turn, now: tuple[Array, Array]
) -> tuple[Turn, dict[str, Array]]:
    """A step of the policy in the models, and one of the models. `now` is its number and key.

    Rollouts begin anew in every `rollout_horizon`-th step and nowhere else: no end stops them.
    """
    number, (start_key, play_key, log_key) = now[0], jax.random.split(now[1], 3)
    starts = sample_transitions(data, start_key, config.batch).obs
    obs = jnp.where(number % config.rollout_horizon == 0, starts, turn.obs)
    models, elite = complete(setup, turn.models), setup.arrays.elite
    played, next_obs = play(config, world(setup, models.take(elite)), params, obs, play_key)
    logged = draw_logged(world(setup, models), data, setup.arrays.counts, config.model.batch, log_key)
    loss = lambda moving: models_loss(config, complete(setup, moving), elite, played, logged)  # noqa: E731
    grads, facts = jax.grad(loss, has_aux=True)(turn.models)
    return Turn(*descend(models_optimiser(config), grads, turn.opt, turn.models), next_obs), facts


def take_turn(
    config: Config, setup: Setup, data: DeviceDataset, state: State, key: Array
) -> tuple[State, dict[str, Array]]:
    """`adversary_steps` of the models, and their mean losses on the way."""
    now = jnp.arange(config.adversary_steps), jax.random.split(key, config.adversary_steps)
    start = Turn(state.models, state.models_opt, jnp.zeros((config.batch, data.transitions.obs.shape[-1])))
    step = partial(models_step, config, setup, data, state.agent.params)
    turn, losses = jax.lax.scan(step, start, now)
    means = {name: values.mean() for name, values in losses.items()}
    return state._replace(models=turn.models, models_opt=turn.opt), means


def begin_chunk(
    config: Config, setup: Setup, data: DeviceDataset, state: State
) -> tuple[State, None, dict[str, Array]]:
    """Between chunks: the models' turn, then rollouts of the present policy in them.

    The first chunk comes before any turn. Under a vmap over seeds the turn is computed there too, and dropped.
    """
    key, turn_key, roll_key = jax.random.split(state.key, 3)
    losses = {"adversary_loss": jnp.float32(0.0), "likelihood_loss": jnp.float32(0.0)}
    if config.adversary_weight:
        turn, rest = partial(take_turn, config, setup, data), lambda state, key, none=losses: (state, none)
        state, losses = jax.lax.cond(state.step > 0, turn, rest, state, turn_key)
    models = complete(setup, state.models).take(setup.arrays.elite)
    step = partial(elite_step, world(setup, models), jnp.arange(models.size), state.agent.params.actor)
    buffer, metrics = refresh(config, data, state.buffer, step, roll_key)
    return state._replace(buffer=buffer, key=key), None, metrics | losses
