"""Losses and targets that several algorithms share, under the papers' names. Plain arrays in and out."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from pspo.data.batches import Transitions
from pspo.nets.mlp import MLP, apply_stack


def q_values(critic: MLP, features: Array, action: Array) -> Array:
    """(critics, ..., batch) of a stack of critics; leading axes of `action` may be missing in `features`."""
    features = jnp.broadcast_to(features, (*action.shape[:-1], features.shape[-1]))
    return apply_stack(critic, jnp.concatenate([features, action], axis=-1))[..., 0]


def q_range(q: Array) -> dict[str, Array]:
    """Metrics of a batch's values: critics that diverge show here first."""
    return {"q_min": q.min(), "q_mean": q.mean(), "q_max": q.max()}


def bellman_target(reward: Array, terminal: Array, next_value: Array, gamma: float) -> Array:
    """r + gamma V(s'); nothing follows a true terminal, and a time-out is none."""
    return jax.lax.stop_gradient(reward + gamma * jnp.where(terminal, 0.0, next_value))


def td_loss(q: Array, target: Array, weight: Array | float = 1.0) -> Array:
    """Squared error of critics (critics, batch), averaged over the batch (weighted if given), summed over critics."""
    return (weight * jnp.square(q - target)).mean(-1).sum()


def expectile_loss(error: Array, tau: float) -> Array:
    """|tau - 1[error < 0]| error^2: the minimiser of its mean is the tau-expectile (IQL, Eq. 5)."""
    return (jnp.where(error < 0.0, 1.0 - tau, tau) * jnp.square(error)).mean()


def advantage_weight(advantage: Array, temperature: float, highest: float) -> Array:
    """min(exp(temperature * advantage), highest); the exponent is cut first, so that nothing overflows."""
    return jnp.exp(jnp.minimum(temperature * jax.lax.stop_gradient(advantage), jnp.log(highest)))


def quantile_huber_loss(quantile: Array, tau: Array, target: Array) -> Array:
    """mean |tau_n - 1[delta <= 0]| huber_1(delta), delta = y_m - Z_n, over batch, n and m (IQN, Eq. 3).

    quantile (n, batch) at levels tau (n,); target (m, batch).
    """
    delta = target[None, :] - quantile[:, None]  # (n, m, batch)
    size = jnp.abs(delta)
    huber = jnp.where(size <= 1.0, 0.5 * jnp.square(delta), size - 0.5)
    return (jnp.abs(tau[:, None, None] - (delta <= 0.0)) * huber).mean()


def smoothed_action(action: Array, noise: Array, scale: float, clip: float) -> Array:
    """TD3's target smoothing: an action with clipped Gaussian noise, inside the bounds."""
    return jnp.clip(action + jnp.clip(scale * noise, -clip, clip), -1.0, 1.0)


# SAC's (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications")


def soft_actor_loss(log_prob: Array, q: Array, alpha: Array | float) -> Array:
    """alpha log pi(a|s) - Q(s, a) at reparameterised actions (Eq. 9)."""
    return (alpha * log_prob - q).mean()


def temperature_loss(log_alpha: Array, log_prob: Array, below: float) -> Array:
    """Moves the entropy towards minus `below`, most often the number of action columns (Eq. 17, in log alpha)."""
    return -(log_alpha * jax.lax.stop_gradient(log_prob - below)).mean()


def cloning_actor_loss(log_prob: Array, real_log_prob: Array, alpha: Array | float) -> Array:
    """The same with the likelihood of real actions in place of Q: behaviour cloning, the start of CQL and EPQ."""
    return (alpha * log_prob - real_log_prob).mean()


# CQL's, used by EPQ and COMBO too


def sampled_target(
    policy: Any, critic: MLP, next_features: Array, batch: Transitions, noise: Array, gamma: float
) -> Array:
    """r + gamma min_j Q'_j(s', a'), a' ~ pi(.|s'): a soft target without the entropy term."""
    action, _ = policy.sample(next_features, noise)
    next_value = q_values(critic, next_features, action).min(0)
    return bellman_target(batch.reward, batch.terminal, next_value, gamma)


def soft_or_cloning_loss(
    policy: Any,
    critic: MLP,
    *,
    log_alpha: Array,
    features: Array,
    real_action: Array,
    noise: Array,
    cloning: Array | None,
) -> tuple[Array, Array]:
    """SAC's actor loss, or while `cloning` the same with the likelihood of real actions in place of Q; also log pi."""
    alpha = jnp.exp(log_alpha)
    action, log_prob = policy.sample(features, noise)
    loss = soft_actor_loss(log_prob, q_values(critic, features, action).min(0), alpha)
    if cloning is not None:
        loss = jnp.where(cloning, cloning_actor_loss(log_prob, policy.log_prob(features, real_action), alpha), loss)
    return loss, log_prob


def conservative_value(q: Array, log_density: Array) -> Array:
    """log sum_k exp(Q_k - log density_k) over sampled actions (critics, samples, batch): the term that is pushed down.

    Each sample is divided by the density it was drawn from, so that any proposal estimates the same integral of
    exp Q, up to the number of samples (CQL, appendix F; version 3, CQL(H)).
    """
    return jax.nn.logsumexp(q - log_density, axis=1)


def proposals(policy: Any, features: Array, next_features: Array, noise: Array, uniform: Array) -> tuple[Array, Array]:
    """Actions (3n, batch, action_dim) that CQL evaluates at s, and their log densities: uniform ones, the policy's at
    s', the policy's at s. Neither carries a gradient: the penalty must not move the actor.

    `noise` (2, n, batch, action_dim) is standard normal, `uniform` (n, batch, action_dim) lies in [-1, 1].
    """
    after, log_after = policy.sample(next_features, noise[0])
    now, log_now = policy.sample(features, noise[1])
    log_uniform = jnp.full(uniform.shape[:-1], -uniform.shape[-1] * jnp.log(2.0))
    actions = jnp.concatenate([uniform, after, now])
    return jax.lax.stop_gradient((actions, jnp.concatenate([log_uniform, log_after, log_now])))


def pushed_down(critic: MLP, features: Array, sampled: tuple[Array, Array]) -> Array:
    """(critics, batch): the conservative value of `proposals` at these states, which CQL, EPQ and COMBO lower."""
    actions, log_density = sampled
    return conservative_value(q_values(critic, features, actions), log_density)
