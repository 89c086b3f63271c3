"""What PSPO learns from actions sampled at a state: soft value (Eq. opt:eq2) and improved policy (Eq. opt:eq3)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from pspo.algorithms.pspo_config import Config
from pspo.data.normalise import squash
from pspo.nets.mlp import MLP, apply_stack
from pspo.nets.policies import MixturePolicy, kl_bound
from pspo.values import balance_heuristic, improvement_log_weights, soft_value

RISE = 4.0  # beyond `kl_limit` alpha rises e times per quarter of it
MOST_RISE = 12.0  # in nats: by then mu alone decides


def q_values(config: Config, critic: MLP, features: Array, unit_action: Array) -> Array:
    """What the critics say together; features (batch, f), actions (..., batch, d) -> (..., batch)."""
    features = jnp.broadcast_to(features, (*unit_action.shape[:-1], features.shape[-1]))
    x = jnp.concatenate([features, unit_action], axis=-1)
    flat = apply_stack(critic, x.reshape(-1, x.shape[-1]))
    together = flat.min(0) if config.critic_value == "min" else flat.mean(0)
    return together.reshape(unit_action.shape[:-1])


class Sampled(NamedTuple):
    """Actions of mu (first half) and of the policy (second half) at each state, with all their densities."""

    x: Array  # (2 n, batch, d)
    log_mu: Array
    log_policy: Array
    log_centre: Array
    q: Array
    kl_mu: Array  # (batch,): KL(pi||mu) at each state

    @property
    def log_proposal(self) -> Array:
        return balance_heuristic(self.log_mu, self.log_policy)


class Policies(NamedTuple):
    """The three policies of Eq. opt:eq3."""

    mu: MixturePolicy
    policy: MixturePolicy
    centre: MixturePolicy


def sample_actions(config: Config, nets: Policies, critic: MLP, features: Array, key: Array) -> Sampled:
    k_mu, k_policy = jax.random.split(key)
    mu, policy, centre = (net(features) for net in nets)
    n = config.action_samples
    x = jnp.concatenate([mu.sample(k_mu, n), policy.sample(k_policy, n)])
    q = q_values(config, critic, features, squash(x))
    return Sampled(x, mu.log_prob(x), policy.log_prob(x), centre.log_prob(x), q, kl_bound(policy, mu))


def alpha_at(config: Config, drawn: Sampled) -> Array | float:
    """The pull towards mu at each state: alpha, and more where the policy has gone beyond `kl_limit`.

    One alpha bounds the mean divergence and says little of rare states: on hopper, policies at 1.3 nats in the
    median stood at 10 in the first states of an episode, where no model knows what follows.
    """
    if not config.kl_limit:
        return config.alpha
    limit = config.kl_limit * drawn.x.shape[-1]
    rise = RISE * jnp.maximum(drawn.kl_mu / limit - 1.0, 0.0)
    return config.alpha * jnp.exp(jnp.minimum(rise, MOST_RISE))


def improve(config: Config, drawn: Sampled, trust: Array) -> tuple[Array, Array]:
    """Soft values (Eq. opt:eq2) and the weights of the improved policy (Eq. opt:eq3) on the drawn actions."""
    alpha = alpha_at(config, drawn) if config.reference_term else 0.0
    if config.reference_term and config.value_of == "optimum":
        soft = soft_value(drawn.q, drawn.log_mu, drawn.log_proposal, alpha)
    else:
        # E_pi[Q] - alpha KL(pi||mu): what Eq. opt:eq2 is at its optimum; without mu, Eq. model:operator.
        # What alpha has risen by is the multiplier of a constraint, which costs nothing where it holds.
        cost = config.alpha * (drawn.log_policy - drawn.log_mu) if config.reference_term else 0.0
        soft = (drawn.q - cost)[config.action_samples :].mean(0)
    return soft, improvement_log_weights(drawn.q, drawn.log_mu, drawn.log_centre, drawn.log_proposal, alpha, trust)


def policy_loss(policy: MixturePolicy, features: Array, x: Array, log_weight: Array) -> Array:
    """Projection of the closed form of Eq. opt:eq3 onto the policy: weighted likelihood."""
    return -(jnp.exp(log_weight) * policy(features).log_prob(x)).sum(0).mean()
