"""Soft values and improvement weights from sampled actions: the closed forms of Eq. opt:eq2 and opt:eq3."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


def soft_value(q: Array, log_mu: Array, log_proposal: Array, alpha: float | Array) -> Array:
    """alpha log E_{a~mu} exp(Q(s,a)/alpha), Eq. opt:eq2, from actions of any proposal (samples, batch).

    Importance ratios mu/proposal make the estimate inside the logarithm unbiased.
    """
    return alpha * (jax.nn.logsumexp(q / alpha + log_mu - log_proposal, axis=0) - jnp.log(q.shape[0]))


def balance_heuristic(log_a: Array, log_b: Array) -> Array:
    """Log density of the proposal "half of the samples from a, half from b"."""
    return jnp.logaddexp(log_a, log_b) - jnp.log(2.0)


def improvement_log_weights(
    q: Array, log_mu: Array, log_centre: Array, log_proposal: Array, alpha: float | Array, trust: Array
) -> Array:
    """Self-normalised weights of the closed form behind Eq. opt:eq3 on sampled actions (samples, batch).

    pi ∝ mu^(alpha/(alpha+lambda)) pi'^(lambda/(alpha+lambda)) exp(Q/(alpha+lambda)): the maximiser of
    E_pi[Q] - alpha KL(pi||mu) - lambda KL(pi||pi').
    """
    target = (q + alpha * log_mu + trust * log_centre) / (alpha + trust)
    return jax.nn.log_softmax(target - log_proposal, axis=0)
