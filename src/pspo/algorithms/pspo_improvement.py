"""What PSPO learns from actions sampled at a state: soft value (Eq. opt:eq2) and improved policy (Eq. opt:eq3)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from pspo.algorithms.pspo_config import Config
from pspo.data.normalise import squash
from pspo.dynamics.rollout import antithetic_noise
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


class Policies(NamedTuple):
    """The three policies of Eq. opt:eq3."""

    mu: MixturePolicy
    policy: MixturePolicy
    centre: MixturePolicy


class Improved(NamedTuple):
    """The next step of the policy, and what the sampled actions said on the way."""

    grads: MixturePolicy
    loss: Array
    soft: Array  # (batch,): V(s)
    kl_states: Array  # (batch,): a bound of KL(pi||mu) at each state, exact for single Gaussians
    kl_mu: Array  # (): KL(pi||mu), mean over states
    kl_centre: Array
    q: Array


def improvement(config: Config, nets: Policies, critic: MLP, features: Array, trust: Array, key: Array) -> Improved:
    step = by_gradient if config.improvement == "gradient" else by_weights
    return step(config, nets, critic, features, trust, key)


# The objective of Eq. opt:eq3 itself, followed along its gradient


def by_gradient(config: Config, nets: Policies, critic: MLP, features: Array, trust: Array, key: Array) -> Improved:
    """One step along the gradient of E_pi[Q] - alpha KL(pi||mu) - lambda KL(pi||pi'), actions reparameterised.

    Near the optimum advantages are small against lambda. Weights of a few sampled actions then are noise around
    one, which a gradient through the critic does not have.
    """
    mu, centre = nets.mu(features), nets.centre(features)
    noise = antithetic_noise(key, -(-config.action_samples // 2), mu.mean)[:, 0]

    def objective(policy: MixturePolicy) -> tuple[Array, tuple[Array, ...]]:
        mixture = policy(features)
        x = mixture.mean + jnp.exp(mixture.log_std) * noise  # (draws, batch, components, d)
        q = q_values(config, critic, features[:, None], squash(x))
        expected = (jnp.exp(mixture.log_weight) * q.mean(0)).sum(-1)
        kl_mu, kl_centre = kl_bound(mixture, mu), kl_bound(mixture, centre)
        alpha = jax.lax.stop_gradient(alpha_at(config, kl_mu, x.shape[-1]))
        loss = (alpha * kl_mu + trust * kl_centre - expected).mean()
        soft = expected - jnp.minimum(alpha, config.alpha) * kl_mu
        return loss, (soft, kl_mu, kl_mu.mean(), kl_centre.mean(), q)

    (loss, found), grads = jax.value_and_grad(objective, has_aux=True)(nets.policy)
    return Improved(grads, loss, *found)


# Its closed form, projected onto the policy


def by_weights(config: Config, nets: Policies, critic: MLP, features: Array, trust: Array, key: Array) -> Improved:
    drawn = sample_actions(config, nets, critic, features, key)
    soft, log_weight = improve(config, drawn, trust)
    loss, grads = jax.value_and_grad(policy_loss)(nets.policy, features, drawn.x, log_weight)
    own = slice(config.action_samples, None)  # the policy's own samples estimate its divergences
    kl_mu = (drawn.log_policy - drawn.log_mu)[own].mean()
    kl_centre = (drawn.log_policy - drawn.log_centre)[own].mean()
    return Improved(grads, loss, soft, drawn.kl_states, kl_mu, kl_centre, drawn.q)


class Sampled(NamedTuple):
    """Actions of mu (first half) and of the policy (second half) at each state, with all their densities."""

    x: Array  # (2 n, batch, d)
    log_mu: Array
    log_policy: Array
    log_centre: Array
    q: Array
    kl_states: Array  # (batch,): as in Improved

    @property
    def log_proposal(self) -> Array:
        return balance_heuristic(self.log_mu, self.log_policy)


def sample_actions(config: Config, nets: Policies, critic: MLP, features: Array, key: Array) -> Sampled:
    k_mu, k_policy = jax.random.split(key)
    mu, policy, centre = (net(features) for net in nets)
    n = config.action_samples
    x = jnp.concatenate([mu.sample(k_mu, n), policy.sample(k_policy, n)])
    q = q_values(config, critic, features, squash(x))
    return Sampled(x, mu.log_prob(x), policy.log_prob(x), centre.log_prob(x), q, kl_bound(policy, mu))


def alpha_at(config: Config, kl_states: Array, columns: int) -> Array:
    """The pull towards mu at each state: alpha, and more where the policy has gone beyond `kl_limit`.

    One alpha bounds the mean divergence and says little of rare states: on hopper, policies at 1.3 nats in the
    median stood at 10 in the first states of an episode, where no model knows what follows.
    """
    if not config.reference_term:
        return jnp.zeros_like(kl_states)
    if not config.kl_limit:
        return jnp.full_like(kl_states, config.alpha)
    rise = RISE * jnp.maximum(kl_states / (config.kl_limit * columns) - 1.0, 0.0)
    return config.alpha * jnp.exp(jnp.minimum(rise, MOST_RISE))


def improve(config: Config, drawn: Sampled, trust: Array) -> tuple[Array, Array]:
    """Soft values (Eq. opt:eq2) and the weights of the improved policy (Eq. opt:eq3) on the drawn actions."""
    alpha = alpha_at(config, drawn.kl_states, drawn.x.shape[-1])
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
