"""Which of several possible next states a rollout continues from: chosen by the rank of their values, lowest first.

`model_env.random_member` chooses without regard to the value.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import ndtr, ndtri


def cvar_weights(count: int, alpha: float) -> np.ndarray:
    """(count,): probability by rank under CVaR at level alpha: uniform on the ceil(alpha count) lowest."""
    kept = max(1, math.ceil(alpha * count - 1e-9))  # tolerate rounding just above a whole number
    return np.where(np.arange(count) < kept, 1.0 / kept, 0.0)


def wang_weights(count: int, eta: float) -> np.ndarray:
    """(count,): probability by rank under Wang's measure, the steps of Phi(Phi^-1(i / n) + eta); 0 is the mean."""
    return np.diff(ndtr(ndtri(np.arange(count + 1) / count) + eta))


def choose_by_rank(key: Array, value: Array, weights: np.ndarray) -> Array:
    """(batch,): one candidate of each column of values (candidates, batch), drawn by the probability of its rank."""
    rank = jax.random.choice(key, value.shape[0], value.shape[1:], p=jnp.asarray(weights, jnp.float32))
    return jnp.take_along_axis(jnp.argsort(value, axis=0), rank[None], axis=0)[0]


def kth_lowest(value: Array, k: int) -> tuple[Array, Array]:
    """For each column of values (candidates, batch): index and value of the k-th lowest, counting duplicates (PMDB)."""
    index = jnp.argsort(value, axis=0)[k - 1]
    return index, jnp.take_along_axis(value, index[None], axis=0)[0]
