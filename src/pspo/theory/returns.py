"""Exact returns by linear algebra: J of Eq. (1) (pre:eq4) and Eq. (2) (pre:eq5), and J~ of Eq. (7) (opt:eq1).

Redrawing the model from the posterior at every step is, in distribution, one Markov chain whose kernel is the
posterior mean of the models. That makes J an ordinary discounted return, solved for without truncation.
"""

from __future__ import annotations

import numpy as np

from pspo.theory.ensemble import Array, FiniteEnsemble
from pspo.theory.policies import kl_divergence


def mixture_transitions(ensemble: FiniteEnsemble, posterior: Array) -> Array:
    """E_{T~P(T|E)} T(s'|s,a), (S, A, S)."""
    return (posterior[..., None] * ensemble.transitions).sum(axis=0)


def state_values(
    ensemble: FiniteEnsemble, posterior: Array, policy: Array, reference: Array | None = None, temperature: float = 0.0
) -> Array:
    """Discounted sum of r - temperature KL(pi || reference) from every state, (S,).

    The KL of step t carries gamma^t like the reward, as in Eq. (7); the appendix drops it in C_KL.
    """
    gain = (policy * ensemble.reward).sum(axis=-1)
    if reference is not None:
        gain = gain - temperature * kl_divergence(policy, reference)
    return _solve(_state_system(ensemble, posterior, policy), gain)


def occupancy(ensemble: FiniteEnsemble, posterior: Array, policy: Array) -> Array:
    """Sum over t of gamma^t P(s_t = s), (S,); its entries add up to 1 / (1 - gamma)."""
    return _solve(_state_system(ensemble, posterior, policy).T, ensemble.initial)


def expected_return(ensemble: FiniteEnsemble, posterior: Array, policy: Array) -> float:
    """J(pi), Eq. (1): a new model from the posterior at every step."""
    return float(ensemble.initial @ state_values(ensemble, posterior, policy))


def episodic_return(ensemble: FiniteEnsemble, weights: Array, policy: Array) -> float:
    """E_{T~weights} J(pi, T), Eq. (2): one model, drawn from weights (N,), for the whole episode."""
    total = 0.0
    for index, weight in enumerate(weights):
        certain = np.zeros((ensemble.n_models, ensemble.n_states, ensemble.n_actions))
        certain[index] = 1.0
        total += float(weight) * expected_return(ensemble, certain, policy)
    return total


def regularised_return(
    ensemble: FiniteEnsemble, posterior: Array, policy: Array, mu: Array, temperature: float
) -> float:
    """J~(pi), Eq. (7), with alpha = temperature."""
    return float(ensemble.initial @ state_values(ensemble, posterior, policy, mu, temperature))


def _state_system(ensemble: FiniteEnsemble, posterior: Array, policy: Array) -> Array:
    """I - gamma P_pi, with P_pi the state transitions of the policy in the mixture, (S, S)."""
    transitions = (policy[..., None] * mixture_transitions(ensemble, posterior)).sum(axis=1)
    return np.eye(ensemble.n_states) - ensemble.gamma * transitions


def _solve(matrix: Array, right: Array) -> Array:
    return np.asarray(np.linalg.solve(matrix, right), dtype=np.float64)  # NumPy's stubs forget the precision
