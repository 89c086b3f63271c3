"""Mixture policies: Gaussian mixtures over pre-squash actions.

All densities are densities before the tanh. Ratios and divergences between two policies are the
same as after it, and no Jacobian can overflow at the bounds.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from pspo.data.normalise import squash
from pspo.nets.bounds import LOG_STD_MAX, LOG_STD_MIN, MEAN_MAX
from pspo.nets.mlp import MLP, mlp

LOG_SQRT_2PI = 0.9189385332046727


class Mixture(NamedTuple):
    """A batch of Gaussian mixtures: log_weight (..., K), mean and log_std (..., K, action_dim)."""

    log_weight: Array
    mean: Array
    log_std: Array

    def log_prob(self, x: Array) -> Array:
        """Log density of x (..., action_dim), any leading shape that broadcasts with the batch."""
        z = (x[..., None, :] - self.mean) * jnp.exp(-self.log_std)
        each = -0.5 * jnp.square(z) - self.log_std - LOG_SQRT_2PI
        return jax.nn.logsumexp(self.log_weight + each.sum(-1), axis=-1)

    def sample(self, key: Array, count: int) -> Array:
        """(count, ..., action_dim) independent draws."""
        which, noise = jax.random.split(key)
        k = jax.random.categorical(which, self.log_weight, shape=(count, *self.log_weight.shape[:-1]))
        # A gather, not a product with one-hot vectors and a sum: XLA for CPUs fuses two of those into a program that
        # reads the wrong memory for batches of a few thousand.
        mean, log_std = (
            jnp.take_along_axis(jnp.broadcast_to(part, (*k.shape, *part.shape[-2:])), k[..., None, None], axis=-2)
            for part in (self.mean, self.log_std)
        )
        return (mean + jnp.exp(log_std) * jax.random.normal(noise, mean.shape))[..., 0, :]

    def mode(self) -> Array:
        """Mean of the heaviest component: the action a deployed policy takes."""
        k = jnp.argmax(self.log_weight, axis=-1)[..., None, None]
        return jnp.take_along_axis(self.mean, k, axis=-2)[..., 0, :]


def kl_bound(p: Mixture, q: Mixture) -> Array:
    """An upper bound of KL(p||q) that pairs the components in order; exact where each has one.

    By convexity, KL of two mixtures is at most sum_k w_k (log w_k/v_k + KL of their k-th Gaussians).
    """
    ratio = jnp.exp(p.log_std - q.log_std)
    shift = (p.mean - q.mean) * jnp.exp(-q.log_std)
    each = (0.5 * (jnp.square(ratio) + jnp.square(shift) - 1.0) - jnp.log(ratio)).sum(-1)
    return (jnp.exp(p.log_weight) * (p.log_weight - q.log_weight + each)).sum(-1)


class MixturePolicy(eqx.Module):
    kind: ClassVar[str] = "mixture"
    net: MLP
    components: int = eqx.field(static=True)
    action_dim: int = eqx.field(static=True)

    def __call__(self, features: Array) -> Mixture:
        k, d = self.components, self.action_dim
        out = self.net(features)
        shape = (*out.shape[:-1], k, d)
        mean = MEAN_MAX * jnp.tanh(out[..., k : k + k * d].reshape(shape) / MEAN_MAX)
        span = 0.5 * (LOG_STD_MAX - LOG_STD_MIN)
        log_std = LOG_STD_MIN + span * (1.0 + jnp.tanh(out[..., k + k * d :].reshape(shape) / span))
        return Mixture(jax.nn.log_softmax(out[..., :k]), mean, log_std)

    def unit_action(self, features: Array, key: Array | None = None) -> Array:
        """An action in [-1, 1], without noise if there is no key."""
        mixture = self(features)
        return squash(mixture.mode() if key is None else mixture.sample(key, 1)[0])


def mixture_policy(
    key: Array, features: int, action_dim: int, width: int, depth: int, components: int
) -> MixturePolicy:
    """A new policy whose components start at different actions, so that each can find another mode."""
    net = mlp(key, [features] + [width] * depth + [components * (1 + 2 * action_dim)], last_scale=0.1)
    starts = jnp.linspace(-1.0, 1.0, components) if components > 1 else jnp.zeros(1)
    bias = net.biases[-1].at[components : components * (1 + action_dim)].set(jnp.repeat(starts, action_dim))
    # log-std starts near -1 (the tanh above is nearly linear around -2)
    bias = bias.at[components * (1 + action_dim) :].set(1.0)
    return MixturePolicy(eqx.tree_at(lambda n: n.biases[-1], net, bias), components, action_dim)
