"""Which of several possible successors a rollout goes on with: by the rank of its value, the lowest first.

A random elite's, whatever its value, is `imagination.random_member`.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import ndtr, ndtri


def cvar_weights(count: int, alpha: float) -> np.ndarray:
    """(count,): odds by rank under CVaR at level alpha: even among the ceil(alpha count) lowest; 1 is the mean."""
    kept = max(1, math.ceil(alpha * count - 1e-9))  # a product just above a whole number is that number
    return np.where(np.arange(count) < kept, 1.0 / kept, 0.0)


def wang_weights(count: int, eta: float) -> np.ndarray:
    """(count,): odds by rank under Wang's measure, Phi(Phi^-1(i / n) + eta) cut into its steps; 0 is the mean."""
    return np.diff(ndtr(ndtri(np.arange(count + 1) / count) + eta))


def choose_by_rank(key: Array, value: Array, weights: np.ndarray) -> Array:
    """(batch,): one candidate of each column of values (candidates, batch), drawn by the odds of its rank."""
    rank = jax.random.choice(key, value.shape[0], value.shape[1:], p=jnp.asarray(weights, jnp.float32))
    return jnp.take_along_axis(jnp.argsort(value, axis=0), rank[None], axis=0)[0]


def kth_lowest(value: Array, k: int) -> tuple[Array, Array]:
    """For each column of values (candidates, batch): which is the k-th lowest, copies counted, and its value (PMDB)."""
    place = jnp.argsort(value, axis=0)[k - 1]
    return place, jnp.take_along_axis(value, place[None], axis=0)[0]
