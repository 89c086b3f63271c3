"""The posterior over models and the two Bellman operators of the paper, exact on a finite ensemble.

A posterior is an array (N, S, A): one distribution over the models for every state-action pair. The operators take
it as a fixed argument, because that is the setting in which the paper proves them contractions; `reweighting.py`
covers the case where it follows Q instead.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pspo.theory.ensemble import Array, FiniteEnsemble
from pspo.theory.policies import kl_divergence

# A rule that turns Q (S, A) into V (S,): the policy's mean, or the soft value.
ValueRule = Callable[[Array], Array]


def model_targets(ensemble: FiniteEnsemble, value: Array) -> Array:
    """r(s,a) + gamma E_{s'~T_i} V(s') for every model, (N, S, A): Q(s,a) according to each model alone."""
    return ensemble.reward + ensemble.gamma * ensemble.transitions @ value


def consistency(ensemble: FiniteEnsemble, q: Array, value: Array) -> Array:
    """F(T_i; s,a), Eq. (3) (reweight_metric): squared gap between Q and the model's own target, (N, S, A)."""
    return (q - model_targets(ensemble, value)) ** 2


def model_posterior(prior: Array, metric: Array, beta: float) -> Array:
    """P(T_i | E) ∝ P(T_i) exp(-beta F_i), the minimiser of Eq. (4) (model:eq1), (N, S, A).

    In log space: beta F can exceed 700 for every model at once, where exp underflows and 0/0 would follow.
    """
    with np.errstate(divide="ignore"):
        log_weights = np.log(prior)[:, None, None] - beta * metric
    weights = np.exp(log_weights - log_weights.max(axis=0))
    return weights / weights.sum(axis=0)


def posterior_objective(weights: Array, prior: Array, metric: Array, beta: float) -> Array:
    """KL(weights || prior) + beta E_weights[F], the objective of Eq. (4) per state-action pair, (S, A)."""
    over_models = np.moveaxis(weights, 0, -1)
    return kl_divergence(over_models, prior) + beta * (weights * metric).sum(axis=0)


def policy_value(q: Array, policy: Array) -> Array:
    """V(s) = E_{a~pi} Q(s,a), (S,)."""
    return (policy * q).sum(axis=-1)


def soft_value(q: Array, reference: Array, temperature: float) -> Array:
    """V(s) = alpha log E_{a~mu} exp(Q(s,a) / alpha), the bracket of Eq. (8) (opt:eq2), (S,).

    The reference may be any positive measure, normalised or not: the constrained step needs the general case.
    """
    with np.errstate(divide="ignore"):
        log_terms = np.log(reference) + q / temperature
    return temperature * np.logaddexp.reduce(log_terms, axis=-1)


def backup(ensemble: FiniteEnsemble, posterior: Array, value: Array) -> Array:
    """r(s,a) + gamma E_{T~P(T|E), s'~T} V(s'), the common part of both operators, (S, A)."""
    return (posterior * model_targets(ensemble, value)).sum(axis=0)


def evaluation_operator(ensemble: FiniteEnsemble, posterior: Array, policy: Array, q: Array) -> Array:
    """Eq. (5) (model:operator), (S, A)."""
    return backup(ensemble, posterior, policy_value(q, policy))


def optimality_operator(
    ensemble: FiniteEnsemble, posterior: Array, reference: Array, temperature: float, q: Array
) -> Array:
    """Eq. (8), (S, A)."""
    return backup(ensemble, posterior, soft_value(q, reference, temperature))


def fixed_point(
    operator: Callable[[Array], Array], start: Array, tolerance: float = 1e-10, max_iterations: int = 20_000
) -> Array:
    """Apply the operator until a whole application moves no entry by more than the tolerance.

    For a gamma-contraction the result is then within tolerance * gamma / (1 - gamma) of the fixed point.
    """
    q = start
    for _ in range(max_iterations):
        following = operator(q)
        if np.abs(following - q).max() <= tolerance:
            return following
        q = following
    raise RuntimeError(f"no fixed point within {max_iterations} applications: is the operator a contraction?")


def target_variance(ensemble: FiniteEnsemble, posterior: Array, value: Array, draw_next_state: bool = False) -> Array:
    """Var(Y) of Prop. 2, exactly, (S, A).

    Y = r + gamma E_{s'~T} V(s') with T drawn from the posterior (the paper's target), or, with draw_next_state,
    Y = r + gamma V(s') with s' drawn from that T as well (what one sampled transition gives).
    """
    mean = backup(ensemble, posterior, value)
    if draw_next_state:
        # Y takes the value r + gamma V(s') with probability posterior_i T_i(s').
        outcomes = ensemble.reward[..., None] + ensemble.gamma * value
        squares = ensemble.transitions * (outcomes - mean[..., None]) ** 2
        return (posterior[..., None] * squares).sum(axis=(0, -1))
    return (posterior * (model_targets(ensemble, value) - mean) ** 2).sum(axis=0)
