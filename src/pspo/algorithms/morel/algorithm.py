"""MOReL (Kidambi et al. 2020, "MOReL: Model-Based Offline Reinforcement Learning").

A policy is improved in a pessimistic MDP (definition 2): where the models disagree the episode halts, with a penalty.

    disc(s, a) = max_{i,j} |f_i(s, a) - f_j(s, a)|                       (Eq. 1)
    halt where disc > threshold, with the reward r - kappa

`form=npg`, the authors': behaviour cloning, then one natural policy gradient step (morel_npg.py) per iteration on
long rollouts from the first states of logged episodes, some in each member, which is taken without its noise.
`form=sac`: MOPO's pipeline, short rollouts from any logged state and SAC, halting in the place of its penalty; a halt
pays the log's lowest reward less kappa, a convention of unifloral's, since SAC's values must not end at zero there.

The threshold comes from disc over the log's rows: its maximum over `caution` (the authors' code), or its mean and
`beta` standard deviations (the paper). Ours and the authors' code differ:
- disc is in units of each column's standard deviation, where they scale velocities by 0.02: so it fits any data.
- Rewards are learned, as next states are; they compute them by the task's known formula.
- A halt or a true end is terminal: theirs loses the flag, and values leak past it. Actions are clipped to their bounds.
- Paths of fewer than five steps count like others; a halt may come at the first step.
- Models are PSPO's: bootstraps, targets standardised, early stopping; `model.beta_nll=1` is least squares, as theirs.
- The final policy is judged, not the best by looking at scores.
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
from pspo.algorithms.common.model_based import PoolConfig, SoftConfig, refresh
from pspo.algorithms.morel import npg as morel_npg
from pspo.algorithms.morel.npg import NaturalConfig, Paths
from pspo.core.config import Bounds
from pspo.core.errors import UserError
from pspo.core.progress import Progress
from pspo.data.batches import DeviceDataset, Transitions, sample_transitions
from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser
from pspo.dynamics.ensemble import Ensemble, Prediction, model_inputs
from pspo.dynamics.model_env import ModelEnv, capacity_for, random_member, rollout, target_noise
from pspo.dynamics.prediction_range import PredictionRange
from pspo.dynamics.termination import Termination
from pspo.dynamics.uncertainty import largest_pairwise_distance
from pspo.nets.actors import LinearGaussian, TanhGaussian

HEADLINE = ("rollout_return", "critic_loss")


BLOCK = 20_000  # logged rows whose disagreement is looked at together
LARGEST_BUFFER = 20_000_000  # imagined rows of form=sac: gigabytes, and more than anyone has used


@dataclass(frozen=True)
class Config(NaturalConfig, SoftConfig, PoolConfig):
    form: Literal["npg", "sac"] = "npg"
    """How the policy is improved: natural policy gradient on long rollouts, or SAC on short ones."""
    pessimism: Literal["max", "std"] = "max"
    """Threshold of disagreement: the log's largest over `caution`, or its mean and `beta` standard deviations."""
    caution: Annotated[float, Bounds(1e-6, 1e6)] = 3.0
    """Of pessimism=max: larger halts earlier."""
    beta: Annotated[float, Bounds(-1e6, 1e6)] = 10.0
    """Of pessimism=std: larger halts later."""
    halt_penalty: Annotated[float, Bounds(0.0, 1e6)] = 0.0
    """kappa: taken off the reward of the step that halts, in raw units."""
    rollout_horizon: Annotated[int, Bounds(1, 10_000)] = 700
    """Steps of a rollout at most."""
    elites: Annotated[int, Bounds(1, 1000)] = 4
    """Members that are used at all, for rollouts and disagreement: those with the smallest error on the hold-out."""


class Arrays(NamedTuple):
    """What is fixed during training and lives on the device."""

    pool: Ensemble  # the elite only
    terminated: Termination
    starts: Array  # (episodes, obs_dim): the first states of all logged episodes
    threshold: Array  # ()


