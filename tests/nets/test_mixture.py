"""Mixture policies: densities, samples and modes against SciPy, NumPy and quadrature."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.nets.bounds import LOG_STD_MAX, LOG_STD_MIN, MEAN_MAX
from pspo.nets.policies import Mixture, MixturePolicy, kl_bound, mixture_policy

seeds = st.integers(0, 2**32 - 1)


def some_mixture(seed: int, batch: int = 3, components: int = 4, dim: int = 2) -> Mixture:
    rng = np.random.default_rng(seed)
    weight = rng.dirichlet(np.ones(components), size=batch) + 0.02
    log_weight = np.log(weight / weight.sum(axis=-1, keepdims=True))
    mean = rng.normal(size=(batch, components, dim))
    log_std = rng.uniform(-1.5, 0.5, size=(batch, components, dim))
    return Mixture(*(jnp.asarray(part.astype(np.float32)) for part in (log_weight, mean, log_std)))


@partial(jax.jit, static_argnums=2)
def draw(mixture: Mixture, seed: int, count: int) -> jax.Array:
    return mixture.sample(jax.random.PRNGKey(seed), count)


def as_numpy(mixture: Mixture) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, means, standard deviations in double precision."""
    log_weight, mean, log_std = (np.asarray(part, np.float64) for part in mixture)
    return np.exp(log_weight), mean, np.exp(log_std)


log_prob = jax.jit(lambda mixture, x: mixture.log_prob(x))


@given(seeds, st.sampled_from([(1, 1), (4, 2), (3, 3)]))
@settings(max_examples=25, deadline=None)
def test_the_density_is_the_weighted_sum_of_gaussians(seed, sizes) -> None:
    components, dim = sizes
    mixture = some_mixture(seed, 3, components, dim)
    weight, mean, std = as_numpy(mixture)
    x = np.random.default_rng(seed + 1).normal(size=(7, 3, dim))
    expected = np.zeros((7, 3))
    for b in range(3):
        for k in range(components):
            gaussian = scipy.stats.multivariate_normal(mean[b, k], np.diag(std[b, k] ** 2))
            expected[:, b] += weight[b, k] * gaussian.pdf(x[:, b])
    result = log_prob(mixture, x)
    assert result.shape == (7, 3)
    np.testing.assert_allclose(result, np.log(expected), rtol=1e-4, atol=1e-4)


def test_the_density_integrates_to_one() -> None:
    mixture = some_mixture(0, batch=4, dim=1)
    x = np.linspace(-25.0, 25.0, 200_001)
    density = np.exp(np.asarray(log_prob(mixture, x[:, None, None]), np.float64))
    np.testing.assert_allclose(np.trapezoid(density, x, axis=0), 1.0, atol=1e-4)


def test_far_away_the_log_density_is_finite() -> None:
    mixture = some_mixture(1)
    far = jnp.full((3, 2), 1e6)
    assert np.isfinite(log_prob(mixture, far)).all()
    assert np.isfinite(jax.jit(jax.grad(lambda m: m.log_prob(far).sum()))(mixture).mean).all()


def test_samples_have_the_mixtures_moments_and_weights() -> None:
    mixture = some_mixture(2)
    weight, mean, std = as_numpy(mixture)
    expected_mean = (weight[..., None] * mean).sum(axis=1)
    expected_second = (weight[..., None] * (mean**2 + std**2)).sum(axis=1)
    drawn = np.asarray(draw(mixture, 0, 100_000), np.float64)
    assert drawn.shape == (100_000, 3, 2)
    np.testing.assert_allclose(drawn.mean(axis=0), expected_mean, atol=0.02)
    np.testing.assert_allclose(drawn.var(axis=0), expected_second - expected_mean**2, rtol=0.03)
    cross = (weight[:, :, None, None] * mean[:, :, :, None] * mean[:, :, None, :]).sum(axis=1)[:, 0, 1]
    covariance = cross - expected_mean[:, 0] * expected_mean[:, 1]
    centred = drawn - drawn.mean(axis=0)
    np.testing.assert_allclose((centred[..., 0] * centred[..., 1]).mean(axis=0), covariance, atol=0.02)


def test_samples_and_density_belong_together() -> None:
    """The quantiles of one-dimensional samples against the distribution function of the density."""
    mixture = some_mixture(3, batch=1, dim=1)
    weight, mean, std = as_numpy(mixture)
    drawn = np.asarray(draw(mixture, 1, 20_000))[:, 0, 0]

    def distribution_function(x):
        return sum(
            w * scipy.stats.norm.cdf(x, m, s) for w, m, s in zip(weight[0], mean[0, :, 0], std[0, :, 0], strict=True)
        )

    assert scipy.stats.kstest(drawn, distribution_function).pvalue > 1e-3


