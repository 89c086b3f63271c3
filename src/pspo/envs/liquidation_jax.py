"""The liquidation task in JAX: the same steps as the gymnasium environment, for many episodes in parallel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.envs import liquidation_optimum
from pspo.envs.liquidation_rules import (
    HORIZON,
    INVENTORY,
    MEAN_PRICE,
    MIN_INVENTORY,
    PRICE_HIGH,
    PRICE_LOW,
    PRICE_SD,
    REVERSION,
    SALE_PROBABILITY,
    START_PRICE,
    START_PRICE_SD,
)
from pspo.envs.task import Simulation, require_episodes

# Episodes per batch: enough to keep the cores busy, few enough for a wide policy network to fit in memory.
_BATCH = 25_000


def reset(key: Array, n: int) -> Array:
    """First states of `n` episodes, shape (n, 3)."""
    price = START_PRICE + START_PRICE_SD * jax.random.normal(key, (n,), jnp.float32)
    price = jnp.clip(price, PRICE_LOW, PRICE_HIGH)
    return jnp.stack([jnp.zeros_like(price), jnp.full_like(price, INVENTORY), price], axis=-1)


def step(obs: Array, action: Array, noise: Array) -> tuple[Array, Array, Array]:
    """Next states, rewards and ends for states (..., 3), actions (..., 1) and standard normal noise (...)."""
    t, inventory, price = obs[..., 0], obs[..., 1], obs[..., 2]
    kept = _kept(obs, action)
    next_price = jnp.clip(price + REVERSION * (MEAN_PRICE - price) + PRICE_SD * noise, PRICE_LOW, PRICE_HIGH)
    next_obs = jnp.stack([t + 1, kept, next_price], axis=-1)
    return next_obs, (inventory - kept) * price, terminated(obs, action, next_obs)


def terminated(obs: Array, action: Array, next_obs: Array) -> Array:
    """Whether the episode ends in `next_obs`; time is rounded, so that a model's prediction can be used."""
    del obs, action  # only the next state matters here; other tasks may need all three
    return (jnp.round(next_obs[..., 0]) >= HORIZON) | (next_obs[..., 1] < MIN_INVENTORY)


def behaviour(obs: Array, key: Array) -> Array:
    """The behaviour policy of the dataset, for `simulate(..., stochastic=True)`."""
    choice, amount = jax.random.split(key)
    sells = jax.random.uniform(choice, obs.shape[:-1]) < SALE_PROBABILITY
    fraction = 1 - jax.random.uniform(amount, obs.shape[:-1])
    return jnp.where(sells, fraction, fraction - 1)[..., None]


def optimal(obs: Array) -> Array:
    """The optimal policy: sell everything once the price beats the value of waiting."""
    sell = obs[..., 2] >= _continuation(obs)
    return jnp.where(sell, liquidation_optimum.SELL, liquidation_optimum.HOLD)[..., None]


def step_regret(obs: Array, action: Array) -> Array:
    """V*(s) - Q*(s, a), written without the subtraction of two large numbers.

    A unit sold too early loses c - p and a unit kept too long loses p - c; a remainder below the minimum is lost
    altogether.
    """
    price, continuation = obs[..., 2], _continuation(obs)
    kept = _kept(obs, action)
    keeping_loses = jnp.where(
        kept < MIN_INVENTORY, jnp.maximum(price, continuation), jnp.maximum(price - continuation, 0)
    )
    return (obs[..., 1] - kept) * jnp.maximum(continuation - price, 0) + kept * keeping_loses


def simulate(
    act: Callable[..., Array], key: Array, episodes: int, *, stochastic: bool = False, trajectory: bool = False
) -> Simulation:
    """Play whole episodes with `act`, a pure function from states (n, 3) to actions (n, 1).

    With `stochastic`, it is called as act(obs, key). Price paths depend on `key` and `episodes` only, so two
    policies under the same key see the same prices. A policy given as an Equinox module or `jax.tree_util.Partial`
    is compiled once for all its parameter values; a new closure is compiled again.

    The mean of `regret` estimates the optimum minus the policy's mean return (performance-difference lemma), with
    far less noise than the mean of `returns`.
    """
    require_episodes(episodes)
    # Equal batches, the surplus dropped at the end: one shape, one compilation.
    batches = -(-int(episodes) // _BATCH)
    size = -(-int(episodes) // batches)
    parts = [
        jax.device_get(_simulate_batch(act, jax.random.fold_in(key, index), size, stochastic, trajectory))
        for index in range(batches)
    ]
    returns, regret, lengths, paths = zip(*parts, strict=True)
    return Simulation(
        # Double precision, so that means over many episodes lose nothing.
        returns=np.concatenate(returns)[:episodes].astype(float),
        regret=np.concatenate(regret)[:episodes].astype(float),
        lengths=np.concatenate(lengths)[:episodes],
        trajectory=np.concatenate(paths)[:episodes] if trajectory else None,
    )


@eqx.filter_jit
def _simulate_batch(
    act: Callable[..., Array], key: Array, size: int, stochastic: bool, trajectory: bool
) -> tuple[Array, Array, Array, Array | None]:
    start_key, noise_key, act_key = jax.random.split(key, 3)

    def advance(carry: tuple[Array, Array], inputs: tuple[Array, Array]) -> tuple[Any, Any]:
        obs, alive = carry
        noise, step_key = inputs
        action = act(obs, step_key) if stochastic else act(obs)
        next_obs, reward, terminal = step(obs, action, noise)
        gained = jnp.where(alive, reward, 0)
        lost = jnp.where(alive, step_regret(obs, action), 0)
        row = jnp.where(alive[:, None], jnp.concatenate([obs, action], axis=-1), jnp.nan) if trajectory else None
        return (next_obs, alive & ~terminal), (gained, lost, alive, row)

    start = (reset(start_key, size), jnp.ones(size, bool))
    noise = jax.random.normal(noise_key, (HORIZON, size), jnp.float32)
    _, (gained, lost, alive, rows) = jax.lax.scan(advance, start, (noise, jax.random.split(act_key, HORIZON)))
    path = None if rows is None else jnp.swapaxes(rows, 0, 1)
    return gained.sum(axis=0), lost.sum(axis=0), alive.sum(axis=0), path


def _kept(obs: Array, action: Array) -> Array:
    return obs[..., 1] * (1 - jnp.clip(action[..., 0], 0, 1))


def _continuation(obs: Array) -> Array:
    """c_t(p) from the exact tables, linear between grid prices."""
    table = jnp.asarray(_continuation_table())
    last = table.shape[1] - 1
    t = jnp.clip(jnp.round(obs[..., 0]).astype(int), 0, HORIZON)
    position = jnp.clip((obs[..., 2] - PRICE_LOW) / (PRICE_HIGH - PRICE_LOW) * last, 0, last)
    left = jnp.minimum(position.astype(int), last - 1)
    return table[t, left] + (position - left) * (table[t, left + 1] - table[t, left])


@cache
def _continuation_table() -> np.ndarray:
    return liquidation_optimum.solve().continuation.astype(np.float32)
