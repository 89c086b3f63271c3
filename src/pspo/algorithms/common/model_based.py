"""What algorithms that learn from synthetic transitions share: settings, models, rollouts, SAC on the mixture.

Real transitions are the dataset's, synthetic ones come from rollouts in models and are kept in a buffer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from pspo.algorithms.common.discrete import Labels, labels_of, new_policy
from pspo.algorithms.common.model_free import adam_by_part, descend
from pspo.algorithms.common.sac import Actor, Agent, EncodedBatch, Params, Rule, fresh_agent, soft_step
from pspo.algorithms.common.settings import BatchConfig
from pspo.core.config import Bounds
from pspo.core.progress import Progress
from pspo.data.batches import DeviceDataset, Transitions, sample_transitions
from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser, fit_normaliser, normaliser_in
from pspo.dynamics.buffer import Buffer, append, empty_buffer, mixed
from pspo.dynamics.ensemble import Ensemble
from pspo.dynamics.fit import ModelConfig
from pspo.dynamics.model_env import ModelEnv, capacity_for, rollout, rollouts_in_batches
from pspo.dynamics.pool import load_or_fit_pool, pool_seed
from pspo.dynamics.prediction_range import PredictionRange, prediction_range
from pspo.dynamics.quality import holdout_error
from pspo.dynamics.termination import Termination, make_termination
from pspo.envs.task import get_task
from pspo.nets.actors import TanhGaussian
from pspo.nets.categorical import CategoricalPolicy
from pspo.nets.mlp import mlp, mlp_stack

TERMINATION_WIDTH = 64  # of the classifier that learns where episodes end


@dataclass(frozen=True)
class SyntheticConfig(BatchConfig):
    """Learning from real and synthetic transitions: every chunk begins with new rollouts."""

    real_ratio: Annotated[float, Bounds(0.0, 1.0)] = 0.05
    """Fraction of a batch that is real; the rest is synthetic."""
    starts: Annotated[int, Bounds(1, 10_000_000)] = 50_000
    """Rollouts at the beginning of every chunk, from states of the dataset."""
    rollout_horizon: Annotated[int, Bounds(1, 10_000)] = 5
    """Steps of a rollout at most."""
    retain: Annotated[int, Bounds(1, 1000)] = 5
    """Chunks whose rollouts are kept."""
    termination: Literal["auto", "known", "learned", "none"] = "auto"
    """Ends of rollouts: the task's own rule, a classifier, or never; auto takes the rule where there is one."""


@dataclass(frozen=True)
class SoftConfig(SyntheticConfig):
    """SAC's settings."""

    alpha: Annotated[float, Bounds(1e-6, 1e6)] = 1.0
    """Initial temperature of SAC."""
    adapt_alpha: bool = True
    """Adapt the temperature to the entropy; false keeps it fixed (ADM's authors)."""
    entropy_goal: Annotated[float, Bounds(-100.0, 100.0)] = -1.0
    """Entropy that the temperature is adapted to, in nats per action column."""
    critic_lr: Annotated[float, Bounds(0.0, 1.0)] = 3e-4
    """Learning rate of the critics."""
    actor_lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-4
    """Learning rate of the actor."""
    alpha_lr: Annotated[float, Bounds(0.0, 1.0)] = 0.0
    """Learning rate of the temperature; 0 takes the actor's."""
    actor_decay: bool = False
    """Decay the actor's learning rate to zero along a cosine (ADM's authors, OfflineRL-Kit's COMBO)."""
    tau: Annotated[float, Bounds(0.0, 1.0)] = 0.005
    """Moving-average rate of the target critics."""


@dataclass(frozen=True)
class PoolConfig:
    """Settings of algorithms that share a pool of models."""

    elites: Annotated[int, Bounds(1, 1000)] = 5
    """Members that rollouts go through: those with the smallest error on the hold-out."""
    model: ModelConfig = dataclasses.field(default_factory=partial(ModelConfig, pool=7))


