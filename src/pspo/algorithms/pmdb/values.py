"""PMDB's estimates from actions sampled at a state: temperature, soft value, weights of the improved policy.

Actions are kept as they are before the tanh. Ratios of densities are the same there as after it, and no
saturated tanh has to be inverted.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from pspo.nets.policies import LOG_SQRT_2PI


class ActionGaussian(NamedTuple):
    """A batch of Gaussians, (..., action_dim) each."""

    mean: Array
    log_std: Array

    def at(self, noise: Array) -> Array:
        """Samples from standard normal noise, which may have further leading axes."""
        return self.mean + jnp.exp(self.log_std) * noise

    def log_prob(self, x: Array) -> Array:
        """Of each column."""
        return -0.5 * jnp.square((x - self.mean) * jnp.exp(-self.log_std)) - self.log_std - LOG_SQRT_2PI

    def divergence(self, other: ActionGaussian) -> Array:
        """KL(self || other), summed over columns."""
        ratio = jnp.exp(self.log_std - other.log_std)
        shift = (self.mean - other.mean) * jnp.exp(-other.log_std)
        return (0.5 * (jnp.square(ratio) + jnp.square(shift) - 1.0) - jnp.log(ratio)).sum(-1)


class Candidates(NamedTuple):
    """Actions sampled at each state, half from a proposal, half from the reference policy."""

    x: Array  # (samples, ..., action_dim): before the tanh
    log_ratio: Array  # (samples, ...): log w, density of the reference policy over that of the proposal

    @property
    def action(self) -> Array:
        return jnp.tanh(self.x)


def candidates(proposal: ActionGaussian, reference: ActionGaussian, noise: Array) -> Candidates:
    """log w_i = log pi_ref(a_i) - log proposal(a_i) for the proposal's, 0 for the reference policy's own."""
    count = noise.shape[0] // 2
    proposed, own = proposal.at(noise[:count]), reference.at(noise[count:])
    log_ratio = (reference.log_prob(proposed) - proposal.log_prob(proposed)).sum(-1)
    return Candidates(
        jnp.concatenate([proposed, own]), jnp.concatenate([log_ratio, jnp.zeros(own.shape[:-1], log_ratio.dtype)])
    )


def temperature(q: Array, log_ratio: Array, kl_target: float, lowest: float) -> Array:
    """alpha(s) = (max_i q_i - sum_i w_i q_i) / KL, w normalised: a temperature that keeps the divergence below KL.

    For the maximiser pi* of `soft_value`, KL(pi* || pi_ref) = (E_pi*[Q] - V) / alpha: at most maximum less mean, over
    alpha. The maximum is a softmax at the lowest temperature, so that unlikely actions of pi_ref count little.
    """
    best = (jax.nn.softmax(log_ratio + q / lowest, axis=0) * q).sum(0)
    mean = (jax.nn.softmax(log_ratio, axis=0) * q).sum(0)
    return jnp.maximum((best - mean) / kl_target, lowest)


def soft_value(q: Array, log_ratio: Array, alpha: Array) -> Array:
    """V(s) = alpha log (sum_i w_i exp(q_i / alpha) / sum_i w_i): max of E_pi[Q] - alpha KL(pi || pi_ref)."""
    return alpha * (jax.nn.logsumexp(q / alpha + log_ratio, axis=0) - jax.nn.logsumexp(log_ratio, axis=0))


def improved_log_weights(q: Array, log_ratio: Array, alpha: Array) -> Array:
    """log W_i, W = softmax(q / alpha + log w): that maximiser, pi_ref exp(Q / alpha), on the sampled actions."""
    return jax.nn.log_softmax(q / alpha + log_ratio, axis=0)
