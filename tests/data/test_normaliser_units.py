"""Units of published algorithms: `normaliser_in` against NumPy, and the squash of actions."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from pspo.data import Dataset
from pspo.data.batches import device_dataset
from pspo.data.normalise import fit_normaliser, normaliser_in, squash, unsquash

GAMMA = 0.9
STATES, REWARDS = ("raw", "zscore", "features"), ("raw", "range", "std")


def made_dataset(rows: int = 210, **changes: Any) -> Dataset:
    """Episodes of three and of four rows, ended in turn by a terminal and by a time-out; the last is cut off.

    Columns: noise, a counter (a grid), a constant. Next states lie elsewhere than states, so that it shows whose
    mean is taken.
    """
    rng = np.random.default_rng(0)
    place = np.arange(rows) % 7
    obs = np.stack([rng.normal(3.0, 2.0, size=rows), place, np.full(rows, 0.1)], axis=1).astype(np.float32)
    fields = {
        "obs": obs,
        "action": rng.uniform(-1, 1, size=(rows, 1)),
        "reward": 5.0 * rng.normal(size=rows) + 1.0,
        "next_obs": obs + np.array([4.0, 0.0, 0.0], np.float32),
        "terminal": place == 2,
        "timeout": (place == 6) & (np.arange(rows) < rows - 1),
        "action_low": np.array([-1.0], np.float32),
        "action_high": np.array([1.0], np.float32),
    }
    return Dataset(**(fields | changes))


def returns_by_hand(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Of episodes, undiscounted, and from every row on, discounted; row by row."""
    episodes, to_go, now = [], np.zeros(data.size), []
    for i, (reward, last) in enumerate(zip(data.reward.tolist(), (data.terminal | data.timeout).tolist(), strict=True)):
        now.append(reward)
        if last or i == data.size - 1:
            episodes.append(sum(now))
            for k in range(len(now)):
                to_go[i - len(now) + 1 + k] = sum(r * GAMMA**j for j, r in enumerate(now[k:]))
            now = []
    return np.array(episodes), to_go