class Arrays(NamedTuple):
    """What is fixed during training and lives on the device."""

    pool: Ensemble
    elite: Array  # (elites,): indices of members
    terminated: Termination
    counts: Array | None = None
    """(transitions, targets): which targets are known, where models are trained further; None: all."""


class Setup(NamedTuple):
    arrays: Arrays
    norm: Normaliser  # of policy and critics
    model_norm: Normaliser  # of the models: the same for all algorithms, so that they can share a pool
    range: PredictionRange
    labels: Labels | None = None  # of discrete actions


class State(NamedTuple):
    """Everything that resuming needs."""

    agent: Agent
    buffer: Buffer
    key: Array
    step: Array


def prepare(config: Any, dataset: Dataset, seed: int, progress: Progress) -> tuple[Setup, dict[str, Any]]:
    """Fit or load the models and the termination rule; with information for the report."""
    norm = normaliser_in(dataset, config.states, config.rewards, config.gamma)
    model_norm = fit_normaliser(dataset, config.gamma)
    pool, info = load_or_fit_pool(dataset, model_norm, config.model, seed, partial(progress, "dynamics pool"))
    holdout = dataset.split(config.model.holdout, pool_seed(config.model, seed))[1]
    error = holdout_error(dataset, model_norm, pool.models, holdout)
    elite = jnp.argsort(error)[: min(config.elites, config.model.pool)].astype(jnp.int32)
    terminated, termination_info = prepare_termination(config.termination, dataset, model_norm)
    info = info | {"elites": sorted(elite.tolist())}
    limits, labels = prediction_range(dataset, model_norm), labels_of(dataset, norm)
    setup = Setup(Arrays(pool.models, elite, terminated), norm, model_norm, limits, labels)
    return setup, {"pool": info, "reward": "learned", **termination_info}


def prepare_termination(choice: str, dataset: Dataset, norm: Normaliser) -> tuple[Termination, dict[str, Any]]:
    rule = get_task(dataset.task).terminated if dataset.task else None
    return make_termination(choice, dataset, rule, norm, TERMINATION_WIDTH, 0)


def model_env(setup: Setup, models: Ensemble | None = None) -> ModelEnv:
    """The environment of rollouts; `models` replaces the pool where an algorithm has trained them further."""
    pool = setup.arrays.pool if models is None else models
    return ModelEnv(pool, setup.arrays.terminated, setup.model_norm, setup.norm, setup.range)


def draw(config: BatchConfig, data: DeviceDataset, key: Array) -> Transitions:
    """Real transitions of one iteration, of which `mixed` takes the fraction that it needs."""
    return sample_transitions(data, key, config.batch)


def refresh(
    config: SyntheticConfig,
    data: DeviceDataset,
    buffer: Buffer,
    step: Callable[[Array, Array], tuple[Array, Transitions]],
    key: Array,
) -> tuple[Buffer, dict[str, Array]]:
    """New rollouts from states of the dataset into the buffer, and their metrics.

    `step` maps observations to the next ones and the transitions between.
    """

    def roll(count: int, k: Array) -> tuple[Transitions, Array]:
        start_key, roll_key = jax.random.split(k)
        starts = sample_transitions(data, start_key, count).obs
        return rollout(step, starts, count, config.rollout_horizon, roll_key)

    return store(buffer, *rollouts_in_batches(config.starts, roll, key))


def store(buffer: Buffer, transitions: Transitions, happened: Array) -> tuple[Buffer, dict[str, Array]]:
    """Transitions into the buffer; their mean reward in the critics' unit, and the fraction of steps before an end."""
    count = happened.sum()
    reward = jnp.where(happened, transitions.reward, 0.0).sum() / count
    return append(buffer, transitions, happened), {"rollout_reward": reward, "rollout_alive": count / happened.size}


# SAC on the mixture


