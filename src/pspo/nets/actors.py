"""Policy networks: features in, actions in [-1, 1] out. Their NumPy versions are in pspo.policies.heads.

Each consists of networks, arrays and numbers only, so that any of them can be saved to a policy file; `kind` is its
name there.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from pspo.data.normalise import Normaliser
from pspo.nets.bounds import FREE_LOG_STD_MAX, FREE_LOG_STD_MIN, LATENT_MAX
from pspo.nets.categorical import CategoricalPolicy
from pspo.nets.mlp import MLP
from pspo.nets.policies import LOG_SQRT_2PI, MixturePolicy

LOG_2 = 0.6931471805599453
PRE_TANH_MAX = 9.0  # of the mean where the density of an action is computed: beyond it float32's tanh is one
ACTION_MAX = 1.0 - 1e-6  # actions are clipped to this before the inverse tanh, which is infinite at one


class TanhGaussian(eqx.Module):
    """A Gaussian before the tanh; the network gives mean and log standard deviation (clipped, or softly clamped)."""

    kind: ClassVar[str] = "tanh-gaussian"
    net: MLP
    log_std_min: float = eqx.field(static=True, default=-5.0)
    log_std_max: float = eqx.field(static=True, default=2.0)
    soft: bool = eqx.field(static=True, default=False)  # gradients then never vanish at the bounds

    def moments(self, features: Array) -> tuple[Array, Array]:
        mean, log_std = jnp.split(self.net(features), 2, axis=-1)
        if self.soft:
            log_std = self.log_std_max - jax.nn.softplus(self.log_std_max - log_std)
            return mean, self.log_std_min + jax.nn.softplus(log_std - self.log_std_min)
        return mean, jnp.clip(log_std, self.log_std_min, self.log_std_max)

    def sample(self, features: Array, noise: Array) -> tuple[Array, Array]:
        """Reparameterised actions tanh(u) and their log densities; noise may have more leading axes.

        log(1 - tanh(u)^2) is written 2 (log 2 - u - softplus(-2 u)), which does not overflow where tanh saturates.
        """
        mean, log_std = self.moments(features)
        u = mean + jnp.exp(log_std) * noise
        gaussian = -0.5 * jnp.square(noise) - log_std - LOG_SQRT_2PI
        return jnp.tanh(u), (gaussian - _log_slope(u)).sum(-1)

    def log_prob(self, features: Array, action: Array) -> Array:
        """Log density of given actions; actions at the bounds are moved just inside."""
        mean, log_std = self.moments(features)
        u = jnp.arctanh(jnp.clip(action, -ACTION_MAX, ACTION_MAX))
        z = (u - jnp.clip(mean, -PRE_TANH_MAX, PRE_TANH_MAX)) * jnp.exp(-log_std)
        return (-0.5 * jnp.square(z) - log_std - LOG_SQRT_2PI - _log_slope(u)).sum(-1)

    def unit_action(self, features: Array, key: Array | None = None) -> Array:
        mean, log_std = self.moments(features)
        return jnp.tanh(mean if key is None else mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape))


def _log_slope(u: Array) -> Array:
    """log of the derivative of tanh at u."""
    return 2.0 * (LOG_2 - u - jax.nn.softplus(-2.0 * u))


class ClippedGaussian(eqx.Module):
    """A Gaussian with mean tanh(net(s)) and one standard deviation for all states; clipped when it acts."""

    kind: ClassVar[str] = "clipped-gaussian"
    net: MLP
    log_std: Array  # (action_dim,), clipped where it is used

    @property
    def clipped_log_std(self) -> Array:
        return jnp.clip(self.log_std, FREE_LOG_STD_MIN, FREE_LOG_STD_MAX)

    def log_prob(self, features: Array, action: Array) -> Array:
        """Log density of the whole action, summed over its columns."""
        z = (action - jnp.tanh(self.net(features))) * jnp.exp(-self.clipped_log_std)
        return (-0.5 * jnp.square(z) - self.clipped_log_std - LOG_SQRT_2PI).sum(-1)

    def unit_action(self, features: Array, key: Array | None = None) -> Array:
        mean = jnp.tanh(self.net(features))
        if key is None:
            return mean
        return jnp.clip(mean + jnp.exp(self.clipped_log_std) * jax.random.normal(key, mean.shape), -1.0, 1.0)


class LinearGaussian(eqx.Module):
    """A Gaussian with mean net(s) and one standard deviation for all states; clipped when it acts.

    `log_prob` is the density before the clip.
    """

    kind: ClassVar[str] = "linear-gaussian"
    net: MLP
    log_std: Array  # (action_dim,)

    def moments(self, features: Array) -> tuple[Array, Array]:
        return self.net(features), self.log_std

    def draw(self, features: Array, key: Array) -> Array:
        """Actions before the clip."""
        mean = self.net(features)
        return mean + jnp.exp(self.log_std) * jax.random.normal(key, mean.shape)

    def log_prob(self, features: Array, drawn: Array) -> Array:
        z = (drawn - self.net(features)) * jnp.exp(-self.log_std)
        return (-0.5 * jnp.square(z) - self.log_std - LOG_SQRT_2PI).sum(-1)

    def unit_action(self, features: Array, key: Array | None = None) -> Array:
        return jnp.clip(self.net(features) if key is None else self.draw(features, key), -1.0, 1.0)


class Deterministic(eqx.Module):
    """One action per state."""

    kind: ClassVar[str] = "deterministic"
    net: MLP

    def __call__(self, features: Array) -> Array:
        return jnp.tanh(self.net(features))

    def unit_action(self, features: Array, key: Array | None = None) -> Array:
        return self(features)


class Perturbed(eqx.Module):
    """An action decoded by a VAE of the dataset, perturbed by at most `reach` in each column."""

    kind: ClassVar[str] = "perturbed"
    decoder: MLP  # of a VAE: features and latent to an action before its tanh
    net: MLP  # features and decoded action to the perturbation before its tanh
    latent_dim: int = eqx.field(static=True)
    reach: float = eqx.field(static=True)

    def perturb(self, features: Array, decoded: Array) -> Array:
        """clip(b + reach tanh(f(s, b)), -1, 1)."""
        change = jnp.tanh(self.net(jnp.concatenate([features, decoded], axis=-1)))
        return jnp.clip(decoded + self.reach * change, -1.0, 1.0)

    def unit_action(self, features: Array, key: Array | None = None) -> Array:
        shape = (*features.shape[:-1], self.latent_dim)
        z = jnp.zeros(shape) if key is None else jnp.clip(jax.random.normal(key, shape), -LATENT_MAX, LATENT_MAX)
        return self.perturb(features, jnp.tanh(self.decoder(jnp.concatenate([features, z], axis=-1))))


NETWORKS: dict[str, Any] = {
    cls.kind: cls
    for cls in (
        *(MixturePolicy, TanhGaussian, ClippedGaussian, LinearGaussian, Deterministic, Perturbed),
        CategoricalPolicy,
    )
}


def act(policy: Any, norm: Normaliser, obs: Array, key: Array | None = None) -> Array:
    """Raw observation to raw action, without noise if there is no key."""
    return norm.from_unit(policy.unit_action(norm.encode(obs), key))
