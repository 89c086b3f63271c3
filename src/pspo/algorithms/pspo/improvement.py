"""PSPO, step 4: soft value and improved policy from actions sampled at a state.

    V(s) = alpha log E_{a~mu} exp(Q(s,a)/alpha)                               Eq. (8), opt:eq2 in the paper's source
    max_pi E_pi[Q] - alpha KL(pi||mu),  KL(pi||pi') <= epsilon                Eq. (9), opt:eq3

With lambda the multiplier of the constraint, the maximiser at each state is
pi ∝ mu^(alpha/(alpha+lambda)) pi'^(lambda/(alpha+lambda)) exp(Q/(alpha+lambda)).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from pspo.algorithms.pspo.config import Config
from pspo.algorithms.pspo.evaluation import q_values
from pspo.data.normalise import squash
from pspo.dynamics.persistent_rollouts import antithetic_noise
from pspo.nets.mlp import MLP
from pspo.nets.policies import MixturePolicy, kl_bound

RISE = 4.0  # beyond `kl_limit` alpha rises e times per quarter of it
MAX_RISE = 12.0  # in nats: by then mu alone decides


class Policies(NamedTuple):
    """The three policies of Eq. (9)."""

    mu: Any  # all three are mixture policies, or for discrete actions categorical ones
    policy: Any
    target: Any  # pi'


class Improved(NamedTuple):
    """The gradient step of the policy, and estimates from the sampled actions."""

    grads: Any
    loss: Array
    soft: Array  # (batch,): V(s)
    kl_states: Array  # (batch,): a bound of KL(pi||mu) at each state, exact for single Gaussians
    kl_mu: Array  # (): KL(pi||mu), mean over states
    kl_target: Array  # (): KL(pi||pi')
    q: Array


class Constraints(NamedTuple):
    """How far the policy may go: from the target policy, and from mu."""

    multiplier: Array  # lambda
    kl_limit: Array | float  # nats per action dimension


def improvement(
    config: Config, nets: Policies, critic: MLP, features: Array, constraints: Constraints, key: Array
) -> Improved:
    step = by_gradient if config.improvement == "gradient" else by_weights
    return step(config, nets, critic, features, constraints, key)


def alpha_at(config: Config, kl_states: Array, columns: int, kl_limit: Array | float) -> Array:
    """The pull towards mu at each state: alpha, and more where the policy has gone beyond `kl_limit`.

    One alpha bounds the mean divergence and says little of rare states: on hopper, policies at 1.3 nats in the
    median stood at 10 in the first states of an episode, where no model knows what follows.
    """
    if not config.reference_term:
        return jnp.zeros_like(kl_states)
    if not config.kl_limit:
        return jnp.full_like(kl_states, config.alpha)
    rise = RISE * jnp.maximum(kl_states / (kl_limit * columns) - 1.0, 0.0)
    return config.alpha * jnp.exp(jnp.minimum(rise, MAX_RISE))


# The objective of Eq. (9) itself, followed along its gradient


def by_gradient(
    config: Config, nets: Policies, critic: MLP, features: Array, constraints: Constraints, key: Array
) -> Improved:
    """One step along the gradient of E_pi[Q] - alpha KL(pi||mu) - lambda KL(pi||pi'), actions reparameterised.

    Near the optimum advantages are small against lambda. Weights of a few sampled actions then are noise around
    one, which a gradient through the critic does not have.
    """
    mu, target = nets.mu(features), nets.target(features)
    if config.value_of == "mode":
        noise = jnp.zeros((1, *mu.mean.shape))  # the deployed action has none
    else:
        noise = antithetic_noise(key, -(-config.action_samples // 2), mu.mean)[:, 0]

    def objective(policy: MixturePolicy) -> tuple[Array, tuple[Array, ...]]:
        mixture = policy(features)
        x = mixture.mean + jnp.exp(mixture.log_std) * noise  # (draws, batch, components, d)
        q = q_values(config, critic, features[:, None], squash(x))
        expected = (jnp.exp(mixture.log_weight) * q.mean(0)).sum(-1)
        kl_mu, kl_target = kl_bound(mixture, mu), kl_bound(mixture, target)
        alpha = jax.lax.stop_gradient(alpha_at(config, kl_mu, x.shape[-1], constraints.kl_limit))
        loss = (alpha * kl_mu + constraints.multiplier * kl_target - expected).mean()
        soft = expected - jnp.minimum(alpha, config.alpha) * kl_mu
        return loss, (soft, kl_mu, kl_mu.mean(), kl_target.mean(), q)

    (loss, estimates), grads = jax.value_and_grad(objective, has_aux=True)(nets.policy)
    return Improved(grads, loss, *estimates)


# Its closed form, projected onto the policy


def by_weights(
    config: Config, nets: Policies, critic: MLP, features: Array, constraints: Constraints, key: Array
) -> Improved:
    sampled = sample_actions(config, nets, critic, features, key)
    soft, log_weight = improve(config, sampled, constraints)
    loss, grads = jax.value_and_grad(policy_loss)(nets.policy, features, sampled.x, log_weight)
    own = slice(config.action_samples, None)  # the policy's own samples estimate its divergences
    kl_mu = (sampled.log_policy - sampled.log_mu)[own].mean()
    kl_target = (sampled.log_policy - sampled.log_target)[own].mean()
    return Improved(grads, loss, soft, sampled.kl_states, kl_mu, kl_target, sampled.q)


class Sampled(NamedTuple):
    """Actions of mu (first half) and of the policy (second half) at each state, with all their densities."""

    x: Array  # (2 n, batch, d)
    log_mu: Array
    log_policy: Array
    log_target: Array
    q: Array
    kl_states: Array  # (batch,): as in Improved

    @property
    def log_proposal(self) -> Array:
        return balance_heuristic(self.log_mu, self.log_policy)


def sample_actions(config: Config, nets: Policies, critic: MLP, features: Array, key: Array) -> Sampled:
    k_mu, k_policy = jax.random.split(key)
    mu, policy, target = (net(features) for net in nets)
    n = config.action_samples
    x = jnp.concatenate([mu.sample(k_mu, n), policy.sample(k_policy, n)])
    q = q_values(config, critic, features, squash(x))
    return Sampled(x, mu.log_prob(x), policy.log_prob(x), target.log_prob(x), q, kl_bound(policy, mu))


def improve(config: Config, sampled: Sampled, constraints: Constraints) -> tuple[Array, Array]:
    """Soft values (Eq. 8) and the weights of the improved policy (Eq. 9) on the sampled actions."""
    alpha = alpha_at(config, sampled.kl_states, sampled.x.shape[-1], constraints.kl_limit)
    if config.reference_term and config.value_of == "optimum":
        soft = soft_value(sampled.q, sampled.log_mu, sampled.log_proposal, alpha)
    else:
        # E_pi[Q] - alpha KL(pi||mu), which Eq. (8) is at its optimum; without mu, Eq. (5) (model:operator).
        # What alpha has risen by is the multiplier of a constraint, which costs nothing where it holds.
        cost = config.alpha * (sampled.log_policy - sampled.log_mu) if config.reference_term else 0.0
        soft = (sampled.q - cost)[config.action_samples :].mean(0)
    log_weight = improvement_log_weights(
        sampled.q, sampled.log_mu, sampled.log_target, sampled.log_proposal, alpha, constraints.multiplier
    )
    return soft, log_weight


def policy_loss(policy: MixturePolicy, features: Array, x: Array, log_weight: Array) -> Array:
    """Projection of the closed form of Eq. (9) onto the policy: weighted likelihood."""
    return -(jnp.exp(log_weight) * policy(features).log_prob(x)).sum(0).mean()


# The closed forms on sampled actions (samples, batch)


def soft_value(q: Array, log_mu: Array, log_proposal: Array, alpha: float | Array) -> Array:
    """alpha log E_{a~mu} exp(Q(s,a)/alpha) of Eq. (8), from actions of any proposal.

    Importance ratios mu/proposal make the estimate inside the logarithm unbiased.
    """
    return alpha * (jax.nn.logsumexp(q / alpha + log_mu - log_proposal, axis=0) - jnp.log(q.shape[0]))


def balance_heuristic(log_a: Array, log_b: Array) -> Array:
    """Log density of the proposal "half of the samples from a, half from b"."""
    return jnp.logaddexp(log_a, log_b) - jnp.log(2.0)


def improvement_log_weights(
    q: Array, log_mu: Array, log_target: Array, log_proposal: Array, alpha: float | Array, multiplier: Array
) -> Array:
    """Self-normalised weights of the maximiser of E_pi[Q] - alpha KL(pi||mu) - lambda KL(pi||pi')."""
    target = (q + alpha * log_mu + multiplier * log_target) / (alpha + multiplier)
    return jax.nn.log_softmax(target - log_proposal, axis=0)