def optimiser(config: SoftConfig) -> optax.GradientTransformation:
    actor = optax.cosine_decay_schedule(config.actor_lr, config.steps) if config.actor_decay else config.actor_lr
    return adam_by_part(Params(actor, config.critic_lr, config.alpha_lr or config.actor_lr))  # pyright: ignore[reportArgumentType]


def rule(config: SoftConfig, columns: int) -> Rule:
    goal = config.entropy_goal * columns
    return Rule(optimiser(config), config.gamma, config.tau, goal, config.adapt_alpha)


def fresh_params(
    config: SoftConfig, norm: Normaliser, action_dim: int, key: Array, labels: Labels | None = None
) -> Params:
    actor_key, critic_key = jax.random.split(key)
    inputs, hidden = norm.features, [config.width] * config.depth
    if labels:
        actor = new_policy(actor_key, norm, labels, config.width, config.depth, activation="relu", init="keras")
    else:
        actor = TanhGaussian(mlp(actor_key, [inputs, *hidden, 2 * action_dim], "relu", init="keras"), -20.0, 2.0)
    critic = mlp_stack(critic_key, 2, [inputs + action_dim, *hidden, 1], activation="relu", init="keras")
    return Params(actor, critic, jnp.log(jnp.float32(config.alpha)))


def fresh_buffer(config: SyntheticConfig, data: DeviceDataset) -> Buffer:
    return empty_buffer(capacity_for(config.starts, config.rollout_horizon, config.retain), data.transitions)


def init(config: SoftConfig, setup: Setup, data: DeviceDataset, key: Array) -> State:
    key, net_key = jax.random.split(key)
    params = fresh_params(config, setup.norm, data.transitions.action.shape[-1], net_key, setup.labels)
    return State(fresh_agent(params, optimiser(config)), fresh_buffer(config, data), key, jnp.int32(0))


def fit_bc(
    *,
    actor: TanhGaussian,
    norm: Normaliser,
    data: DeviceDataset,
    steps: int,
    batch: int,
    lr: float,
    key: Array,
) -> TanhGaussian:
    """The actor after `steps` of behaviour cloning by maximum likelihood: how RAMBO and 1R2R begin."""
    adam = optax.adam(lr)

    def step(carry: tuple[TanhGaussian, Any], k: Array) -> tuple[tuple[TanhGaussian, Any], None]:
        actor, opt = carry
        real = sample_transitions(data, k, batch)
        features = norm.encode(real.obs)
        grads = jax.grad(lambda a: -a.log_prob(features, real.action).mean())(actor)
        return descend(adam, grads, opt, actor), None

    if not steps:
        return actor
    start = actor, adam.init(actor)  # pyright: ignore[reportArgumentType]
    return jax.lax.scan(step, start, jax.random.split(key, steps))[0][0]


def soft_update(
    config: SoftConfig, norm: Normaliser, agent: Agent, buffer: Buffer, real: Transitions, key: Array
) -> tuple[Agent, dict[str, Array]]:
    """SAC's step on a batch of real and synthetic transitions."""
    mix_key, step_key = jax.random.split(key)
    batch = mixed(buffer, real, config.real_ratio, mix_key)
    encoded = EncodedBatch(batch, norm.encode(batch.obs), norm.encode(batch.next_obs))
    columns = 1 if isinstance(agent.params.actor, CategoricalPolicy) else batch.action.shape[-1]
    return soft_step(rule(config, columns), agent, encoded, step_key)


def update(
    config: SoftConfig, setup: Setup, context: None, state: State, batch: Transitions, key: Array
) -> tuple[State, dict[str, Array]]:
    """One iteration."""
    agent, metrics = soft_update(config, setup.norm, state.agent, state.buffer, batch, key)
    return state._replace(agent=agent, step=state.step + 1), metrics


def policies(state: Any) -> dict[str, Actor]:
    return {"policy": state.agent.params.actor}
