"""Looks at PSPO from outside its update: what its models promise, whom its posterior trusts, what it doubts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.stats import spearmanr

from pspo.algorithms.pspo import Arrays, Config, Context, Parts, State, posterior, q_values
from pspo.data.batches import Log, sample_rows
from pspo.data.dataset import Dataset
from pspo.data.normalise import squash
from pspo.dynamics.ensemble import model_inputs
from pspo.dynamics.posterior import entropy
from pspo.dynamics.rollout import Chains, advance, draw_members

IMAGINED_EPISODES = (32, 512)  # at least and at most: as many as IMAGINED_STEPS allow
IMAGINED_STEPS = 32_000
LONGEST_EPISODE = 1000
DOUBTED_ROWS = 2000


class Steps(NamedTuple):
    """Imagined episodes, step by step; each (steps, episodes)."""

    obs: Array
    action: Array
    gained: Array  # normalised reward, zero after the end
    alive: Array


def imagined_steps(
    config: Config,
    parts: Parts,
    state: State,
    act: Callable[[Array, Array], Array],  # raw observations and a key -> unit actions
    starts: Array,
    horizon: int,
    key: Array,
) -> Steps:
    """Episodes from `starts` in the whole pool, its members drawn from the posterior."""
    context = whole_pool(parts)
    count = starts.shape[0]
    row = jnp.arange(count)

    def step(carry: tuple[Chains, Array], k: Array) -> tuple[tuple[Chains, Array], Steps]:
        chains, alive = carry
        k_weigh, k_member = jax.random.split(k)
        action = act(chains.obs, jax.random.fold_in(k, 2))  # 0 and 1 are what split gives
        weighed = posterior(config, parts, context, state, chains.obs, action, k_weigh)
        member = draw_members(chains, weighed, k_member, hold=config.redraw == "episode")
        gained = jnp.where(alive, weighed.reward[member, row], 0.0)
        after = advance(chains, weighed, member, chains.obs, horizon + 1)
        return (after, alive & ~weighed.done[0, member, row]), Steps(chains.obs, action, gained, alive)

    chains = Chains(starts, jnp.zeros(count, jnp.int32), jnp.zeros(count, jnp.int32))
    return jax.lax.scan(step, (chains, jnp.ones(count, bool)), jax.random.split(key, horizon))[1]


def imagined_return(config: Config, parts: Parts, state: State, starts: Array, horizon: int, key: Array) -> Array:
    """Mean undiscounted return, in the log's units, that the posterior's models promise the policy by its mode."""

    def act(obs: Array, _: Array) -> Array:
        return squash(state.learned.policy(parts.norm.encode(obs)).mode())

    steps = imagined_steps(config, parts, state, act, starts, horizon, key)
    return steps.gained.sum(0).mean() * parts.norm.reward_scale


def whole_pool(parts: Parts) -> Context:
    """The whole pool as the active set: a judgement should not hang on one draw."""
    return Context(parts.arrays.pool, jax.nn.log_softmax(parts.arrays.log_prior))


def make_imagined_return(config: Config, parts: Parts, dataset: Dataset) -> Callable[[State, Arrays], Array]:
    """Compiled once: the same first states and the same noise at every look, so that looks compare."""
    count, horizon = imagined_size(dataset)
    first = dataset.episode_starts[:: max(1, len(dataset.episode_starts) // count)][:count]
    starts = jnp.asarray(dataset.obs[first])

    @jax.jit
    def imagine(state: State, arrays: Arrays) -> Array:
        return imagined_return(config, parts._replace(arrays=arrays), state, starts, horizon, jax.random.PRNGKey(0))

    return imagine


def imagined_size(dataset: Dataset) -> tuple[int, int]:
    """Episodes and steps of one imagined return: long episodes are few, as each step costs a pass of the pool."""
    horizon = int(min(dataset.episode_lengths().max(), LONGEST_EPISODE))
    count = int(np.clip(IMAGINED_STEPS // horizon, *IMAGINED_EPISODES))
    return min(count, len(dataset.episode_starts)), horizon


class Doubt(NamedTuple):
    """Over logged states with the policy's actions: the paper's robustness figure, and the posterior's weights."""

    uncertainty: Array  # (n,): log of the models' disagreement about E[s'], as the posterior weighs them
    td_target: Array  # (n,): r + gamma E_{s'~T, a'~pi} Q(s', a')
    entropy: Array  # (n,): of the posterior over the whole pool, 1 is uniform
    member_weight: Array  # (pool,): mean posterior weight of each member


def doubt(config: Config, parts: Parts, state: State, log: Log, count: int, key: Array) -> Doubt:
    """Posterior over the whole pool at `count` states of the log."""
    k_rows, k_action, k_weigh, k_next = jax.random.split(key, 4)
    norm, pool = parts.norm, parts.arrays.pool
    context = whole_pool(parts)
    obs = sample_rows(log, k_rows, count).obs
    action = squash(state.learned.policy(norm.encode(obs)).sample(k_action, 1)[0])
    weighed = posterior(config, parts, context, state, obs, action, k_weigh)
    weight = jnp.exp(weighed.log_weight)

    next_features = norm.encode(weighed.next_obs)
    next_action = squash(state.learned.policy(next_features).sample(k_next, 1)[0])
    flat = next_features.reshape(-1, next_features.shape[-1]), next_action.reshape(-1, next_action.shape[-1])
    next_q = q_values(config, state.target_critic, *flat).reshape(weighed.done.shape)
    backup = weighed.reward + config.gamma * jnp.where(weighed.done, 0.0, next_q).mean(0)

    mean = pool.predict(model_inputs(norm, obs, action)).mean[..., :-1] / norm.obs_std
    centre = (weight[..., None] * mean).sum(0)
    variance = (weight[..., None] * jnp.square(mean - centre)).sum(0).mean(-1)
    return Doubt(
        uncertainty=0.5 * jnp.log(jnp.maximum(variance, 1e-20)),
        td_target=(weight * backup).sum(0),
        entropy=entropy(weighed.log_weight) / jnp.log(max(pool.size, 2)),
        member_weight=weight.mean(1),
    )


def diagnose(config: Config, parts: Parts, log: Log, state: State) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Arrays for the report's figures, and the numbers among them that belong into the result."""

    @partial(jax.jit, static_argnames="count")
    def look(arrays: Arrays, log: Log, state: State, count: int) -> Doubt:
        return doubt(config, parts._replace(arrays=arrays), state, log, count, jax.random.PRNGKey(1))

    found = jax.device_get(look(parts.arrays, log, state, count=DOUBTED_ROWS))
    correlation = float(spearmanr(found.uncertainty, found.td_target)[0])  # pyright: ignore[reportArgumentType]
    return dict(found._asdict()), {"uncertainty_td_spearman": correlation}
