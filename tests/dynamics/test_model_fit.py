"""Fitting a pool end to end, on data whose truth is known: a linear system with Gaussian noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.data import Dataset
from pspo.data.normalise import Normaliser, fit_normaliser
from pspo.dynamics import fit as fit_module
from pspo.dynamics.ensemble import Ensemble, model_inputs
from pspo.dynamics.fit import FitRecord, ModelConfig, bootstraps, fit, fit_targets
from pspo.dynamics.pool import load_or_fit_pool
from pspo.dynamics.quality import model_quality
from tests.dynamics.dynamics_cases import (
    NOISE,
    REWARD_NOISE,
    linear_dataset,
    linear_mean,
    made_ensemble,
    plain_norm,
    predict_by_hand,
)

CONFIG = ModelConfig(pool=3, width=16, depth=1, steps=1200, batch=64, lr=5e-3, evaluate_every=300, holdout=0.1)
HASTY = ModelConfig(
    pool=2, width=32, depth=1, steps=4000, batch=64, lr=2e-2, evaluate_every=50, patience=3, holdout=0.3
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


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_bootstraps_draw_the_given_share_of_early_transitions(share: float) -> None:
    data = linear_dataset(4000)
    timeout = np.arange(data.size) % 20 == 19
    data = dataclasses.replace(data, timeout=timeout, terminal=np.zeros(data.size, bool))
    train = np.arange(data.size)[100:]
    drawn = bootstraps(data, dataclasses.replace(CONFIG, pool=5, early_fraction=share), train, 0)
    assert drawn.shape == (5, len(train))
    assert drawn.min() >= 100
    assert not np.array_equal(drawn[0], drawn[1])
    weight = 1.0 / np.arange(1, 21)
    expected = share * weight / weight.sum() + (1 - share) / 20
    result = np.bincount(drawn.ravel() % 20, minlength=20) / drawn.size
    np.testing.assert_allclose(result, expected, atol=5 * np.sqrt(0.3 * 0.7 / drawn.size))


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
    others = linear_dataset(1000, seed=5)
    result = predictions(others, norm, models)
    obs, action = others.obs.astype(np.float64), others.action.astype(np.float64)
    mean_next, mean_reward = linear_mean(obs, action)
    truth = np.column_stack([mean_next - obs, mean_reward / float(norm.reward_scale)])
    noise = np.array([*NOISE, REWARD_NOISE / float(norm.reward_scale)])
    for m in range(3):
        residual = ((result.mean[m] - truth) ** 2).mean(axis=0)
        assert np.all(1 - residual / truth.var(axis=0) > 0.9)
        np.testing.assert_allclose(np.asarray(result.std[m]).mean(axis=0), noise, rtol=0.3)


def test_the_record_has_the_hold_out_nll_of_the_best_parameters(fitted) -> None:
    data, norm, models, record = fitted
    np.testing.assert_allclose(holdout_nll(data, norm, models, CONFIG, 0), record.holdout_nll, rtol=1e-3, atol=1e-3)
    steps = [step for step, _, _ in record.curve]
    assert steps == list(range(300, 300 * len(steps) + 1, 300))
    assert record.steps == steps[-1] <= CONFIG.steps


def holdout_nll(data, norm, models, config, seed) -> np.ndarray:
    """Per member, row and target, in normalised units and without the constant; from the predictions in raw units."""
    rows = data.split(config.holdout, seed)[1]
    target = fit_targets(data, norm)[0][rows].astype(np.float64)
    result = predictions(data, norm, models)
    mean, std = (np.asarray(part, np.float64)[:, rows] for part in result)
    scale = np.asarray(models.target_std, np.float64)
    return (0.5 * ((target - mean) / std) ** 2 + np.log(std / scale)).mean(axis=(1, 2))


# A hasty fit: few rows and a high rate, so that the hold-out soon gets worse again


class Hasty(NamedTuple):
    data: Dataset
    norm: Normaliser
    models: Ensemble
    record: FitRecord
    boots: np.ndarray  # the bootstrap of each member
    traces: int  # how often the training step was compiled


@pytest.fixture(scope="module")
def hasty() -> Iterator[Hasty]:
    """Further fits of the same configuration share the compiled program as long as this lives."""
    data = linear_dataset(100)
    norm = fit_normaliser(data)
    make, loss, programs, seen, traces = fit_module.compile_fit, fit_module.beta_nll_loss, {}, [], []

    def shared(optimiser, config):
        run, score = programs.setdefault(config, make(optimiser, config))

        def watched(trainable, fixed, opt, *, boots, **arguments):
            seen.append(np.asarray(boots))
            return run(trainable, fixed, opt=opt, boots=boots, **arguments)

        return watched, score

    def counted(*arguments):
        traces.append(1)
        return loss(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit_module, "compile_fit", shared)
        patch.setattr(fit_module, "beta_nll_loss", counted)
        models, record = fit(data, norm, HASTY, 1, quiet)
        yield Hasty(data, norm, models, record, seen[0], len(traces))


def test_early_stopping_keeps_the_best_and_stops(hasty) -> None:
    record = hasty.record
    assert record.steps < HASTY.steps
    curve = [value for _, _, value in record.curve]
    assert record.holdout_nll.mean() <= min(curve) + 1e-6
    assert curve[-1] > record.holdout_nll.mean() + 0.1  # the last parameters are clearly worse
    result = holdout_nll(hasty.data, hasty.norm, hasty.models, HASTY, 1)
    np.testing.assert_allclose(result, record.holdout_nll, rtol=1e-3, atol=1e-3)


def test_a_fit_is_decided_by_its_seed(hasty) -> None:
    again, other = (fit(hasty.data, hasty.norm, HASTY, seed, quiet)[0] for seed in (1, 2))
    for a, b in zip(jax.tree.leaves(hasty.models), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(hasty.models.net.weights[0], other.net.weights[0])


def test_members_have_their_own_start_and_their_own_bootstrap(hasty) -> None:
    for leaf in hasty.models.net.weights:
        assert not np.array_equal(leaf[0], leaf[1])
    boots, train = hasty.boots, hasty.data.split(HASTY.holdout, 1)[0]
    assert boots.shape == (2, len(train))
    assert np.isin(boots, train).all()  # never a row of the hold-out
    assert not np.array_equal(boots[0], boots[1])
    for row in boots:
        assert len(np.unique(row)) / len(train) == pytest.approx(1 - np.exp(-1), abs=0.12)


def test_the_training_step_is_compiled_once(hasty) -> None:
    assert hasty.traces == 1


def test_the_scales_of_the_targets_are_not_trained(fitted) -> None:
    data, norm, models, _ = fitted
    _, mean, std = fit_targets(data, norm)
    np.testing.assert_array_equal(models.target_mean, mean)
    np.testing.assert_array_equal(models.target_std, std)


# Quality


def test_a_well_specified_pool_is_calibrated_and_a_distorted_one_is_not(fitted) -> None:
    data, norm, models, record = fitted
    others = linear_dataset(2000, seed=6)
    everything = np.arange(others.size)
    quality = model_quality(others, norm, models, everything)
    assert quality["calibration_error"] < 0.04
    assert len(quality["calibration_levels"]) == len(quality["calibration_coverage"]) == 19
    assert np.shape(quality["calibration_coverage_per_target"]) == (3, 19)
    # the full Gaussian log-likelihood per target: the record's is without its constant
    own = model_quality(data, norm, models, data.split(CONFIG.holdout, 0)[1])
    expected = -record.holdout_nll - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(own["holdout_log_likelihood"], expected, rtol=1e-3, atol=1e-3)
    # twice the std: the middle 50 % now hold all that lies within 1.35 standard deviations, 82 %
    wide = eqx.tree_at(
        lambda m: (m.net.biases[-1], m.log_std_high),
        models,
        (models.net.biases[-1].at[:, 3:].add(np.log(2.0)), models.log_std_high + np.log(2.0)),
    )
    distorted = model_quality(others, norm, wide, everything)
    assert distorted["calibration_error"] > 0.1
    assert distorted["calibration_coverage"][9] > 0.7


def test_k_step_errors_grow_and_beat_no_change(fitted) -> None:
    data, norm, models, _ = fitted
    quality = model_quality(data, norm, models, np.arange(10))
    ahead, still = np.array(quality["k_step_error"]), np.array(quality["k_step_error_of_no_change"])
    assert ahead.shape == still.shape == (10,)
    assert np.all(ahead < still)
    assert ahead[0] < ahead[-1]


def test_k_step_errors_agree_with_a_loop() -> None:
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
                obs = np.clip(obs + mean[0, :2], -9.0, 9.0)  # one width beyond either end
                errors[k] += (((obs - data.next_obs[start + k]) / norm.obs_std) ** 2).sum()
        for k in range(10):
            still[k] += (((data.obs[start] - data.next_obs[start + k]) / norm.obs_std) ** 2).sum()
    np.testing.assert_allclose(quality["k_step_error"], np.sqrt(errors / (4 * 2 * 2)), rtol=1e-3)
    np.testing.assert_allclose(quality["k_step_error_of_no_change"], np.sqrt(still / (4 * 2)), rtol=1e-3)


# The pool in the cache


def test_a_pool_is_fitted_once_and_then_cached(tmp_path, monkeypatch, hasty) -> None:
    monkeypatch.setenv("PSPO_CACHE", str(tmp_path))
    data, norm = hasty.data, hasty.norm
    evaluations: list[int] = []

    def progress(*_: object) -> None:
        evaluations.append(1)

    first, metadata = load_or_fit_pool(data, norm, HASTY, 7, progress)
    fitted = len(evaluations)
    again, metadata_again = load_or_fit_pool(data, norm, HASTY, 8, progress)  # the pool's seed is its own
    assert (metadata["cached"], metadata_again["cached"], len(evaluations)) == (False, True, fitted)
    assert fitted > 0
    assert metadata["digest"] == metadata_again["digest"]
    assert (first.models.size, first.holdout_nll.shape) == (2, (2,))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    monkeypatch.setattr("pspo.dynamics.pool.fit", lambda *_: (_ for _ in ()).throw(ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):  # -1: the run's own seed, so another pool
        load_or_fit_pool(data, norm, dataclasses.replace(HASTY, seed=-1), 8, progress)
