"""PSPO, step 2: synthetic transitions from rollouts in models drawn from the posterior.

The model is drawn at every step, Eq. (1) (pre:eq4 in the paper's source), or once per episode, Eq. (2) (pre:eq5).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from pspo.algorithms.pspo.config import Config
from pspo.algorithms.pspo.evaluation import q_values
from pspo.algorithms.pspo.posterior import PosteriorBackup, posterior_backup
from pspo.algorithms.pspo.state import Context, Setup, State
from pspo.dynamics.persistent_rollouts import PersistentRollouts, advance, antithetic_noise

# The policy may leave mu's states quickly, and the critic must keep learning about them.
REFERENCE_ROLLOUTS = 0.2  # fraction of rollout actions taken from mu


class Synthetic(NamedTuple):
    """The synthetic states and actions of one iteration with their backups, and where rollouts are after it."""

    obs: Array
    action: Array
    backup: PosteriorBackup
    rollouts: PersistentRollouts
    visited: Array


class RolloutKeys(NamedTuple):
    action: Array
    backup: Array
    member: Array
    visited: Array  # split further where synthetic states are past ones


def active_posterior(
    config: Config, setup: Setup, *, context: Context, state: State, obs: Array, action: Array, key: Array
) -> PosteriorBackup:
    """Backups of the active models at (s, a), weighted by Eq. (4) with beta in the configured unit of F."""
    unit = state.f_scale if config.f_unit == "std" else 1.0
    beta = 0.0 if config.posterior == "uniform" else config.beta
    return posterior_backup(
        context.models,
        log_prior=context.log_prior,
        norm=setup.norm,
        terminated=setup.arrays.terminated,
        range=setup.range,
        value=lambda features: state.params.value(features)[..., 0],
        q=q_values(config, state.target_critic, setup.norm.encode(obs), action),
        obs=obs,
        action=action,
        noise=model_noise(config, obs, key),
        gamma=config.gamma,
        beta=beta / unit,
        limits=setup.limits,
    )


def model_noise(config: Config, obs: Array, key: Array) -> Array:
    """(draws, 1, *obs.shape), the same for all models; means need no second draw."""
    if config.model_noise == 0.0:
        return jnp.zeros((1, 1, *obs.shape))
    return config.model_noise * antithetic_noise(key, config.next_pairs, obs)


def rollout_action(config: Config, setup: Setup, state: State, obs: Array, key: Array) -> Array:
    """Unit actions of rollouts: the policy's, a fraction of them its modes, and a fraction mu's."""
    k_policy, k_mu, k_which = jax.random.split(key, 3)
    features = setup.norm.encode(obs)
    own = state.params.policy.unit_action(features, k_policy)
    if config.mode_rollouts:
        by_mode = jax.random.bernoulli(jax.random.fold_in(key, 3), config.mode_rollouts, (own.shape[0], 1))
        own = jnp.where(by_mode, state.params.policy.unit_action(features), own)
    reference = setup.arrays.reference.unit_action(features, k_mu)
    take_mu = jax.random.bernoulli(k_which, REFERENCE_ROLLOUTS, (own.shape[0], 1))
    return jnp.where(take_mu, reference, own)


def draw_members(rollouts: PersistentRollouts, backup: PosteriorBackup, key: Array, hold: bool) -> Array:
    """A model per rollout from the posterior: at every step (Eq. 1), or held for the episode (Eq. 2)."""
    drawn = jax.random.categorical(key, backup.log_weight, axis=0)
    return jnp.where(rollouts.age == 0, drawn, rollouts.member) if hold else drawn


def follow(
    rollouts: PersistentRollouts, backup: PosteriorBackup, member: Array, restart: Array, horizon: int
) -> PersistentRollouts:
    """Every rollout one step further in its own member."""
    which = jnp.arange(member.shape[0])
    next_obs, ended = backup.next_obs[0, member, which], backup.done[0, member, which]
    return advance(rollouts, next_obs, ended, member, restart, horizon)


def visit(state: State, key: Array) -> tuple[Array, Array]:
    """The visited states with those of this iteration, and a batch of them; entries not yet written are never drawn."""
    count, capacity = state.rollouts.obs.shape[0], state.visited.shape[0]
    visited = jax.lax.dynamic_update_slice(state.visited, state.rollouts.obs, (state.step * count % capacity, 0))
    written = jnp.minimum((state.step + 1) * count, capacity)
    return visited, visited[jax.random.randint(key, (count,), 0, written)]


def roll_out(
    config: Config, setup: Setup, context: Context, state: State, restart: Array, keys: RolloutKeys
) -> Synthetic:
    """Synthetic states are those of `value_rollouts`; without them all rollouts go one step ahead, and synthetic states
    are where they were, or any of their past states (`visited`)."""
    if context.returns is not None:
        k_draw, k_action, k_backup = jax.random.split(keys.visited, 3)
        obs = context.returns.obs[context.returns.draw(k_draw, config.synthetic_batch)]
        action = rollout_action(config, setup, state, obs, k_action)
        backup = active_posterior(config, setup, context=context, state=state, obs=obs, action=action, key=k_backup)
        return Synthetic(obs, action, backup, state.rollouts, state.visited)
    visited, obs = state.visited, state.rollouts.obs
    action = rollout_action(config, setup, state, obs, keys.action)
    backup = active_posterior(config, setup, context=context, state=state, obs=obs, action=action, key=keys.backup)
    member = draw_members(state.rollouts, backup, keys.member, hold=config.redraw == "episode")
    rollouts = follow(state.rollouts, backup, member, restart, config.rollout_horizon)
    if config.visited:
        # Present states alone are few and correlated: steps of a few long rollouts. Past states are many.
        k_visit, k_action, k_backup = jax.random.split(keys.visited, 3)
        visited, obs = visit(state, k_visit)
        action = rollout_action(config, setup, state, obs, k_action)
        backup = active_posterior(config, setup, context=context, state=state, obs=obs, action=action, key=k_backup)
    return Synthetic(obs, action, backup, rollouts, visited)
