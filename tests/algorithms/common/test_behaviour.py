"""The reference policy: a density with the dataset's modes, its likelihood in action units, loaded from the cache."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import scipy.stats

from pspo.algorithms.common.behaviour import ReferenceConfig, fit_reference, load_or_fit_reference
from pspo.data import Dataset
from pspo.data.normalise import fit_normaliser

SMALL = ReferenceConfig(components=2, width=8, depth=1, steps=1500, batch=128, lr=0.01, evaluate_every=500)


def two_habits(rows: int = 3000) -> Dataset:
    """A behaviour policy that acts near 0.2 or 0.8 by the toss of a coin, whatever the observation; bounds [0, 2]."""
    rng = np.random.default_rng(0)
    action = np.where(rng.random(rows) < 0.5, 0.2, 0.8) + 0.05 * rng.standard_normal(rows)
    obs = rng.normal(size=(rows, 1))
    return Dataset(
        obs=obs,
        action=action[:, None],
        reward=rng.normal(size=rows),
        next_obs=obs,
        terminal=np.zeros(rows, bool),
        timeout=np.ones(rows, bool),
        action_low=np.array([0.0]),
        action_high=np.array([2.0]),
    )


@pytest.fixture(scope="module")
def fitted():
    data = two_habits()
    norm = fit_normaliser(data)
    policy, record = fit_reference(data, norm, SMALL, 0, lambda *_: None)
    return data, norm, policy, record


def test_both_habits_are_found(fitted) -> None:
    _, norm, policy, _ = fitted
    mixture = jax.jit(lambda x: policy(x))(norm.encode(np.zeros((1, 1), np.float32)))
    means = np.sort(norm.from_unit(1.02 * np.tanh(np.asarray(mixture.mean)[0, :, 0])))
    np.testing.assert_allclose(means, [0.2, 0.8], atol=0.04)
    np.testing.assert_allclose(np.exp(mixture.log_weight), 0.5, atol=0.1)


def test_the_hold_out_likelihood_is_that_of_the_truth_in_units_of_the_action(fitted) -> None:
    """Not the likelihood in the unbounded space: the change of variables counts."""
    data, _, _, record = fitted
    holdout = data.action[data.split(SMALL.holdout, 0)[1], 0].astype(np.float64)
    truth = np.log(0.5 * scipy.stats.norm.pdf(holdout, 0.2, 0.05) + 0.5 * scipy.stats.norm.pdf(holdout, 0.8, 0.05))
    assert record.holdout_log_likelihood == pytest.approx(truth.mean(), abs=0.1)
    assert record.uniform_log_likelihood == pytest.approx(-np.log(2.0), abs=1e-6)


def test_the_best_policy_is_kept_and_the_curve_has_every_evaluation(fitted) -> None:
    data, norm, policy, record = fitted
    assert [step for step, _ in record.curve] == [500, 1000, 1500]
    holdout = data.split(SMALL.holdout, 0)[1]
    x = norm.presquash(data.action[holdout])
    found = float(jax.jit(lambda f: policy(f).log_prob(x).mean())(norm.encode(data.obs[holdout])))
    assert found == pytest.approx(max(value for _, value in record.curve), abs=1e-4)


def test_the_second_run_loads_the_policy_of_the_first(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PSPO_CACHE", str(tmp_path))
    data = two_habits(200)
    norm = fit_normaliser(data)
    config = ReferenceConfig(components=2, width=4, depth=1, steps=4, batch=8, evaluate_every=4)
    seen: list[int] = []

    def progress(*_: object) -> None:
        seen.append(1)

    first, info = load_or_fit_reference(data, norm, config, 0, progress, 0.99)
    assert (info["cached"], len(seen)) == (False, 1)
    again, info_again = load_or_fit_reference(data, norm, config, 0, progress, 0.99)
    assert (info_again["cached"], len(seen)) == (True, 1)
    assert info_again["digest"] == info["digest"]
    for a, b in zip(first.net.weights + first.net.biases, again.net.weights + again.net.biases, strict=True):
        np.testing.assert_array_equal(a, b)
