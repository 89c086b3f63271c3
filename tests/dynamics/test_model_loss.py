"""The likelihood and the beta-NLL, with their gradients, against NumPy and SciPy."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
import pytest
import scipy.stats

from pspo.dynamics.fit import beta_nll_loss, nll
from tests.dynamics.dynamics_cases import made_ensemble, member_by_hand

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 7, 3)).astype(np.float32)  # another batch for each of three members
Y = RNG.normal(size=(3, 7, 3)).astype(np.float32)

loss = jax.jit(beta_nll_loss)
gradient = jax.jit(jax.grad(beta_nll_loss))


def by_hand(models) -> tuple[np.ndarray, np.ndarray]:
    pairs = [member_by_hand(models, m, X[m]) for m in range(3)]
    return np.stack([mean for mean, _ in pairs]), np.stack([log_std for _, log_std in pairs])


def pull(models) -> float:
    """What is added to the likelihood: one hundredth of the clamp's mean width, summed over members."""
    width = np.asarray(models.log_std_high, np.float64) - np.asarray(models.log_std_low, np.float64)
    return float(0.01 * width.mean(axis=1).sum())


def test_nll_is_the_gaussian_one_without_its_constant() -> None:
    mean, log_std, target = RNG.normal(size=(3, 5, 4))
    expected = -scipy.stats.norm.logpdf(target, mean, np.exp(log_std)) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(jax.jit(nll)(mean, log_std, target), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_the_loss_weights_each_term_by_its_variance_to_the_exponent(exponent: float) -> None:
    models = made_ensemble()
    mean, log_std = by_hand(models)
    variance = np.exp(2 * log_std)
    terms = variance**exponent * (0.5 * (Y - mean) ** 2 / variance + log_std)
    expected = sum(terms[m].sum(axis=1).mean() for m in range(3)) + pull(models)
    assert float(loss(models, X, Y, exponent)) == pytest.approx(expected, rel=1e-4)


def output_gradient(exponent: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The loss's gradient with respect to the last bias (mean and raw log-std parts), and the predictions."""
    models = made_ensemble()
    last = np.asarray(gradient(models, X, Y, exponent).net.biases[-1])
    return last[:, :3], last[:, 3:], *by_hand(models)


def test_with_exponent_one_the_mean_is_fitted_as_by_least_squares() -> None:
    to_mean, _, mean, _ = output_gradient(1.0)
    np.testing.assert_allclose(to_mean, (mean - Y).mean(axis=1), rtol=1e-3, atol=1e-5)


def test_with_exponent_zero_the_mean_is_fitted_by_likelihood() -> None:
    to_mean, _, mean, log_std = output_gradient(0.0)
    np.testing.assert_allclose(to_mean, ((mean - Y) / np.exp(2 * log_std)).mean(axis=1), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_the_std_is_fitted_by_likelihood_with_constant_weights(exponent: float) -> None:
    """d/d log_std of (w nll) with w held: w (1 - z^2), then through the clamp's own slope."""
    models = made_ensemble()
    _, to_raw, mean, log_std = output_gradient(exponent)
    z = (Y - mean) / np.exp(log_std)
    inner = np.exp(2 * exponent * log_std) * (1 - z**2)
    step = 1e-4
    slope = np.stack([(clamped(models, m, step) - clamped(models, m, -step)) / (2 * step) for m in range(3)])
    np.testing.assert_allclose(to_raw, (inner * slope).mean(axis=1), rtol=2e-3, atol=1e-4)


def clamped(models, m: int, shift: float) -> np.ndarray:
    """A member's log-std when its raw output is shifted; double precision, as a small difference is taken of it."""
    bias = np.asarray(models.net.biases[-1], np.float64)
    moved = bias + np.concatenate([np.zeros(3), np.full(3, shift)])
    return member_by_hand(eqx.tree_at(lambda e: e.net.biases[-1], models, moved), m, X[m])[1]


def test_members_are_trained_on_their_own_batches_only() -> None:
    models = made_ensemble()
    other = Y.copy()
    other[1] += 1.0
    before, after = gradient(models, X, Y, 0.5), gradient(models, X, other, 0.5)
    for a, b in zip(before.net.weights, after.net.weights, strict=True):
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[2], b[2])
        assert not np.array_equal(a[1], b[1])