def test_the_mode_is_the_mean_of_the_heaviest_component() -> None:
    mixture = some_mixture(4, batch=6)
    weight, mean, _ = as_numpy(mixture)
    expected = np.stack([mean[b, weight[b].argmax()] for b in range(6)])
    np.testing.assert_allclose(mixture.mode(), expected, rtol=1e-6)
    assert len(set(weight.argmax(axis=1))) > 1


# Networks


def features(rows: int, scale: float = 1.0) -> np.ndarray:
    return scale * np.random.default_rng(0).normal(size=(rows, 3)).astype(np.float32)


POLICY = mixture_policy(jax.random.PRNGKey(0), 3, 2, 8, 1, 4)  # 4 components over 2 actions
apply = jax.jit(lambda policy, x: policy(x))


def test_a_policy_gives_proper_mixtures_inside_their_ranges() -> None:
    wild = jax.tree.map(lambda leaf: leaf * 50.0, POLICY)
    for network in (POLICY, wild):
        mixture = apply(network, features(40, 10.0))
        assert mixture.mean.shape == mixture.log_std.shape == (40, 4, 2)
        np.testing.assert_allclose(np.exp(mixture.log_weight).sum(axis=-1), 1.0, rtol=1e-5)
        assert np.abs(mixture.mean).max() <= MEAN_MAX
        assert np.asarray(mixture.log_std).min() >= LOG_STD_MIN - 1e-6
        assert np.asarray(mixture.log_std).max() <= LOG_STD_MAX + 1e-6


def test_the_outputs_of_the_network_are_read_in_order() -> None:
    """Logits, then means component by component, then log-stds: against the formulas, on the raw outputs."""
    x = features(6)
    out = np.asarray(jax.jit(lambda net, x: net(x))(POLICY.net, x), np.float64)
    logits, means, log_stds = out[:, :4], out[:, 4:12].reshape(6, 4, 2), out[:, 12:].reshape(6, 4, 2)
    mixture = apply(POLICY, x)
    weight = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(np.exp(mixture.log_weight), weight, rtol=1e-5)
    np.testing.assert_allclose(mixture.mean, 3 * np.tanh(means / 3), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(mixture.log_std, -2 + 3 * np.tanh(log_stds / 3), rtol=1e-4, atol=1e-5)


def test_a_new_policy_covers_the_action_range() -> None:
    mixture = apply(POLICY, features(50))
    means = np.asarray(mixture.mean).mean(axis=0)  # (4, 2)
    assert np.all(np.diff(means, axis=0) > 0.3)
    assert means.min() < -0.7
    assert means.max() > 0.7
    assert np.asarray(mixture.log_std).mean() == pytest.approx(-1.0, abs=0.15)


def test_a_policy_is_a_tree_of_its_weights_only() -> None:
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(POLICY))
    assert isinstance(jax.tree.map(lambda leaf: leaf, POLICY), MixturePolicy)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_the_kl_bound_is_exact_for_gaussians_and_above_it_for_mixtures(seed) -> None:
    p, q = (some_mixture(seed + i, batch=1, components=1, dim=1) for i in range(2))
    (_, mean_p, std_p), (_, mean_q, std_q) = as_numpy(p), as_numpy(q)
    grid = np.linspace(-12.0, 12.0, 20_001)

    def divergence(p_density, q_density):
        return np.trapezoid(p_density * np.log(p_density / q_density), grid)

    exact = divergence(
        *(scipy.stats.norm.pdf(grid, m.item(), s.item()) + 1e-300 for m, s in ((mean_p, std_p), (mean_q, std_q)))
    )
    assert float(kl_bound(p, q)[0]) == pytest.approx(exact, rel=1e-3, abs=1e-4)
    p, q = (some_mixture(seed + i, batch=1, components=3, dim=1) for i in range(2))
    densities = [
        np.exp(np.asarray(mixture.log_prob(jnp.asarray(grid, jnp.float32)[:, None]), np.float64)) + 1e-300
        for mixture in (p, q)
    ]
    assert float(kl_bound(p, q)[0]) >= divergence(*densities) - 1e-3
    assert float(kl_bound(p, p)[0]) == pytest.approx(0.0, abs=1e-5)
