"""A conditional variational autoencoder of the dataset's actions (Kingma and Welling 2014; as in BCQ and ORAAC)."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from pspo.nets.mlp import MLP, mlp

LATENT_LOG_STD_MIN, LATENT_LOG_STD_MAX = -4.0, 15.0  # the published range: std between 0.018 and 3 million
KL_WEIGHT = 0.5  # of the KL divergence relative to the reconstruction error


class VAE(eqx.Module):
    encoder: MLP  # features and action to mean and log standard deviation of the latent
    decoder: MLP  # features and latent to an action before its tanh

    @property
    def latent_dim(self) -> int:
        return self.encoder.weights[-1].shape[-1] // 2

    def encode(self, features: Array, action: Array) -> tuple[Array, Array]:
        """Mean and log standard deviation (clipped) of the latent."""
        mean, log_std = jnp.split(self.encoder(jnp.concatenate([features, action], axis=-1)), 2, axis=-1)
        return mean, jnp.clip(log_std, LATENT_LOG_STD_MIN, LATENT_LOG_STD_MAX)

    def decode(self, features: Array, latent: Array) -> Array:
        """Actions in [-1, 1]."""
        return jnp.tanh(self.decoder(jnp.concatenate([features, latent], axis=-1)))


def vae(key: Array, features: int, action_dim: int, latent_dim: int, width: int, depth: int = 2) -> VAE:
    """A new VAE; encoder and decoder have `depth` hidden layers each."""
    encoder_key, decoder_key = jax.random.split(key)
    hidden = [width] * depth
    return VAE(
        mlp(encoder_key, [features + action_dim, *hidden, 2 * latent_dim], "relu", init="torch"),
        mlp(decoder_key, [features + latent_dim, *hidden, action_dim], "relu", init="torch"),
    )


def vae_loss(net: VAE, features: Array, action: Array, noise: Array) -> Array:
    """(a^ - a)^2 + KL(N(mean, std^2) || N(0, 1)) / 2, each a mean over the batch and its columns.

    noise (batch, latent_dim) is standard normal.
    """
    mean, log_std = net.encode(features, action)
    std = jnp.exp(log_std)
    error = jnp.square(net.decode(features, mean + std * noise) - action)
    divergence = 0.5 * (jnp.square(mean) + jnp.square(std) - 1.0) - log_std
    return error.mean() + KL_WEIGHT * divergence.mean()
