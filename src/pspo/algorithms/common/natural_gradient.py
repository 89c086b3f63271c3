"""The natural policy gradient as functions (Kakade 2001; Rajeswaran et al. 2017, "Towards Generalization and
Simplicity in Continuous Control").

Paths are arrays (time, paths), all of one length; `alive` marks the steps that happened. After a terminal a path is
no longer alive, and what its arrays hold there is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.sparse.linalg import cg

from pspo.algorithms.common.losses import bellman_target

P = TypeVar("P")

CG_TOLERANCE = 1e-5  # of the residual, relative: float32 has little more
SMALLEST_SLOPE = 1e-20  # keeps a step of length zero where the gradient is zero


def discounted_sums(x: Array, alive: Array, discount: float) -> Array:
    """y_t = x_t + discount y_{t+1} along a path, zero after its end; of rewards, the discounted returns."""

    def back(after: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        x, alive = now
        total = jnp.where(alive, x + discount * after, 0.0)
        return total, total

    return jax.lax.scan(back, jnp.zeros_like(x[0]), (x, alive), reverse=True)[1]


def advantages(
    *, reward: Array, value: Array, next_value: Array, terminal: Array, alive: Array, gamma: float, trace: float
) -> Array:
    """GAE(gamma, lambda) (Schulman et al. 2016, Eq. 16): sums of the errors r + gamma V(s') - V(s), by gamma lambda.

    Nothing follows a terminal; a truncated path still has the value of the state that it reached.
    """
    error = bellman_target(reward, terminal, next_value, gamma) - value
    return discounted_sums(error, alive, gamma * trace)


def whitened(x: Array, alive: Array) -> Array:
    """Mean zero and standard deviation one over the steps that happened, zero elsewhere."""
    count = alive.sum()
    centred = jnp.where(alive, x - jnp.where(alive, x, 0.0).sum() / count, 0.0)
    return centred / (jnp.sqrt(jnp.square(centred).sum() / count) + 1e-6)


def fisher_product(policy: P, features: Array, weight: Array, damping: float) -> Callable[[P], P]:
    """v -> (F + damping I) v for a Gaussian policy, states (batch, features) weighted by `weight`, which sums to one.

    F = E[J' diag(1/sigma^2) J + 2 K' K], with J and K the derivatives of mean and log standard deviation. The matrix
    itself, parameters by parameters, is never formed.
    """

    def moments(policy: Any) -> tuple[Array, Array]:
        mean, log_std = policy.moments(features)
        return mean, jnp.broadcast_to(log_std, mean.shape)

    (_, log_std), push = jax.linearize(moments, policy)
    pull = jax.linear_transpose(push, policy)
    share = weight[:, None]

    def product(v: P) -> P:
        mean_moves, log_std_moves = push(v)
        (moved,) = pull((share * jnp.exp(-2.0 * log_std) * mean_moves, 2.0 * share * log_std_moves))
        return jax.tree.map(lambda f, x: f + damping * x, moved, v)

    return product


def conjugate_gradient(product: Callable[[P], P], right: P, iterations: int) -> P:
    """x with A x = right, for a symmetric positive A given by its products."""
    return cg(product, right, tol=CG_TOLERANCE, maxiter=iterations)[0]


def natural_step(policy: P, gradient: P, direction: P, size: float) -> P:
    """theta + sqrt(size / |g x|) x with x = F^-1 g: a step whose KL divergence is size / 2, to second order."""
    slope = sum(jnp.vdot(g, x) for g, x in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True))
    length = jnp.sqrt(size / (jnp.abs(slope) + SMALLEST_SLOPE))
    return jax.tree.map(lambda theta, x: theta + length * x, policy, direction)


def gaussian_kl(mean: Array, log_std: Array, new_mean: Array, new_log_std: Array) -> Array:
    """(batch,): KL divergence from a diagonal Gaussian to a new one, KL(old || new)."""
    ratio = jnp.exp(2.0 * (log_std - new_log_std))
    moved = jnp.square((new_mean - mean) * jnp.exp(-new_log_std))
    return (new_log_std - log_std + 0.5 * (ratio + moved - 1.0)).sum(-1)
