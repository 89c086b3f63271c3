"""Terminals without a logged next state: their reward and their end are learned, the placeholder never is."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.data import Dataset
from pspo.data.normalise import fit_normaliser
from pspo.dynamics import termination
from pspo.dynamics.fit import ModelConfig, Targets, beta_nll_loss, fit, fit_targets, mean_nll, target_counts
from pspo.dynamics.quality import LEVELS, holdout_nll, model_quality
from pspo.dynamics.termination import fit_classifier, make_termination
from tests.dynamics.dynamics_cases import linear_dataset, made_ensemble, member_by_hand, predict_by_hand


def log_with_gaps(rows: int = 200, **changes) -> Dataset:
    """Episodes of ten rows; every other one ends in a terminal without a next state."""
    data = linear_dataset(rows)
    terminal = np.arange(rows) % 20 == 19
    fields = {"terminal": terminal, "timeout": data.timeout & ~terminal, "next_known": ~terminal}
    return dataclasses.replace(data, **(fields | changes))


def quiet(*_: object) -> None:
    pass


# Scales


def test_the_normaliser_does_not_count_placeholders() -> None:
    data = log_with_gaps()
    norm = fit_normaliser(data)
    seen = np.concatenate([data.obs, data.next_obs[data.next_known]]).astype(np.float64)
    np.testing.assert_allclose(norm.obs_mean, seen.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(norm.obs_std, seen.std(axis=0), rtol=1e-5)
    assert not np.allclose(norm.obs_mean, np.concatenate([data.obs, data.next_obs]).mean(axis=0), rtol=1e-5)


def test_scales_of_changes_ignore_placeholders_and_of_rewards_do_not() -> None:
    data = log_with_gaps()
    norm = fit_normaliser(data)
    target, mean, std = fit_targets(data, norm)
    known = target[data.next_known].astype(np.float64)
    np.testing.assert_allclose(mean[:2], known[:, :2].mean(axis=0), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(std[:2], known[:, :2].std(axis=0), rtol=1e-5)
    np.testing.assert_allclose((mean[2], std[2]), (target[:, 2].mean(), target[:, 2].std()), rtol=1e-5)


def test_without_any_next_state_the_scales_are_plain() -> None:
    data = log_with_gaps(terminal=np.ones(200), timeout=np.zeros(200), next_known=np.zeros(200))
    _, mean, std = fit_targets(data, fit_normaliser(data))
    assert mean[:2].tolist() == [0, 0]
    assert std[:2].tolist() == [1, 1]


def test_all_targets_count_but_the_changes_of_unknown_next_states() -> None:
    data = log_with_gaps(40)
    counts = target_counts(data)
    assert counts is not None
    np.testing.assert_array_equal(counts[:, 0], data.next_known)
    np.testing.assert_array_equal(counts[:, 1], data.next_known)
    assert counts[:, 2].all()
    assert target_counts(linear_dataset(40)) is None


# Likelihoods

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(2, 3, 7, 3)).astype(np.float32)
COUNTS = RNG.random((3, 7, 3)) < 0.7


@pytest.mark.parametrize("exponent", [0.0, 0.5])
def test_the_loss_gives_placeholders_weight_zero(exponent: float) -> None:
    models = made_ensemble()
    expected = 0.0
    for m in range(3):
        mean, log_std = member_by_hand(models, m, X[m])
        terms = np.exp(2 * exponent * log_std) * (0.5 * ((Y[m] - mean) / np.exp(log_std)) ** 2 + log_std)
        expected += (terms * COUNTS[m]).sum() / 7
        expected += 0.01 * float((models.log_std_high[m] - models.log_std_low[m]).mean())
    assert float(beta_nll_loss(models, X, Y, exponent, COUNTS)) == pytest.approx(expected, rel=1e-4)


def test_placeholders_have_no_gradient() -> None:
    models = made_ensemble()
    other = np.where(COUNTS, Y, 50.0).astype(np.float32)
    slope = jax.jit(jax.grad(beta_nll_loss))
    one, two = slope(models, X, Y, 0.5, COUNTS), slope(models, X, other, 0.5, COUNTS)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_mean_likelihood_ignores_placeholders() -> None:
    mean, log_std, target = RNG.normal(size=(3, 2, 5, 3)).astype(np.float32)
    counts = RNG.random((5, 3)) < 0.6
    each = 0.5 * ((target[0] - mean) / np.exp(log_std)) ** 2 + log_std
    result = mean_nll(mean, log_std, Targets(target[0], counts))
    np.testing.assert_allclose(result, [each[m][counts].mean() for m in range(2)], rtol=1e-5)


def test_with_everything_known_nothing_is_added_to_the_program() -> None:
    """The same operations, and so bit for bit the same result, as without unknown next states."""
    models = made_ensemble()
    plain = jax.make_jaxpr(lambda m: beta_nll_loss(m, X, Y, 0.5))(models)
    assert str(plain) == str(jax.make_jaxpr(lambda m: beta_nll_loss(m, X, Y, 0.5, None))(models))
    assert len(str(plain)) < len(str(jax.make_jaxpr(lambda m: beta_nll_loss(m, X, Y, 0.5, COUNTS))(models)))


# A whole fit

CONFIG = ModelConfig(pool=2, width=8, depth=1, steps=60, batch=32, evaluate_every=30, holdout=0.2)


def test_a_fit_learns_nothing_from_placeholders_and_learns_their_rewards() -> None:
    data = log_with_gaps()
    norm = fit_normaliser(data)
    models, record = fit(data, norm, CONFIG, 0, quiet)
    result = holdout_nll(data, norm, models, data.split(CONFIG.holdout, 0)[1])
    np.testing.assert_allclose(record.holdout_nll, result, rtol=1e-4)

    invented = data.next_obs.copy()
    invented[~data.next_known] = 77.0
    object.__setattr__(data, "next_obs", invented)  # as if the placeholder were not cleaned away
    same = fit(data, norm, CONFIG, 0, quiet)[0]
    for a, b in zip(jax.tree.leaves(models), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(a, b)
    changed = dataclasses.replace(data, reward=np.where(data.next_known, data.reward, data.reward + 3.0))
    other = fit(changed, norm, CONFIG, 0, quiet)[0]
    assert not np.array_equal(models.net.weights[0], other.net.weights[0])


def test_quality_is_measured_on_logged_targets_only() -> None:
    data = log_with_gaps(120)
    norm, models = fit_normaliser(data), made_ensemble(members=2, scale=0.3)
    rows = np.arange(120)
    quality = model_quality(data, norm, models, rows)
    raw = fit_targets(data, norm)[0]
    x = np.concatenate([(data.obs - norm.obs_mean) / norm.obs_std, data.action], axis=1)
    counts = np.column_stack([data.next_known, data.next_known, np.ones(120, bool)])
    inside, likelihood = [], []
    for m in range(2):
        mean, std = predict_by_hand(models, m, x)
        z = (raw - mean) / std
        inside.append(np.abs(z) <= 0.6744898)  # the middle half of a Gaussian
        likelihood.append((-0.5 * z**2 - np.log(std / np.asarray(models.target_std)))[counts].mean())
    half = list(LEVELS.round(3)).index(0.5)
    assert quality["calibration_coverage"][half] == pytest.approx(np.mean([i[counts] for i in inside]))
    for d in range(3):
        expected = np.mean([i[counts[:, d], d] for i in inside])
        assert quality["calibration_coverage_per_target"][d][half] == pytest.approx(expected)
    np.testing.assert_allclose(
        quality["holdout_log_likelihood"], np.array(likelihood) - 0.5 * np.log(2 * np.pi), atol=1e-4
    )


def test_k_step_errors_ignore_unknown_steps() -> None:
    """Every episode has ten transitions; if none has ten known next states, errors are up to nine steps ahead."""
    every_end = np.arange(200) % 10 == 9
    data = log_with_gaps(terminal=every_end, timeout=np.zeros(200), next_known=~every_end)
    norm, models = fit_normaliser(data), made_ensemble(members=2, scale=0.3)
    assert len(model_quality(data, norm, models, np.arange(10))["k_step_error"]) == 9
    some = log_with_gaps()
    invented = some.next_obs.copy()
    invented[~some.next_known] = 77.0
    honest = model_quality(some, norm, models, np.arange(10))["k_step_error"]
    object.__setattr__(some, "next_obs", invented)
    assert len(honest) == 10  # measured on the episodes that time-outs cut
    assert model_quality(some, norm, models, np.arange(10))["k_step_error"] == honest


def test_the_quality_for_single_decisions_is_that_of_rewards() -> None:
    data = log_with_gaps(terminal=np.ones(200), timeout=np.zeros(200), next_known=np.zeros(200))
    quality = model_quality(data, fit_normaliser(data), made_ensemble(members=2), np.arange(50))
    assert quality["k_step_error"] == []
    assert len(quality["calibration_coverage_per_target"]) == 1
    assert np.isfinite(quality["holdout_log_likelihood"]).all()


# The end of rollouts


def test_a_classifier_cannot_read_the_end_from_the_placeholder(monkeypatch) -> None:
    """Ends depend on the state alone here. A classifier that saw next_obs == obs would never end a rollout."""
    monkeypatch.setattr(termination, "CLASSIFIER_STEPS", 400)
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(2000, 2))
    terminal = obs[:, 0] > 1.0
    next_obs = obs + rng.normal(size=(2000, 2))
    data = Dataset(
        obs=obs,
        action=rng.uniform(-1, 1, size=(2000, 1)),
        reward=rng.normal(size=2000),
        next_obs=next_obs,
        terminal=terminal,
        timeout=~terminal,
        action_low=np.array([-1.0]),
        action_high=np.array([1.0]),
        next_known=~terminal,
    )
    norm = fit_normaliser(data)
    ends, metadata = fit_classifier(data, norm, width=16, seed=0)
    assert metadata["termination_holdout_error"] < 0.05
    reached = jnp.asarray(rng.normal(size=(4, 3, 2000, 2)), jnp.float32)
    predicted = np.asarray(jax.jit(lambda *rows: ends(norm, *rows))(data.obs, norm.unit_action(data.action), reached))
    assert predicted.shape == (4, 3, 2000)
    assert (predicted != terminal).mean() < 0.05
    assert (predicted == predicted[0, 0]).all()  # for any next state


def test_with_known_next_states_the_classifier_uses_them(monkeypatch) -> None:
    monkeypatch.setattr(termination, "CLASSIFIER_STEPS", 2)
    data = log_with_gaps(next_known=np.ones(200))
    ends, _ = make_termination("learned", data, None, fit_normaliser(data), 8, 0)
    assert ends.sees_next  # pyright: ignore[reportAttributeAccessIssue]