class Setup(NamedTuple):
    arrays: Arrays
    norm: Normaliser
    model_norm: Normaliser
    range: PredictionRange

    @property
    def world(self) -> ModelEnv:
        return ModelEnv(self.arrays.pool, self.arrays.terminated, self.model_norm, self.norm, self.range)


State = morel_npg.State | model_based.State


def disagreement(norm: Normaliser, prediction: Prediction) -> Array:
    """disc(s, a), Eq. 1: the largest distance between two members' next states, each column in units of its spread."""
    return largest_pairwise_distance(prediction, norm.obs_std)


def logged_disagreement(dataset: Dataset, norm: Normaliser, models: Ensemble) -> np.ndarray:
    """disc at every row of the log."""

    @eqx.filter_jit
    def look(models: Ensemble, obs: Array, action: Array) -> Array:
        return disagreement(norm, models.predict(model_inputs(norm, obs, action)))

    unit = np.clip(norm.unit_action(dataset.action), -1.0, 1.0)
    blocks = np.array_split(np.arange(dataset.size), -(-dataset.size // BLOCK))
    return np.concatenate([look(models, jnp.asarray(dataset.obs[b]), jnp.asarray(unit[b])) for b in blocks])


def halting_threshold(config: Config, logged: np.ndarray) -> float:
    """Where rollouts halt, from disc over the log."""
    if config.pessimism == "max":
        return float(logged.max()) / config.caution
    return float(logged.mean(dtype=np.float64) + config.beta * logged.std(dtype=np.float64))


def require_short_rollouts(config: Config) -> None:
    """The length that natural steps take would fill a buffer that no machine holds."""
    rows = capacity_for(config.starts, config.rollout_horizon, config.retain)
    if config.form == "sac" and rows > LARGEST_BUFFER:
        raise UserError(
            f"form=sac would keep {rows:,} imagined rows: lower rollout_horizon={config.rollout_horizon} "
            f"(5 is usual), or starts={config.starts}."
        )


def prepare(config: Config, dataset: Dataset, seed: int, progress: Progress) -> tuple[Setup, dict[str, Any]]:
    """Models and ends of rollouts, where episodes begin, and the threshold; with a report of each."""
    require_short_rollouts(config)
    (shared, norm, model_norm, within), facts = model_based.prepare(config, dataset, seed, progress)
    pool = shared.pool.take(shared.elite)
    logged = logged_disagreement(dataset, model_norm, pool)
    threshold = halting_threshold(config, logged)
    starts = jnp.asarray(dataset.obs[dataset.episode_starts])
    said = {"halt_threshold": threshold, "halt_logged_share": float((logged > threshold).mean())}
    arrays = Arrays(pool, shared.terminated, starts, jnp.float32(threshold))
    return Setup(arrays, norm, model_norm, within), facts | said


def init(config: Config, setup: Setup, data: DeviceDataset, key: Array) -> State:
    if config.form == "sac":
        return model_based.init(config, setup, data, key)  # pyright: ignore[reportArgumentType]
    return morel_npg.init(config, setup.norm, data, key)


# form=npg: paths of the present policy, each in a member of its own


def pessimistic_step(
    config: Config, place: ModelEnv, threshold: Array, policy: LinearGaussian, member: Array, obs: Array, key: Array
) -> tuple[Array, Paths]:
    """One step of each path: what its member expects, unless the members disagree too much about it."""
    drawn = policy.draw(place.norm.encode(obs), key)
    action = jnp.clip(drawn, -1.0, 1.0)
    prediction = place.predict(obs, action)
    then = place.outcome(obs, action, prediction.mean[member, jnp.arange(obs.shape[0])])
    halted = disagreement(place.model_norm, prediction) > threshold
    reward = then.reward - jnp.where(halted, config.halt_penalty / place.norm.reward_scale, 0.0)
    return then.next_obs, Paths(obs, drawn, reward, then.next_obs, halted | then.terminal, halted)


def begin(config: Config, first: Array, logged: Array, key: Array) -> Array:
    """Where paths start: at the first states of episodes, a share of them at `logged` ones (one for each path)."""
    pick_key, share_key = jax.random.split(key)
    starts = first[jax.random.randint(pick_key, logged.shape[:1], 0, first.shape[0])]
    anywhere = jax.random.uniform(share_key, logged.shape[:1]) < config.start_anywhere
    return jnp.where(anywhere[:, None], logged, starts)


def roll(config: Config, setup: Setup, policy: LinearGaussian, logged: Array, key: Array) -> tuple[Paths, Array]:
    """Paths (time, members * paths), and which of their steps happened."""
    start_key, roll_key = jax.random.split(key)
    arrays = setup.arrays
    member = jnp.repeat(jnp.arange(arrays.pool.size), config.paths)
    starts = begin(config, arrays.starts, logged, start_key)
    step: Any = partial(pessimistic_step, config, setup.world, arrays.threshold, policy, member)
    paths: Any = rollout(step, starts, member.size, config.rollout_horizon, roll_key)
    return paths


# form=sac: rows of short rollouts into a buffer


def halting_step(
    config: Config, place: ModelEnv, threshold: Array, lowest: Array, actor: TanhGaussian, obs: Array, key: Array
) -> tuple[Array, Transitions]:
    """One step of rollouts: the policy's action, a random member's outcome; a halt is terminal and pays `lowest`."""
    k_action, k_member, k_noise = jax.random.split(key, 3)
    action = actor.unit_action(place.norm.encode(obs), k_action)
    prediction = place.predict(obs, action)
    member = random_member(k_member, jnp.arange(place.models.size), obs.shape[:1])
    then = place.draw(obs, action, prediction, member, target_noise(k_noise, obs))
    halted = disagreement(place.model_norm, prediction) > threshold
    reward = jnp.where(halted, lowest - config.halt_penalty / place.norm.reward_scale, then.reward)
    return then.next_obs, Transitions(obs, action, reward, then.next_obs, halted | then.terminal)


def begin_chunk(
    config: Config, setup: Setup, data: DeviceDataset, state: State
) -> tuple[State, None, dict[str, Array]]:
    """Between chunks, for SAC: rollouts of the present policy into the buffer. Natural steps have their own."""
    if isinstance(state, morel_npg.State):
        return state, None, {}
    key, roll_key = jax.random.split(state.key)
    lowest, actor = data.transitions.reward.min(), state.agent.params.actor
    step = partial(halting_step, config, setup.world, setup.arrays.threshold, lowest, actor)
    buffer, metrics = refresh(config, data, state.buffer, step, roll_key)
    return state._replace(buffer=buffer, key=key), None, metrics


# Both


def draw(config: Config, data: DeviceDataset, key: Array) -> Transitions:
    """Logged rows of one iteration: SAC's batch, or one for each path, which may start there."""
    members = min(config.elites, config.model.pool)
    return sample_transitions(data, key, config.batch if config.form == "sac" else members * config.paths)


def update(
    config: Config, setup: Setup, context: None, state: State, rows: Transitions, key: Array
) -> tuple[State, dict[str, Array]]:
    """One iteration: paths and a natural step, or SAC's step on a batch."""
    if not isinstance(state, morel_npg.State):
        return model_based.update(config, setup, context, state, rows, key)  # pyright: ignore[reportArgumentType]
    roll_key, order_key = jax.random.split(key)
    paths, alive = roll(config, setup, state.policy, rows.obs, roll_key)
    return morel_npg.improve(config, setup.norm, state, paths, alive, order_key)


def policies(state: State) -> dict[str, Any]:
    if isinstance(state, morel_npg.State):
        return {"policy": state.policy}
    return model_based.policies(state)
