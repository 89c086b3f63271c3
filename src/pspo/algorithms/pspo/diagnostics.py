"""PSPO from outside its update: model-estimated returns, the posterior's weights, uncertainty along the dataset."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.stats import spearmanr

from pspo.algorithms.pspo.algorithm import LOG_LAMBDA_RANGE
from pspo.algorithms.pspo.config import Config
from pspo.algorithms.pspo.evaluation import q_values
from pspo.algorithms.pspo.posterior import entropy
from pspo.algorithms.pspo.rollout import active_posterior, draw_members, follow
from pspo.algorithms.pspo.state import Arrays, Context, Setup, State
from pspo.data.batches import DeviceDataset, sample_transitions
from pspo.data.dataset import Dataset
from pspo.dynamics.ensemble import model_inputs
from pspo.dynamics.persistent_rollouts import PersistentRollouts

METRIC_BOUNDS = {"lambda": (math.exp(LOG_LAMBDA_RANGE[0]), math.exp(LOG_LAMBDA_RANGE[1]))}
MODEL_EPISODES = (32, 512)  # at least and at most: as many as MODEL_STEPS allow
MODEL_STEPS = 32_000
LONGEST_EPISODE = 1000
UNCERTAINTY_STATES = 2000


class ModelSteps(NamedTuple):
    """Episodes in the models, step by step; each (steps, episodes)."""

    obs: Array
    action: Array
    reward: Array  # normalised, zero after the end
    alive: Array


def model_episodes(
    config: Config,
    setup: Setup,
    *,
    state: State,
    act: Callable[[Array, Array], Array],  # raw observations and a key -> unit actions
    starts: Array,
    horizon: int,
    key: Array,
) -> ModelSteps:
    """Episodes from `starts` in the whole pool, its members drawn from the posterior."""
    context = whole_pool(setup)
    count = starts.shape[0]
    which = jnp.arange(count)

    def step(carry: tuple[PersistentRollouts, Array], k: Array) -> tuple[tuple[PersistentRollouts, Array], ModelSteps]:
        rollouts, alive = carry
        k_backup, k_member = jax.random.split(k)
        action = act(rollouts.obs, jax.random.fold_in(k, 2))  # 0 and 1 are what split gives
        backup = active_posterior(
            config, setup, context=context, state=state, obs=rollouts.obs, action=action, key=k_backup
        )
        member = draw_members(rollouts, backup, k_member, hold=config.redraw == "episode")
        reward = jnp.where(alive, backup.reward[member, which], 0.0)
        after = follow(rollouts, backup, member, rollouts.obs, horizon + 1)
        return (after, alive & ~backup.done[0, member, which]), ModelSteps(rollouts.obs, action, reward, alive)

    rollouts = PersistentRollouts(starts, jnp.zeros(count, jnp.int32), jnp.zeros(count, jnp.int32))
    return jax.lax.scan(step, (rollouts, jnp.ones(count, bool)), jax.random.split(key, horizon))[1]


def model_return(config: Config, setup: Setup, state: State, starts: Array, horizon: int, key: Array) -> Array:
    """Model-estimated return: mean undiscounted return of the policy by its mode, in the dataset's units."""

    def act(obs: Array, _: Array) -> Array:
        return state.params.policy.unit_action(setup.norm.encode(obs))

    steps = model_episodes(config, setup, state=state, act=act, starts=starts, horizon=horizon, key=key)
    return steps.reward.sum(0).mean() * setup.norm.reward_scale


def whole_pool(setup: Setup) -> Context:
    """The whole pool as the active set: an estimate should not depend on one draw."""
    return Context(setup.arrays.pool, jax.nn.log_softmax(setup.arrays.log_prior))


def make_model_return(config: Config, setup: Setup, dataset: Dataset) -> Callable[[State, Arrays], Array]:
    """Compiled once: the same first states and the same noise at every evaluation, so that they compare."""
    count, horizon = model_episode_size(dataset)
    first = dataset.episode_starts[:: max(1, len(dataset.episode_starts) // count)][:count]
    starts = jnp.asarray(dataset.obs[first])

    @jax.jit
    def estimate(state: State, arrays: Arrays) -> Array:
        return model_return(config, setup._replace(arrays=arrays), state, starts, horizon, jax.random.PRNGKey(0))

    return estimate


def model_episode_size(dataset: Dataset) -> tuple[int, int]:
    """Episodes and steps of one estimate: long episodes are few, as each step costs a pass of the pool."""
    horizon = int(min(dataset.logged_rewards()[1].max(), LONGEST_EPISODE))
    count = int(np.clip(MODEL_STEPS // horizon, *MODEL_EPISODES))
    return min(count, len(dataset.episode_starts)), horizon


class Uncertainty(NamedTuple):
    """At dataset states with the policy's actions: the paper's robustness figure, and the posterior's weights."""

    uncertainty: Array  # (n,): log of the models' disagreement about E[s'], weighted by the posterior
    td_target: Array  # (n,): r + gamma E_{s'~T, a'~pi} Q(s', a')
    entropy: Array  # (n,): of the posterior over the whole pool, 1 is uniform
    member_weight: Array  # (pool,): mean posterior weight of each member


def uncertainty(config: Config, setup: Setup, state: State, data: DeviceDataset, count: int, key: Array) -> Uncertainty:
    """Posterior over the whole pool at `count` states of the dataset."""
    k_states, k_action, k_backup, k_next = jax.random.split(key, 4)
    norm, pool = setup.norm, setup.arrays.pool
    obs = sample_transitions(data, k_states, count).obs
    action = state.params.policy.unit_action(norm.encode(obs), k_action)
    posterior = active_posterior(
        config, setup, context=whole_pool(setup), state=state, obs=obs, action=action, key=k_backup
    )
    weight = jnp.exp(posterior.log_weight)

    next_features = norm.encode(posterior.next_obs)
    next_action = state.params.policy.unit_action(next_features, k_next)
    flat = next_features.reshape(-1, next_features.shape[-1]), next_action.reshape(-1, next_action.shape[-1])
    next_q = q_values(config, state.target_critic, *flat).reshape(posterior.done.shape)
    backup = posterior.reward + config.gamma * jnp.where(posterior.done, 0.0, next_q).mean(0)

    mean = pool.predict(model_inputs(norm, obs, action)).mean[..., :-1] / norm.obs_std
    middle = (weight[..., None] * mean).sum(0)
    variance = (weight[..., None] * jnp.square(mean - middle)).sum(0).mean(-1)
    return Uncertainty(
        uncertainty=0.5 * jnp.log(jnp.maximum(variance, 1e-20)),
        td_target=(weight * backup).sum(0),
        entropy=entropy(posterior.log_weight) / jnp.log(max(pool.size, 2)),
        member_weight=weight.mean(1),
    )


def diagnose(
    config: Config, setup: Setup, data: DeviceDataset, state: State
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Arrays for the report's figures, and numbers for the result."""

    @partial(jax.jit, static_argnames="count")
    def compute(arrays: Arrays, data: DeviceDataset, state: State, count: int) -> Uncertainty:
        return uncertainty(config, setup._replace(arrays=arrays), state, data, count, jax.random.PRNGKey(1))

    arrays = jax.device_get(compute(setup.arrays, data, state, count=UNCERTAINTY_STATES))
    correlation = float(spearmanr(arrays.uncertainty, arrays.td_target)[0])  # pyright: ignore[reportArgumentType]
    return dict(arrays._asdict()), {"uncertainty_td_spearman": correlation}
