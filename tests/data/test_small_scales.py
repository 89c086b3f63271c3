"""Small numbers are data: scales follow the numbers, whatever their unit, and only a rounded constant is constant."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.algorithms.adm.fit import Windows, target_scale
from pspo.data import Dataset, check, fit_normaliser, normaliser_in
from pspo.data.neighbours import neighbourhoods
from pspo.dynamics.fit import fit_targets
from tests.data.made_up_data import clean_fields

SMALL = st.integers(-100, -10).map(lambda exponent: 2.0**exponent)
"""Powers of two: a change of unit by one of them rounds nothing, so that results can be compared bit for bit."""


def in_unit(unit: float, **changes: Any) -> Dataset:
    fields = clean_fields(rows=600)
    for name in ("obs", "next_obs", "reward"):
        fields[name] = fields[name] * np.float32(unit)
    return Dataset(**(fields | changes))


@settings(max_examples=20, deadline=None)
@given(SMALL, st.sampled_from(["features", "zscore"]), st.sampled_from(["std", "range"]))
def test_networks_see_the_same_numbers_in_any_unit(unit: float, states: str, rewards: str) -> None:
    usual, small = in_unit(1.0), in_unit(unit)
    norm, own = (normaliser_in(data, states, rewards, 0.9) for data in (usual, small))
    if states == "features":
        np.testing.assert_array_equal(own.encode(small.obs), norm.encode(usual.obs))
    else:  # the floor that TD3+BC adds stops being one: at most as much as the standard deviation itself
        assert 0.4 < own.encode(small.obs).std() < 1.1
    np.testing.assert_array_equal(small.reward / own.reward_scale, usual.reward / norm.reward_scale)


@settings(max_examples=20, deadline=None)
@given(SMALL)
def test_models_predict_the_same_targets_in_any_unit(unit: float) -> None:
    usual, small = in_unit(1.0), in_unit(unit)
    norm, own = fit_normaliser(usual), fit_normaliser(small)
    target, mean, std = fit_targets(usual, norm)
    small_target, small_mean, small_std = fit_targets(small, own)
    np.testing.assert_array_equal((small_target - small_mean) / small_std, (target - mean) / std)
    windows = Windows(np.arange(600), np.array([600], np.int32))
    scales = [scale for data, n in ((usual, norm), (small, own)) for scale in target_scale(data, n, windows)]
    for usual_scale, small_scale in zip(scales[:2], scales[2:], strict=True):
        np.testing.assert_allclose(small_scale[:-1] / unit, usual_scale[:-1], rtol=1e-6)
        np.testing.assert_allclose(small_scale[-1], usual_scale[-1], rtol=1e-6)


@pytest.mark.parametrize("constant", [0.0, 0.1, 5.0, 1e6, 1e-30])
def test_a_constant_stays_one_when_it_is_rounded(constant: float) -> None:
    fields = clean_fields(rows=600)
    two = np.array([constant, np.nextafter(np.float32(constant), np.float32(2e6))], np.float32)
    for name in ("obs", "next_obs"):
        fields[name][:, 1] = two[np.random.default_rng(1).integers(0, 2, size=600)]
    data = Dataset(**fields)
    norm = fit_normaliser(data)
    assert norm.obs_std[1] == 1.0
    floored = data.obs[:, 1].std(dtype=np.float64) + 1e-3
    assert normaliser_in(data, "zscore", "std", 0.9).obs_std[1] == pytest.approx(floored, rel=1e-5)
    assert fit_targets(data, norm)[2][1] == 1.0


def test_a_steady_step_is_constant_though_its_differences_are_rounded() -> None:
    clock = np.arange(600, dtype=np.float64) * 0.01
    fields = clean_fields(rows=600)
    fields["obs"][:, 2], fields["next_obs"][:, 2] = clock, clock + 0.01
    data = Dataset(**fields)
    assert len(np.unique(data.next_obs[:, 2] - data.obs[:, 2])) > 1
    assert fit_targets(data, fit_normaliser(data))[2][2] == 1.0


@settings(max_examples=10, deadline=None)
@given(SMALL)
def test_neighbourhoods_are_the_same_in_any_unit(unit: float) -> None:
    obs = np.random.default_rng(0).normal(size=(80, 2)).astype(np.float32)
    obs[40:50] = obs[:10]
    near, spacing = neighbourhoods(obs, 5, 2.0)
    small, small_spacing = neighbourhoods(obs * np.float32(unit), 5, 2.0)
    np.testing.assert_array_equal(small.size, near.size)
    assert small_spacing == pytest.approx(unit * spacing, rel=1e-6)
    assert spacing > 0


def codes(data: Dataset) -> list[str]:
    return [finding.code for finding in check(data)]


def test_check_warns_of_small_numbers() -> None:
    assert codes(in_unit(1.0)) == []
    obs, reward = check(in_unit(2.0**-30))
    assert (obs.code, reward.code) == ("small-obs", "small-reward")
    assert obs.message.startswith("obs column 0 varies only between -")
    assert "columns affected: 3" in obs.message


@pytest.mark.parametrize("exponent", [-128, -132, -140])
def test_check_says_that_numbers_below_those_of_float32_count_as_constant(exponent: int) -> None:
    data = in_unit(2.0**exponent)
    norm = fit_normaliser(data)
    assert norm.obs_std.tolist() == [1.0, 1.0, 1.0]
    obs, reward = check(data)
    assert (obs.code, reward.code) == ("tiny-obs", "tiny-reward")
    assert "so this counts as constant: log it in a larger unit." in obs.message
    assert "columns affected: 3" in obs.message


def test_check_warns_of_numbers_that_float32_has_rounded() -> None:
    fields = clean_fields(rows=600)
    for name in ("obs", "next_obs"):
        fields[name][:, 1] = fields[name][:, 1] + np.float32(1e6)
    (finding,) = check(Dataset(**fields))
    assert finding.code == "rounded-obs"
    assert "steps of float32: save it as float64, with all its digits." in finding.message
    fields["obs"][:, 1], fields["next_obs"][:, 1] = np.rint(fields["obs"][:, 1]), np.rint(fields["next_obs"][:, 1])
    assert codes(Dataset(**fields)) == []  # whole numbers are exact


def test_check_warns_of_actions_that_fill_little_of_their_bounds() -> None:
    data = in_unit(1.0)
    (finding,) = check(dataclasses.replace(data, action_low=[-1e4, -1.0], action_high=[1e4, 1.0]))
    assert finding.code == "narrow-actions"
    assert "bounds are -10000.0 and 10000.0" in finding.message


def test_a_jump_between_small_states_is_still_a_broken_episode() -> None:
    data = in_unit(2.0**-30)
    next_obs = data.next_obs.copy()
    next_obs[0] *= 2.0
    found = check(dataclasses.replace(data, next_obs=next_obs))
    assert "broken-episode" in [finding.code for finding in found]
