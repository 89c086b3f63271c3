"""Logged propensities replace the estimated behaviour density in importance sampling and doubly robust."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm as normal

from pspo.core.errors import UserError
from pspo.data import Dataset, fit_normaliser
from pspo.evaluation.density import log_ratios
from pspo.evaluation.ope import importance
from pspo.evaluation.ope.estimator import EstimatorInputs
from tests.evaluation.ope.ope_cases import gaussian, made_dataset, made_problem

LENGTHS, ENDED = np.array([3, 1, 4, 2, 4]), np.array([True, True, False, True, True])
BOUNDS = {"action_low": np.array([-10.0]), "action_high": np.array([30.0])}


def logged(seed: int = 0) -> Dataset:
    """Actions in raw units, drawn from a normal distribution around 8 with a standard deviation of 5."""
    random = np.random.default_rng(seed)
    action = np.clip(random.normal(8.0, 5.0, size=(LENGTHS.sum(), 1)), -9.0, 29.0)
    density = normal(8.0, 5.0).pdf(action[:, 0])
    return made_dataset(LENGTHS, ENDED, action=action, propensity=density, **BOUNDS)


def test_ratios_are_the_policy_density_over_the_propensity() -> None:
    data = logged()
    problem = made_problem(data)
    network = gaussian(fit_normaliser(data, 1.0))
    unit = 2.0 * (data.action[:, 0].astype(float) + 10.0) / 40.0 - 1.0
    features = problem.norm.encode(data.obs)
    log_policy = np.asarray(network.log_prob(features, unit[:, None].astype(np.float32)), float) - np.log(20.0)
    assert data.propensity is not None
    expected = log_policy - np.log(data.propensity)
    np.testing.assert_allclose(log_ratios(problem, None), expected, rtol=1e-4, atol=1e-4)


def test_the_estimate_uses_them_and_carries_no_warning_about_a_fitted_density() -> None:
    inputs = EstimatorInputs(made_problem(logged()), config=None)  # pyright: ignore[reportArgumentType] fits nothing
    found = importance.estimate(inputs)
    expected = importance.estimate_by_weights(inputs.problem, log_ratios(inputs.problem, None), 0.9)
    assert found.value == pytest.approx(expected.value)
    assert not [warning for warning in found.warnings if "behaviour density" in warning]


@pytest.mark.parametrize("value", [0.0, -1.3, np.nan, np.inf])
def test_impossible_propensities_are_refused(value: float) -> None:
    density = np.full(LENGTHS.sum(), 0.5)
    density[3] = value
    with pytest.raises(UserError, match=r"the propensity is .* at row 3"):
        made_dataset(LENGTHS, ENDED, propensity=density)


def test_a_propensity_above_one_is_a_density_and_no_probability() -> None:
    density = np.full(LENGTHS.sum(), 1.0)
    density[3] = 1.7
    made_dataset(LENGTHS, ENDED, propensity=density)
    labels = {"action": np.arange(LENGTHS.sum()) % 2, "action_labels": ("hold", "sell")}
    with pytest.raises(UserError, match=r"the propensity is 1.7 at row 3, and that of a discrete action is a probabil"):
        made_dataset(LENGTHS, ENDED, propensity=density, **labels)
    density[3] = 1.0
    made_dataset(LENGTHS, ENDED, propensity=density, **labels)
