"""PSPO, step 4, for discrete actions: the closed forms as exact sums over all labels, nothing is sampled.

    V(s) = alpha log sum_a mu(a|s) exp(Q(s,a)/alpha)                              Eq. (8), opt:eq2 in the paper's source
    pi(a|s) ∝ mu(a|s)^(alpha/(alpha+lambda)) pi'(a|s)^(lambda/(alpha+lambda)) exp(Q(s,a)/(alpha+lambda))    Eq. (9)

The policy network follows the second by the cross-entropy to it: its projection, as the weighted likelihood of sampled
actions is for quantities. All divergences are exact.
"""

from __future__ import annotations

import jax
from jax import Array

from pspo.algorithms.common.discrete import all_actions
from pspo.algorithms.pspo.config import Config
from pspo.algorithms.pspo.evaluation import q_values
from pspo.algorithms.pspo.improvement import Constraints, Improved, Policies, alpha_at
from pspo.nets.categorical import Categorical, CategoricalPolicy
from pspo.nets.mlp import MLP


def by_sums(config: Config, nets: Policies, critic: MLP, features: Array, constraints: Constraints) -> Improved:
    """Soft values and the step of the policy."""
    mu, policy, target = (net(features) for net in nets)
    q = q_of_all(config, critic, features, nets.policy.action_dim)
    kl_states = policy.kl(mu)
    alpha = alpha_at(config, kl_states, columns=1, kl_limit=constraints.kl_limit)
    if config.reference_term and config.value_of == "optimum":
        soft = soft_value(q, mu, alpha)
    else:
        # E_pi[Q] - alpha KL(pi||mu), which Eq. (8) is at its optimum; without mu, Eq. (5) (model:operator).
        soft = policy.mean(q) - (config.alpha * kl_states if config.reference_term else 0.0)
    improved = improved_policy(q, mu, target, alpha, constraints.multiplier)
    loss, grads = jax.value_and_grad(cross_entropy)(nets.policy, features, improved)
    return Improved(grads, loss, soft, kl_states, kl_states.mean(), policy.kl(target).mean(), q)


def q_of_all(config: Config, critic: MLP, features: Array, labels: int) -> Array:
    """(batch, labels)."""
    return q_values(config, critic, features, all_actions(labels, features.shape[0])).T


def soft_value(q: Array, mu: Categorical, alpha: Array) -> Array:
    """alpha log E_{a~mu} exp(Q(s,a)/alpha) of Eq. (8)."""
    return alpha * jax.nn.logsumexp(q / alpha[:, None] + mu.log_p, axis=-1)


def improved_policy(q: Array, mu: Categorical, target: Categorical, alpha: Array, multiplier: Array) -> Categorical:
    """The maximiser of E_pi[Q] - alpha KL(pi||mu) - lambda KL(pi||pi') of Eq. (9)."""
    alpha = alpha[:, None]
    # Weights first: unavailable labels have log probabilities of -1e9, whose sums would lose all other digits.
    share = alpha / (alpha + multiplier)
    return Categorical(
        jax.nn.log_softmax(q / (alpha + multiplier) + share * mu.log_p + (1.0 - share) * target.log_p, axis=-1)
    )


def cross_entropy(policy: CategoricalPolicy, features: Array, improved: Categorical) -> Array:
    """Projection of the closed form of Eq. (9) onto the policy."""
    return -improved.mean(policy(features).log_p).mean()
