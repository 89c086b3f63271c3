"""Long episodes in models: without noise where dynamics are nearly deterministic, and with the error of the study."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from pspo.dynamics.ensemble import Ensemble
from pspo.evaluation.ope import posterior_models
from pspo.evaluation.ope.long_episodes import STUDY_ERROR, noise_scale, return_of_dataset, with_study_error
from pspo.evaluation.ope.posterior_models import estimate_by_models
from pspo.evaluation.ope.return_estimate import ReturnEstimate
from pspo.evaluation.problem import EvaluationProblem
from tests.arrays import f32
from tests.evaluation.ope.ope_cases import linear, made_dataset
from tests.evaluation.ope.ope_cases import made_problem as problem_of
from tests.evaluation.ope.test_posterior_models import BIAS, TARGET_MEAN, TARGET_STD, WEIGHTS, made_models


def long_problem(horizon: int = 200, reward: float = 1.0) -> EvaluationProblem:
    data = made_dataset([horizon] * 6, [False] * 6, reward=np.full(6 * horizon, reward))
    return problem_of(data, horizon=horizon)


@pytest.mark.parametrize(("reward", "sums", "expected"), [(1.0, 50.0, 0.25), (1.0, 300.0, 1.5), (-1.0, -300.0, 0.5)])
def test_return_against_the_dataset(reward, sums, expected) -> None:
    assert return_of_dataset(long_problem(200, reward), sums) == pytest.approx(expected)


def calm(log_std: float) -> Ensemble:
    """The pool of the other tests, whose members predict this noise everywhere, in every column."""
    bias, weights = BIAS.copy(), WEIGHTS.copy()
    bias[:, 3:], weights[:, :, 3:] = log_std, 0.0
    low, high = f32(np.full((3, 3), -30.0)), f32(np.full((3, 3), 30.0))
    return Ensemble(linear(weights, bias), low, high, f32(TARGET_MEAN), f32(TARGET_STD))


@pytest.mark.parametrize(
    ("horizon", "log_std", "scale"),
    [
        (200, 0.5 * np.log(0.049), 0.0),  # long and nearly deterministic
        (200, 0.5 * np.log(0.051), 0.7),  # long, but chance is a part of the task
        (100, -3.0, 0.7),  # short: as before
    ],
)
def test_only_long_episodes_of_nearly_deterministic_dynamics_are_without_noise(horizon, log_std, scale) -> None:
    problem = long_problem(horizon)
    assert noise_scale(problem, calm(log_std), problem.norm, 0.7) == scale


def test_long_estimates_have_the_error_of_the_study_and_short_ones_do_not(monkeypatch) -> None:
    monkeypatch.setattr(posterior_models, "MOST_STEPS", 1200)
    names = {"model_noise", "episode_steps", "return_of_dataset", "study_error"}
    problem = long_problem(150)
    found = estimate_by_models(problem, made_models(norm=problem.norm), 0.9)
    assert names <= set(found.numbers)
    assert 0 < found.numbers["episode_steps"] <= 150
    assert found.high - found.value >= STUDY_ERROR * abs(found.value)
    short = estimate_by_models(long_problem(100), made_models(norm=problem.norm), 0.9).numbers
    assert not names & set(short)


def test_the_error_of_the_study_by_hand() -> None:
    found = with_study_error(ReturnEstimate("posterior models", -200.0, -230.0, -170.0, "mode"), 0.5)
    error = STUDY_ERROR * 200.0 * scipy.stats.norm.ppf(0.75) / scipy.stats.norm.ppf(0.95)
    half = (30.0**2 + error**2) ** 0.5
    assert (found.low, found.high) == (pytest.approx(-200.0 - half), pytest.approx(-200.0 + half))
    assert found.numbers["study_error"] == pytest.approx(error)


def test_the_error_is_that_of_the_study() -> None:
    kept = json.loads(Path("benchmarks/results/ope-locomotion.json").read_text())["interval"]
    assert kept["error"] == STUDY_ERROR
    assert kept["holds"] / kept["held_out"] >= 0.9  # on the datasets that it does not come from
