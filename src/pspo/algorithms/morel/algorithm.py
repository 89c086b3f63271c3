"""MOReL (Kidambi et al. 2020, "MOReL: Model-Based Offline Reinforcement Learning").

A policy is improved in a pessimistic MDP (definition 2): where the models disagree the episode halts, with a penalty.

    disc(s, a) = max_{i,j} |f_i(s, a) - f_j(s, a)|                       (Eq. 1)
    halt where disc > threshold, with the reward r - kappa

The policy begins with behaviour cloning and takes one natural policy gradient step (npg.py) per iteration, on long
rollouts from first states of the dataset's episodes, some in each member, without the members' noise.

The threshold comes from disc over the dataset: its maximum over `caution` (the authors' code), or its mean plus `beta`
standard deviations (the paper). Differences from the authors' code:
- disc is in units of each column's standard deviation, where they scale velocities by 0.02, so that it fits any data.
- Rewards are learned, as next states are; they compute them by the task's known formula.
- A halt or a true end is terminal: theirs loses the flag, and values leak past it. Actions are clipped to their bounds.
- Paths of fewer than five steps count like others; a halt may come at the first step.
- Models are PSPO's: bootstraps, targets standardised, early stopping; `model.beta_nll=1` is least squares, as theirs.
- The final policy is evaluated, not the best by its scores in the simulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.algorithms.common import model_based
from pspo.algorithms.common.model_based import PoolConfig
from pspo.algorithms.common.model_free import begin_chunk
from pspo.algorithms.common.settings import BatchConfig
from pspo.algorithms.morel import npg
from pspo.algorithms.morel.npg import NaturalConfig, Paths, State
from pspo.core.config import Bounds
from pspo.core.progress import Progress
from pspo.data.batches import DeviceDataset, Transitions, sample_transitions
from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser
from pspo.dynamics.ensemble import Ensemble, Prediction, model_inputs
from pspo.dynamics.model_env import ModelEnv, rollout
from pspo.dynamics.prediction_range import PredictionRange
from pspo.dynamics.termination import Termination
from pspo.dynamics.uncertainty import largest_pairwise_distance
from pspo.nets.actors import LinearGaussian

__all__ = ["HEADLINE", "Config", "State", "begin_chunk", "draw", "init", "policies", "prepare", "update"]

HEADLINE = ("rollout_return",)

BLOCK = 20_000  # transitions whose disagreement is computed together


@dataclass(frozen=True)
class Config(NaturalConfig, BatchConfig, PoolConfig):
    pessimism: Literal["max", "std"] = "max"
    """Threshold of disagreement: the dataset's largest over `caution`, or its mean plus `beta` standard deviations."""
    caution: Annotated[float, Bounds(1e-6, 1e6)] = 3.0
    """Of pessimism=max: larger halts earlier."""
    beta: Annotated[float, Bounds(-1e6, 1e6)] = 10.0
    """Of pessimism=std: larger halts later."""
    halt_penalty: Annotated[float, Bounds(0.0, 1e6)] = 0.0
    """kappa: taken off the reward of the step that halts, in raw units."""
    rollout_horizon: Annotated[int, Bounds(1, 10_000)] = 700
    """Steps of a rollout at most."""
    termination: Literal["auto", "known", "learned", "none"] = "auto"
    """Ends of rollouts: the task's own rule, a classifier, or never; auto takes the rule where there is one."""
    elites: Annotated[int, Bounds(1, 1000)] = 4
    """Members that are used, for rollouts and disagreement: those with the smallest error on the hold-out."""


class Arrays(NamedTuple):
    """What is fixed during training and lives on the device."""

    pool: Ensemble  # the elite only
    terminated: Termination
    starts: Array  # (episodes, obs_dim): first states of the dataset's episodes
    threshold: Array  # ()


class Setup(NamedTuple):
    arrays: Arrays
    norm: Normaliser
    model_norm: Normaliser
    range: PredictionRange

    @property
    def model_env(self) -> ModelEnv:
        return ModelEnv(self.arrays.pool, self.arrays.terminated, self.model_norm, self.norm, self.range)


def disagreement(norm: Normaliser, prediction: Prediction) -> Array:
    """disc(s, a), Eq. 1: the largest distance between two members' next states, columns in standard deviations."""
    return largest_pairwise_distance(prediction, norm.obs_std)


