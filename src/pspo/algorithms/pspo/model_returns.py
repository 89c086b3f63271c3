"""PSPO, step 3 with `value_rollouts`: lambda-returns of the deployed policy in the models, for the value network.

Eq. (8) (opt:eq2 in the paper's source) backs values up by one step, which passes an error of the critics on almost
whole: one of 0.01 per step, as the minimum of several critics makes, grows to 0.01 / (1 - gamma), which is 2 at gamma
0.995. A return over many steps passes it on once. The value network learns both: returns where the policy goes, and
soft values of Eq. (8) where it does not, at states of the dataset and after other actions. Rollouts act by the mode, as
the policy does when it is deployed, in models drawn from the posterior (Eqs. (1) and (2)).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from pspo.algorithms.pspo.config import Config
from pspo.algorithms.pspo.rollout import active_posterior, draw_members, follow
from pspo.algorithms.pspo.state import Context, ModelReturns, Setup, State
from pspo.dynamics.persistent_rollouts import PersistentRollouts
from pspo.nets.policies import kl_bound

LAMBDA = 0.99  # half of a return is settled within 70 steps: errors of the value network hardly build up
KL_LIMIT_POWER = 6.0  # 11 % less disagreement doubles the limit


class Steps(NamedTuple):
    """Rollouts step by step, (steps, rollouts) each; alive: not yet ended before this step."""

    obs: Array
    alive: Array
    reward: Array  # less the cost of leaving mu
    backup: Array
    done: Array
    disagreement: Array  # of the models


def roll_out_by_mode(
    config: Config, setup: Setup, *, context: Context, state: State, policy: Any, starts: Array, key: Array
) -> tuple[Steps, Array]:
    """Rollouts of `rollout_horizon` steps from `starts`, and the states that they reach."""
    count = starts.shape[0]
    which = jnp.arange(count)
    mu: Any = setup.arrays.reference

    def step(carry: tuple[PersistentRollouts, Array], k: Array) -> tuple[tuple[PersistentRollouts, Array], Steps]:
        rollouts, alive = carry
        k_backup, k_member = jax.random.split(k)
        features = setup.norm.encode(rollouts.obs)
        action = policy.unit_action(features)
        cost = config.alpha * kl_bound(policy(features), mu(features)) if config.reference_term else jnp.zeros(count)
        backup = active_posterior(
            config, setup, context=context, state=state, obs=rollouts.obs, action=action, key=k_backup
        )
        member = draw_members(rollouts, backup, k_member, hold=config.redraw == "episode")
        done = backup.done[0, member, which]
        after = follow(rollouts, backup, member, rollouts.obs, config.rollout_horizon + 1)
        # The backup of the draw that is followed: the mean over draws would charge only a part of an end that it met.
        reward = backup.reward[member, which] - cost
        one_step = reward + config.gamma * backup.next_value[0, member, which]
        one_step = jnp.clip(one_step, setup.limits.backup_low, setup.limits.backup_high)
        return (after, alive & ~done), Steps(rollouts.obs, alive, reward, one_step, done, backup.disagreement)

    rollouts = PersistentRollouts(starts, jnp.zeros(count, jnp.int32), jnp.zeros(count, jnp.int32))
    keys = jax.random.split(key, config.rollout_horizon)
    (last, _), steps = jax.lax.scan(step, (rollouts, jnp.ones(count, bool)), keys)
    return steps, last.obs


def model_returns(
    config: Config, setup: Setup, context: Context, *, state: State, starts: Array, key: Array
) -> tuple[ModelReturns, Array]:
    """The lambda-return of each state of rollouts from `starts`, and the disagreement of the models along them."""
    policy = state.params.policy
    steps, last = roll_out_by_mode(config, setup, context=context, state=state, policy=policy, starts=starts, key=key)
    end = state.params.value(setup.norm.encode(last))[..., 0]
    returns = lambda_returns(steps.reward, steps.backup, steps.done, end, config.gamma)
    returns = jnp.clip(returns, setup.limits.backup_low, setup.limits.backup_high)
    alive = jnp.cumsum(steps.alive.reshape(-1))
    return ModelReturns(steps.obs.reshape(-1, starts.shape[-1]), returns.reshape(-1), alive), path_disagreement(steps)


def path_disagreement(steps: Steps) -> Array:
    """Mean over the states before the end of each rollout."""
    return (steps.disagreement * steps.alive).sum() / steps.alive.sum()


def supported_kl_limit(config: Config, own: Array, reference: Array) -> Array:
    """`kl_limit`, and up to `kl_limit_rise` times as much where the models disagree less along the policy's own
    rollouts than along those of mu: the policy has gone to states that they know better."""
    return config.kl_limit * jnp.clip((reference / own) ** KL_LIMIT_POWER, 1.0, config.kl_limit_rise)


def lambda_returns(reward: Array, backup: Array, done: Array, end: Array, gamma: float) -> Array:
    """(steps, rollouts) of each: G_t = (1 - lambda) backup_t + lambda (reward_t + gamma G_{t+1}); the backup at an end.

    `end` is the value where the rollouts stop.
    """

    def one_step_earlier(ahead: Array, now: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        reward, backup, done = now
        returns = jnp.where(done, backup, (1.0 - LAMBDA) * backup + LAMBDA * (reward + gamma * ahead))
        return returns, returns

    return jax.lax.scan(one_step_earlier, end, (reward, backup, done), reverse=True)[1]
