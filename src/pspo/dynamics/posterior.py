"""The posterior over models, Eq. model:eq1, per (s, a): P(T|E) ∝ P(T) exp(-beta F(T)), in log space."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


def consistency(q: Array, backups: Array) -> Array:
    """F(T_i) = (Q(s,a) - (r + gamma E_{s'~T_i} V(s')))^2, Eq. reweight_metric. backups: (models, batch)."""
    return jnp.square(q - backups)


def log_posterior(log_prior: Array, f: Array, beta: float | Array) -> Array:
    """Closed-form minimiser of KL(P || prior) + beta E_P[F]; log_prior (models,), f (models, batch)."""
    return jax.nn.log_softmax(log_prior[:, None] - beta * f, axis=0)


def entropy(log_weight: Array) -> Array:
    """Entropy in nats per row of (models, batch) log-weights; zero weights contribute nothing."""
    return -jnp.sum(jnp.where(log_weight > -jnp.inf, jnp.exp(log_weight) * log_weight, 0.0), axis=0)


def likelihood_log_prior(holdout_nll: Array, temperature: float) -> Array:
    """A prior from the members' hold-out likelihood: members that explain unseen rows better start ahead.

    `temperature` is in nats per row and target: a member worse by that much starts e times lighter.
    """
    return jax.nn.log_softmax(-(holdout_nll - jnp.min(holdout_nll)) / temperature)
