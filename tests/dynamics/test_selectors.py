"""Which next state a rollout continues from: the probability of each rank, and one choice per state."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from pspo.dynamics.selectors import choose_by_rank, cvar_weights, kth_lowest, wang_weights


@pytest.mark.parametrize("count", [1, 3, 10])
def test_at_neutral_settings_all_ranks_have_the_same_probability(count: int) -> None:
    np.testing.assert_allclose(cvar_weights(count, 1.0), np.full(count, 1.0 / count), rtol=1e-12)
    np.testing.assert_allclose(wang_weights(count, 0.0), np.full(count, 1.0 / count), rtol=1e-12)


@pytest.mark.parametrize(
    ("count", "alpha", "kept"), [(10, 0.9, 9), (10, 0.7, 7), (10, 0.61, 7), (10, 0.05, 1), (10, 0.0, 1), (100, 0.07, 7)]
)
def test_cvar_keeps_the_lowest_and_rounds_their_number_up(count: int, alpha: float, kept: int) -> None:
    """0.9 of ten leaves out only the best; 0.07 * 100 is just above seven in floating point, and means seven."""
    expected = [1.0 / kept] * kept + [0.0] * (count - kept)
    np.testing.assert_allclose(cvar_weights(count, alpha), expected, rtol=1e-12)


def test_wangs_weights_are_the_steps_of_its_distortion_function() -> None:
    phi, inverse = scipy.stats.norm.cdf, scipy.stats.norm.ppf
    worst, best = [], []
    for eta in (-0.5, 0.0, 0.1, 0.5, 0.75, 2.0):
        result = wang_weights(10, eta)
        by_hand = [phi(inverse(i / 10) + eta) - phi(inverse((i - 1) / 10) + eta) for i in range(1, 11)]
        np.testing.assert_allclose(result, by_hand, rtol=1e-9)
        assert result.sum() == pytest.approx(1.0)
        worst.append(result[0])
        best.append(result[-1])
    assert np.all(np.diff(worst) > 0.0)
    assert np.all(np.diff(best) < 0.0)


CHOOSE = jax.jit(lambda key, value, weights: choose_by_rank(key, value, weights))


def test_every_state_gets_one_candidate_drawn_by_rank() -> None:
    """Values of one state are far from another's: a choice among all of them together would miss some states."""
    rng, count, states = np.random.default_rng(0), 4, 6000
    value = rng.normal(size=(count, states)) + 100.0 * np.arange(states)
    weights = np.array([0.5, 0.3, 0.2, 0.0])
    chosen = np.asarray(CHOOSE(jax.random.PRNGKey(0), jnp.asarray(value - value.mean(0)), jnp.asarray(weights)))
    assert chosen.shape == (states,)
    rank = scipy.stats.rankdata(value, axis=0)[chosen, np.arange(states)].astype(int) - 1
    shares = np.bincount(rank, minlength=count) / states
    np.testing.assert_allclose(shares, weights, atol=0.025)  # four standard errors
    assert shares[3] == 0.0


def test_all_weight_on_the_first_rank_is_the_minimum() -> None:
    value = np.random.default_rng(1).normal(size=(4, 6000))
    chosen = CHOOSE(jax.random.PRNGKey(0), jnp.asarray(value), jnp.array([1.0, 0.0, 0.0, 0.0]))
    np.testing.assert_array_equal(chosen, value.argmin(axis=0))


@pytest.mark.parametrize("k", [1, 2, 5, 10])
def test_the_kth_lowest_counts_a_model_as_often_as_it_was_drawn(k: int) -> None:
    value = np.random.default_rng(0).normal(size=(4, 60)).astype(np.float32)[[2, 0, 3, 0, 1, 0, 2, 3, 3, 1]]
    index, result = kth_lowest(jnp.asarray(value), k)
    np.testing.assert_array_equal(result, np.sort(value, axis=0)[k - 1])
    np.testing.assert_array_equal(value[np.asarray(index), np.arange(60)], result)