def dataset_disagreement(dataset: Dataset, norm: Normaliser, models: Ensemble) -> np.ndarray:
    """disc at every transition of the dataset."""

    @eqx.filter_jit
    def compute(models: Ensemble, obs: Array, action: Array) -> Array:
        return disagreement(norm, models.predict(model_inputs(norm, obs, action)))

    unit = np.clip(norm.unit_action(dataset.action), -1.0, 1.0)
    blocks = np.array_split(np.arange(dataset.size), -(-dataset.size // BLOCK))
    return np.concatenate([compute(models, jnp.asarray(dataset.obs[b]), jnp.asarray(unit[b])) for b in blocks])


def halting_threshold(config: Config, disc: np.ndarray) -> float:
    """Where rollouts halt, from disc over the dataset."""
    if config.pessimism == "max":
        return float(disc.max()) / config.caution
    return float(disc.mean(dtype=np.float64) + config.beta * disc.std(dtype=np.float64))


def prepare(config: Config, dataset: Dataset, seed: int, progress: Progress) -> tuple[Setup, dict[str, Any]]:
    """Models, termination rule, first states of episodes and the threshold; with information for the report."""
    (shared, norm, model_norm, within, _), info = model_based.prepare(config, dataset, seed, progress)
    pool = shared.pool.take(shared.elite)
    disc = dataset_disagreement(dataset, model_norm, pool)
    threshold = halting_threshold(config, disc)
    starts = jnp.asarray(dataset.obs[dataset.episode_starts])
    halting = {"halt_threshold": threshold, "halt_logged_share": float((disc > threshold).mean())}
    arrays = Arrays(pool, shared.terminated, starts, jnp.float32(threshold))
    return Setup(arrays, norm, model_norm, within), info | halting


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    return npg.init(config, setup.norm, data, key)


def pessimistic_step(
    obs: Array, key: Array, *, config: Config, env: ModelEnv, threshold: Array, policy: LinearGaussian, member: Array
) -> tuple[Array, Paths]:
    """One step of each path: what its member expects, unless the members disagree too much about it."""
    drawn = policy.draw(env.norm.encode(obs), key)
    action = jnp.clip(drawn, -1.0, 1.0)
    prediction = env.predict(obs, action)
    outcome = env.outcome(obs, action, prediction.mean[member, jnp.arange(obs.shape[0])])
    halted = disagreement(env.model_norm, prediction) > threshold
    reward = outcome.reward - jnp.where(halted, config.halt_penalty / env.norm.reward_scale, 0.0)
    return outcome.next_obs, Paths(obs, drawn, reward, outcome.next_obs, halted | outcome.terminal, halted)


def start_states(config: Config, first: Array, anywhere: Array, key: Array) -> Array:
    """Where paths start: at first states of episodes, a fraction at states from `anywhere` (one for each path)."""
    pick_key, share_key = jax.random.split(key)
    starts = first[jax.random.randint(pick_key, anywhere.shape[:1], 0, first.shape[0])]
    take = jax.random.uniform(share_key, anywhere.shape[:1]) < config.start_anywhere
    return jnp.where(take[:, None], anywhere, starts)


def roll(config: Config, setup: Setup, policy: LinearGaussian, anywhere: Array, key: Array) -> tuple[Paths, Array]:
    """Paths (time, members * paths), and which of their steps happened."""
    start_key, roll_key = jax.random.split(key)
    arrays = setup.arrays
    member = jnp.repeat(jnp.arange(arrays.pool.size), config.paths)
    starts = start_states(config, arrays.starts, anywhere, start_key)
    fixed = {"config": config, "env": setup.model_env, "threshold": arrays.threshold}
    step: Any = partial(pessimistic_step, **fixed, policy=policy, member=member)
    paths: Any = rollout(step, starts, member.size, config.rollout_horizon, roll_key)
    return paths


def draw(config: Config, data: DeviceDataset, key: Array) -> Transitions:
    """Transitions of one iteration: one for each path, which may start there."""
    return sample_transitions(data, key, min(config.elites, config.model.pool) * config.paths)


def update(
    config: Config, setup: Setup, context: None, state: State, batch: Transitions, key: Array
) -> tuple[State, dict[str, Array]]:
    """One iteration: paths, and a natural step."""
    roll_key, order_key = jax.random.split(key)
    paths, alive = roll(config, setup, state.policy, batch.obs, roll_key)
    return npg.improve(config, setup.norm, state, paths, alive, order_key)


def policies(state: State) -> dict[str, Any]:
    return {"policy": state.policy}
