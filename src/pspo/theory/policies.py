"""Policies in closed form: the maximisers, state by state, of a mean of Q minus divergences."""

from __future__ import annotations

import numpy as np

from pspo.theory.ensemble import Array


def kl_divergence(p: Array, q: Array) -> Array:
    """KL(p || q) along the last axis; terms with p = 0 count zero. q may be unnormalised."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0.0, p * (np.log(p) - np.log(q)), 0.0)
    return terms.sum(axis=-1)


def greedy_policy(q: Array, reference: Array, temperature: float) -> Array:
    """pi(a|s) ∝ mu(a|s) exp(Q(s,a) / alpha), the policy of Thm. 2, (S, A).

    It maximises E_pi[Q] - alpha KL(pi || mu) at every state. The reference may be unnormalised.
    """
    with np.errstate(divide="ignore"):
        logits = np.log(reference) + q / temperature
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def blended_reference(mu: Array, previous: Array, alpha: float, lam: float) -> Array:
    """mu^(alpha/(alpha+lam)) previous^(lam/(alpha+lam)), not normalised, (S, A).

    alpha KL(pi||mu) + lam KL(pi||previous) equals (alpha+lam) KL(pi||blend): two penalties act as one penalty towards
    the blend, so everything proved for one reference holds for the trust region as well.
    """
    share = alpha / (alpha + lam)
    return mu**share * previous ** (1.0 - share)


def trust_region_policy(q: Array, mu: Array, previous: Array, alpha: float, lam: float) -> Array:
    """The maximiser of E_pi[Q] - alpha KL(pi||mu) - lam KL(pi||previous), (S, A).

    It solves Eq. (9) (opt:eq3) state by state, with lam as the multiplier of the constraint.
    """
    return greedy_policy(q, blended_reference(mu, previous, alpha, lam), alpha + lam)