@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize("states", STATES)
def test_all_combinations_of_units_agree_with_numpy(states: str, rewards: str) -> None:
    data = made_dataset()
    norm = normaliser_in(data, states, rewards, GAMMA)
    obs, episodes = data.obs.astype(np.float64), returns_by_hand(data)
    if states == "raw":
        expected = obs
    elif states == "zscore":
        expected = (obs - obs.mean(axis=0)) / (obs.std(axis=0) + 1e-3)
    else:
        both = np.concatenate([obs, data.next_obs.astype(np.float64)])
        std = both.std(axis=0)
        one_hot = data.obs[:, 1, None] == np.arange(7.0)
        expected = np.concatenate([(obs - both.mean(axis=0)) / np.where(std > 1e-6, std, 1.0), one_hot], axis=1)
    assert norm.features == expected.shape[1]
    np.testing.assert_allclose(norm.encode(data.obs), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(norm.encode(jnp.asarray(data.obs)), expected, rtol=1e-4, atol=1e-5)
    scale = {"raw": 1.0, "range": (episodes[0].max() - episodes[0].min()) / 1000.0, "std": episodes[1].std()}
    assert float(norm.reward_scale) == pytest.approx(scale[rewards], rel=1e-5)
    assert {array.dtype for array in norm if array is not None} == {np.dtype(np.float32), np.dtype(np.int32)}


def test_raw_states_are_unchanged_bit_for_bit() -> None:
    data = made_dataset()
    norm = normaliser_in(data, "raw", "raw", GAMMA)
    extreme = np.array([[1e-30, -1e30, 0.1], [np.pi, 7.0, -0.0]], np.float32)
    for obs in (data.obs, data.next_obs, extreme):
        np.testing.assert_array_equal(norm.encode(obs), obs)
        assert norm.encode(obs).dtype == np.float32
    assert norm.features == data.obs_dim


def test_standardised_states_use_the_mean_of_states_not_of_next_states() -> None:
    data = made_dataset()
    norm = normaliser_in(data, "zscore", "raw", GAMMA)
    features = norm.encode(data.obs)
    np.testing.assert_allclose(features.mean(axis=0), 0.0, atol=1e-5)
    assert norm.encode(data.next_obs)[:, 0].mean() == pytest.approx(4.0 / (data.obs[:, 0].std() + 1e-3), rel=1e-4)
    np.testing.assert_array_equal(features[:, 2], 0.0)  # a constant column is harmless
    assert float(norm.obs_std[2]) == pytest.approx(1e-3, rel=1e-5)


def test_other_fields_are_those_of_the_plain_normaliser() -> None:
    data = made_dataset()
    plain = fit_normaliser(data, GAMMA)
    for states in STATES:
        norm = normaliser_in(data, states, "raw", GAMMA)
        for name in ("obs_low", "obs_high", "action_low", "action_high"):
            np.testing.assert_array_equal(getattr(norm, name), getattr(plain, name))
    for mine, its in zip(normaliser_in(data, "features", "std", GAMMA), plain, strict=True):
        np.testing.assert_array_equal(mine, its)


@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize("reward", [0.0, 0.1, -3.0])
def test_constant_rewards_do_not_divide_by_zero(reward: float, rewards: str) -> None:
    rows = 210
    equal = {"terminal": np.arange(rows) % 7 == 6, "timeout": np.zeros(rows, bool), "reward": np.full(rows, reward)}
    norm = normaliser_in(made_dataset(**equal), "raw", rewards, GAMMA)
    assert norm.reward_scale > 0.0
    if rewards != "std" or reward == 0.0:
        assert float(norm.reward_scale) == 1.0


def test_one_episode_has_no_range_and_keeps_its_rewards() -> None:
    single = {"terminal": np.zeros(210, bool), "timeout": np.zeros(210, bool)}
    assert float(normaliser_in(made_dataset(**single), "raw", "range", GAMMA).reward_scale) == 1.0


def test_with_range_units_returns_span_a_thousand() -> None:
    data = made_dataset()
    device = device_dataset(data, normaliser_in(data, "zscore", "range", GAMMA), GAMMA)
    scaled = np.add.reduceat(np.asarray(device.transitions.reward, np.float64), data.episode_starts)
    assert np.ptp(scaled) == pytest.approx(1000.0, rel=1e-4)


def test_unsquash_undoes_squash_inside_the_bounds_and_is_finite_at_them() -> None:
    x = np.linspace(-2.2, 2.2, 45).astype(np.float32)
    assert np.abs(squash(x)).max() < 1.0  # further out the squash is at the bound
    np.testing.assert_allclose(squash(x), 1.02 * np.tanh(x.astype(np.float64)), rtol=1e-5)
    np.testing.assert_allclose(unsquash(squash(x)), x, rtol=1e-4, atol=1e-6)
    unit = np.linspace(-1.0, 1.0, 41).astype(np.float32)
    np.testing.assert_allclose(squash(unsquash(unit)), unit, rtol=1e-5, atol=1e-6)
    assert float(unsquash(np.float32([1.0]))[0]) == pytest.approx(np.arctanh(1.0 / 1.02), rel=1e-5)
    np.testing.assert_array_equal(unsquash(np.float32([-5.0, 5.0])), unsquash(np.float32([-1.0, 1.0])))
    np.testing.assert_allclose(unsquash(squash(jnp.asarray(x))), x, rtol=1e-4, atol=1e-6)


def test_returns_that_differ_only_by_rounding_have_no_range() -> None:
    """Two-row episodes that pay 0.3 in all, in float32: their sums differ by 7e-9."""
    rows = 210
    pays = np.where(np.arange(rows) // 2 % 2 == 0, *np.float32([[0.1], [0.3]]))
    pays[1::2] = np.where(np.arange(rows // 2) % 2 == 0, *np.float32([[0.2], [0.0]]))
    ends = {"terminal": np.arange(rows) % 2 == 1, "timeout": np.zeros(rows, bool), "reward": pays.astype(np.float32)}
    assert float(normaliser_in(made_dataset(**ends), "raw", "range", GAMMA).reward_scale) == 1.0
