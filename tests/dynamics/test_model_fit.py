"""Fitting a pool end to end, on data whose truth is known: a linear system with Gaussian noise."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dynamics_cases import NOISE, REWARD_NOISE, linear_dataset, linear_mean, made_ensemble, plain_norm, predict_by_hand

from pspo.data.normalise import fit_normaliser
from pspo.dynamics import fit as fit_module
from pspo.dynamics.ensemble import model_inputs
from pspo.dynamics.fit import ModelConfig, fit, fit_targets
from pspo.dynamics.pool import load_or_fit_pool
from pspo.dynamics.quality import model_quality

CONFIG = ModelConfig(
    pool=3, width=16, depth=1, steps=1200, batch=64, learning_rate=5e-3, evaluate_every=300, holdout=0.1
)
HASTY = ModelConfig(
    pool=2, width=32, depth=1, steps=4000, batch=64, learning_rate=2e-2, evaluate_every=50, patience=3, holdout=0.3
)


def quiet(*_: object) -> None:
    pass


@pytest.fixture(scope="module")
def fitted():
    data = linear_dataset()
    norm = fit_normaliser(data)
    models, record = fit(data, norm, CONFIG, 0, quiet)
    return data, norm, models, record


def predictions(data, norm, models):
    x = model_inputs(norm, jnp.asarray(data.obs), jnp.asarray(norm.unit_action(data.action)))
    return jax.jit(lambda m, x: m.predict(x))(models, x)


def test_targets_are_changes_and_normalised_rewards() -> None:
    data = linear_dataset(50)
    norm = fit_normaliser(data)
    target, mean, std = fit_targets(data, norm)
    np.testing.assert_allclose(target[:, :2], data.next_obs - data.obs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(target[:, 2], data.reward / float(norm.reward_scale), rtol=1e-5)
    np.testing.assert_allclose(mean, target.mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(std, target.std(axis=0), rtol=1e-4)
    still = dataclasses.replace(data, next_obs=data.obs)
    assert fit_targets(still, norm)[2][0] == 1.0  # a column that never changes


def test_every_member_recovers_the_mean_and_the_noise(fitted) -> None:
    _, norm, models, _ = fitted
    fresh = linear_dataset(1000, seed=5)
    found = predictions(fresh, norm, models)
    obs, action = fresh.obs.astype(np.float64), fresh.action.astype(np.float64)
    mean_next, mean_reward = linear_mean(obs, action)
    truth = np.column_stack([mean_next - obs, mean_reward / float(norm.reward_scale)])
    noise = np.array([*NOISE, REWARD_NOISE / float(norm.reward_scale)])
    for m in range(3):
        residual = ((found.mean[m] - truth) ** 2).mean(axis=0)
        assert np.all(1 - residual / truth.var(axis=0) > 0.9)
        np.testing.assert_allclose(np.asarray(found.std[m]).mean(axis=0), noise, rtol=0.3)


def test_the_record_tells_the_hold_out_of_the_kept_parameters(fitted) -> None:
    data, norm, models, record = fitted
    np.testing.assert_allclose(holdout_nll(data, norm, models, CONFIG, 0), record.holdout_nll, rtol=1e-3, atol=1e-3)
    steps = [step for step, _, _ in record.curve]
    assert steps == list(range(300, 300 * len(steps) + 1, 300))
    assert record.steps == steps[-1] <= CONFIG.steps


def holdout_nll(data, norm, models, config, seed) -> np.ndarray:
    """Per member, row and target, in normalised units and without the constant; from the predictions in raw units."""
    rows = data.split(config.holdout, seed)[1]
    target = fit_targets(data, norm)[0][rows].astype(np.float64)
    found = predictions(data, norm, models)
    mean, std = (np.asarray(part, np.float64)[:, rows] for part in found)
    scale = np.asarray(models.target_std, np.float64)
    return (0.5 * ((target - mean) / std) ** 2 + np.log(std / scale)).mean(axis=(1, 2))


@pytest.fixture
def compiled_once(monkeypatch):
    """Fits of the same configuration share their compiled program, and tell the bootstraps they train on."""
    real, boots = fit_module._compiled, []

    def shared(optimiser, config):
        run, score = PROGRAMS.setdefault(config, real(optimiser, config))

        def watched(trainable, fixed, opt, x, y, rows, key, count):
            boots.append(np.asarray(rows))
            return run(trainable, fixed, opt, x, y, rows, key, count)

        return watched, score

    monkeypatch.setattr(fit_module, "_compiled", shared)
    return boots


PROGRAMS: dict[ModelConfig, tuple] = {}


def test_early_stopping_keeps_the_best_and_stops(compiled_once) -> None:
    """Few rows and a high rate: the hold-out gets worse again, and the best is what is returned."""
    data = linear_dataset(100)
    norm = fit_normaliser(data)
    models, record = fit(data, norm, HASTY, 1, quiet)
    assert record.steps < HASTY.steps
    held = [value for _, _, value in record.curve]
    assert record.holdout_nll.mean() <= min(held) + 1e-6
    assert held[-1] > record.holdout_nll.mean() + 0.1  # the last parameters are clearly worse
    np.testing.assert_allclose(holdout_nll(data, norm, models, HASTY, 1), record.holdout_nll, rtol=1e-3, atol=1e-3)


def test_a_fit_is_decided_by_its_seed(compiled_once) -> None:
    data = linear_dataset(100)
    norm = fit_normaliser(data)
    first, again, other = (fit(data, norm, HASTY, seed, quiet)[0] for seed in (1, 1, 2))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first.net.weights[0], other.net.weights[0])


def test_members_have_their_own_start_and_their_own_bootstrap(compiled_once) -> None:
    data = linear_dataset(100)
    models, _ = fit(data, fit_normaliser(data), HASTY, 1, quiet)
    for leaf in models.net.weights:
        assert not np.array_equal(leaf[0], leaf[1])
    boots, train = compiled_once[0], data.split(HASTY.holdout, 1)[0]
    assert boots.shape == (2, len(train))
    assert np.isin(boots, train).all()  # never a row of the hold-out
    assert not np.array_equal(boots[0], boots[1])
    for row in boots:
        assert len(np.unique(row)) / len(train) == pytest.approx(1 - np.exp(-1), abs=0.12)


def test_the_scales_of_the_targets_are_not_trained(fitted) -> None:
    data, norm, models, _ = fitted
    _, mean, std = fit_targets(data, norm)
    np.testing.assert_array_equal(models.target_mean, mean)
    np.testing.assert_array_equal(models.target_std, std)


# Quality


def test_a_well_specified_pool_is_calibrated_and_a_distorted_one_is_not(fitted) -> None:
    data, norm, models, record = fitted
    fresh = linear_dataset(2000, seed=6)
    everything = np.arange(fresh.size)
    quality = model_quality(fresh, norm, models, everything)
    assert quality["calibration_error"] < 0.04
    assert len(quality["calibration_levels"]) == len(quality["calibration_coverage"]) == 19
    assert np.shape(quality["calibration_coverage_per_target"]) == (3, 19)
    # the full Gaussian log-likelihood per target: the record's is without its constant
    own = model_quality(data, norm, models, data.split(CONFIG.holdout, 0)[1])
    expected = -record.holdout_nll - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(own["holdout_log_likelihood"], expected, rtol=1e-3, atol=1e-3)
    # twice the spread: the middle 50 % now hold all that lies within 1.35 standard deviations, 82 %
    wide = eqx.tree_at(
        lambda m: (m.net.biases[-1], m.log_std_high),
        models,
        (models.net.biases[-1].at[:, 3:].add(np.log(2.0)), models.log_std_high + np.log(2.0)),
    )
    distorted = model_quality(fresh, norm, wide, everything)
    assert distorted["calibration_error"] > 0.1
    assert distorted["calibration_coverage"][9] > 0.7


def test_errors_ahead_grow_and_beat_no_change(fitted) -> None:
    data, norm, models, _ = fitted
    quality = model_quality(data, norm, models, np.arange(10))
    ahead, still = np.array(quality["k_step_error"]), np.array(quality["k_step_error_of_no_change"])
    assert ahead.shape == still.shape == (10,)
    assert np.all(ahead < still)
    assert ahead[0] < ahead[-1]


def test_errors_ahead_agree_with_a_loop() -> None:
    data, norm, models = linear_dataset(40), plain_norm(reach=3.0), made_ensemble(members=2, scale=0.3)
    norm = norm._replace(action_low=data.action_low, action_high=data.action_high)
    quality = model_quality(data, norm, models, np.arange(10))
    errors, still = np.zeros(10), np.zeros(10)
    for start in range(0, 40, 10):
        for m in range(2):
            obs = data.obs[start].astype(np.float64)
            for k in range(10):
                x = np.concatenate([(obs - norm.obs_mean) / norm.obs_std, data.action[start + k]])
                mean, _ = predict_by_hand(models, m, x[None])
                obs = np.clip(obs + mean[0, :2], -3.0, 3.0)
                errors[k] += (((obs - data.next_obs[start + k]) / norm.obs_std) ** 2).sum()
        for k in range(10):
            still[k] += (((data.obs[start] - data.next_obs[start + k]) / norm.obs_std) ** 2).sum()
    np.testing.assert_allclose(quality["k_step_error"], np.sqrt(errors / (4 * 2 * 2)), rtol=1e-3)
    np.testing.assert_allclose(quality["k_step_error_of_no_change"], np.sqrt(still / (4 * 2)), rtol=1e-3)


# The pool in the cache


def test_a_pool_is_fitted_once_and_found_again(tmp_path, monkeypatch, compiled_once) -> None:
    monkeypatch.setenv("PSPO_CACHE", str(tmp_path))
    data = linear_dataset(100)
    norm = fit_normaliser(data)
    looks: list[int] = []

    def progress(*_: object) -> None:
        looks.append(1)

    first, facts = load_or_fit_pool(data, norm, HASTY, 7, progress)
    fitted = len(looks)
    again, facts_again = load_or_fit_pool(data, norm, HASTY, 8, progress)  # the pool's seed is its own
    assert (facts["cached"], facts_again["cached"], len(looks)) == (False, True, fitted)
    assert fitted > 0
    assert facts["digest"] == facts_again["digest"]
    assert (first.models.size, first.holdout_nll.shape) == (2, (2,))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    monkeypatch.setattr("pspo.dynamics.pool.fit", lambda *_: (_ for _ in ()).throw(ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):  # -1: the run's own seed, so another pool
        load_or_fit_pool(data, norm, dataclasses.replace(HASTY, seed=-1), 8, progress)
