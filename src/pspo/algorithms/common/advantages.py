"""Advantages of the dataset's own actions, and the weights by which a reference policy prefers the better ones.

    A(s_t, a_t) = sum_k (gamma lambda)^k delta_{t+k},   delta = r + gamma V(s') - V(s)

is the generalised advantage estimate (Schulman et al. 2016) of the behaviour; V is regressed on its discounted returns.
Weights exp(A / temperature) are those of advantage-weighted regression (Peng et al. 2019): one step of policy
improvement within the dataset, which needs no models.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from pspo.algorithms.common.model_free import descend
from pspo.data.batches import returns_known
from pspo.data.dataset import Dataset, discounted_sums
from pspo.data.normalise import Normaliser
from pspo.nets.mlp import MLP, mlp

LAMBDA = 0.9
NOISE = 1e-3  # in standard deviations of returns: advantages that vary less are the error of the value network
MAX_WEIGHT = 20.0  # before weights are divided by their mean: no transition counts for hundreds
STEPS, BATCH, WIDTH, LEARNING_RATE = 4000, 512, 128, 1e-3
ROWS = 100_000  # of one call of the value network: bounds the memory


def advantage_weights(dataset: Dataset, norm: Normaliser, gamma: float, temperature: float, seed: int) -> np.ndarray:
    """(n,) float32 with mean 1; `temperature` is in standard deviations of the advantage."""
    advantage = advantages(dataset, norm, gamma, fit_value(dataset, norm, gamma, seed))
    std = advantage.std()
    if std < NOISE:
        return np.ones(dataset.size, np.float32)
    weight = np.exp(np.minimum(advantage / (temperature * std), np.log(MAX_WEIGHT)))
    return (weight / weight.mean()).astype(np.float32)


def advantages(dataset: Dataset, norm: Normaliser, gamma: float, value: MLP) -> np.ndarray:
    """(n,) float64, in the unit of `norm`; a time-out keeps the value of its next state, a terminal has none."""
    now, after = _values(value, norm, dataset.obs), _values(value, norm, dataset.next_obs)
    delta = dataset.reward / norm.reward_scale + gamma * np.where(dataset.terminal, 0.0, after) - now
    return discounted_sums(delta, dataset.episode_end, gamma * LAMBDA)


def fit_value(dataset: Dataset, norm: Normaliser, gamma: float, seed: int) -> MLP:
    """The value of the behaviour: least squares on the returns that no time-out cuts off (on all, if it cuts all)."""
    known = returns_known(dataset, gamma)
    index = np.flatnonzero(known) if known.any() else np.arange(dataset.size)
    to_go = jnp.asarray((dataset.returns_to_go(gamma)[index] / norm.reward_scale).astype(np.float32))
    init_key, key = jax.random.split(jax.random.PRNGKey(seed))
    value = mlp(init_key, [norm.features, WIDTH, WIDTH, 1], layer_norm=True)
    return _train(value, norm, jnp.asarray(dataset.obs[index]), to_go, key)


def _train(value: MLP, norm: Normaliser, obs: Array, to_go: Array, key: Array) -> MLP:
    adam = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, STEPS))

    @jax.jit
    def run(value: MLP, obs: Array, to_go: Array, key: Array) -> MLP:
        def step(carry: tuple[MLP, Any], k: Array) -> tuple[tuple[MLP, Any], None]:
            value, opt = carry
            pick = jax.random.randint(k, (BATCH,), 0, obs.shape[0])
            loss = lambda v: jnp.square(v(norm.encode(obs[pick]))[..., 0] - to_go[pick]).mean()  # noqa: E731
            return descend(adam, jax.grad(loss)(value), opt, value), None

        start = value, adam.init(value)  # pyright: ignore[reportArgumentType]
        return jax.lax.scan(step, start, jax.random.split(key, STEPS))[0][0]

    return run(value, obs, to_go, key)


def _values(value: MLP, norm: Normaliser, obs: np.ndarray) -> np.ndarray:
    call = jax.jit(lambda part: value(norm.encode(part))[..., 0])
    parts = [np.asarray(call(jnp.asarray(obs[first : first + ROWS]))) for first in range(0, len(obs), ROWS)]
    return np.concatenate(parts).astype(np.float64)
