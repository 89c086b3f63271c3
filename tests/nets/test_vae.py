"""The VAE of the dataset's actions against its formulas, computed in double precision."""

from __future__ import annotations

from itertools import pairwise

import jax
import numpy as np
import pytest
from scipy import stats

from pspo.nets.mlp import MLP
from pspo.nets.vae import VAE, vae, vae_loss
from tests.algorithms.baseline_cases import joined, made_mlp, net_by_hand
from tests.arrays import f32

FEATURES, ACT, LATENT, BATCH = 3, 2, 4, 5


RNG = np.random.default_rng(0)
NET = VAE(made_mlp(RNG, [FEATURES + ACT, 6, 6, 2 * LATENT]), made_mlp(RNG, [FEATURES + LATENT, 6, 6, ACT]))
S, A = RNG.normal(size=(BATCH, FEATURES)), RNG.uniform(-1, 1, size=(BATCH, ACT))
NOISE = RNG.normal(size=(BATCH, LATENT))


@jax.jit
def loss_and_gradient(net: VAE, noise: jax.Array) -> tuple[jax.Array, VAE]:
    return jax.value_and_grad(vae_loss)(net, f32(S), f32(A), noise)


def divergence_by_hand(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """KL(N(mean, std^2) || N(0, 1)) as the expectation it is: five Gauss-Hermite nodes are exact for a quadratic."""
    node, weight = np.polynomial.hermite_e.hermegauss(5)
    x = mean[..., None] + std[..., None] * node
    ratio = stats.norm.logpdf(x, mean[..., None], std[..., None]) - stats.norm.logpdf(x)
    return (ratio * weight / weight.sum()).sum(-1)


def loss_by_hand(net: VAE, noise: np.ndarray) -> float:
    mean, log_std = np.split(net_by_hand(net.encoder, joined(S, A)), 2, axis=-1)
    std = np.exp(np.clip(log_std, -4.0, 15.0))
    error = (np.tanh(net_by_hand(net.decoder, joined(S, mean + std * noise))) - A) ** 2
    return error.sum() / (BATCH * ACT) + 0.5 * divergence_by_hand(mean, std).sum() / (BATCH * LATENT)


def test_the_loss_is_reconstruction_plus_half_the_divergence() -> None:
    loss, _ = loss_and_gradient(NET, f32(NOISE))
    np.testing.assert_allclose(loss, loss_by_hand(NET, NOISE), rtol=1e-5)


@pytest.mark.parametrize("push", [-60.0, 60.0])
def test_log_stds_are_clipped_and_the_loss_stays_finite(push: float) -> None:
    encoder = NET.encoder
    pushed = encoder.biases[-1] + push * f32(np.arange(2 * LATENT) >= LATENT)
    net = VAE(MLP(encoder.weights, [*encoder.biases[:-1], pushed], "relu"), NET.decoder)
    _, log_std = net.encode(f32(S), f32(A))
    assert np.all(np.asarray(log_std) == (-4.0 if push < 0 else 15.0))
    loss, grads = loss_and_gradient(net, f32(NOISE))
    np.testing.assert_allclose(loss, loss_by_hand(net, NOISE), rtol=1e-5)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(grads))


def test_the_gradient_reaches_encoder_and_decoder_through_the_sampled_latent() -> None:
    _, grads = loss_and_gradient(NET, f32(NOISE))
    for leaf in jax.tree.leaves(grads):
        assert np.abs(leaf).max() > 0.0
    step = 1e-5  # against a difference of the loss by hand, in the bias of the first latent's mean
    ends = []
    for sign in (1.0, -1.0):
        moved = np.asarray(NET.encoder.biases[-1], np.float64)
        moved[0] += sign * step
        encoder = MLP(NET.encoder.weights, [*NET.encoder.biases[:-1], moved], "relu")
        ends.append(loss_by_hand(VAE(encoder, NET.decoder), NOISE))
    np.testing.assert_allclose(grads.encoder.biases[-1][0], (ends[0] - ends[1]) / (2 * step), rtol=1e-3)


def test_a_decoded_action_is_the_tanh_of_the_decoder() -> None:
    result = NET.decode(f32(S), f32(NOISE))
    np.testing.assert_allclose(result, np.tanh(net_by_hand(NET.decoder, joined(S, NOISE))), atol=1e-6)


def test_a_new_vae_has_the_given_shape_and_pytorchs_weights() -> None:
    net = jax.jit(lambda key: vae(key, FEATURES, ACT, LATENT, width=7, depth=3))(jax.random.PRNGKey(0))
    sizes = {"encoder": [FEATURES + ACT, 7, 7, 7, 2 * LATENT], "decoder": [FEATURES + LATENT, 7, 7, 7, ACT]}
    assert net.latent_dim == LATENT
    for name, expected in sizes.items():
        part: MLP = getattr(net, name)
        assert [w.shape for w in part.weights] == list(pairwise(expected))
        assert part.activation == "relu"
        for w, b in zip(part.weights, part.biases, strict=True):
            assert 0.5 * w.shape[0] ** -0.5 < np.abs(w).max() <= w.shape[0] ** -0.5
            assert np.abs(b).max() <= w.shape[0] ** -0.5
    assert not np.array_equal(net.encoder.weights[1], net.decoder.weights[1])
