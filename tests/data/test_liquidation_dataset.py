"""The logged data of the behaviour policy."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.core.errors import UserError
from pspo.data.readers.liquidation import make_dataset
from pspo.envs.liquidation import behaviour_action

FIELDS = ("obs", "action", "reward", "next_obs", "terminal", "timeout")


@pytest.fixture(scope="module")
def data():
    return make_dataset()


def test_a_hundred_thousand_transitions_are_generated_quickly() -> None:
    begin = time.perf_counter()
    make_dataset(100_000, seed=1)
    assert time.perf_counter() - begin < 2


def test_shapes_types_and_names(data) -> None:
    n = 100_000
    expected = [((n, 3), "f4"), ((n, 1), "f4"), ((n,), "f4"), ((n, 3), "f4"), ((n,), "?"), ((n,), "?")]
    for field, (shape, kind) in zip(FIELDS, expected, strict=True):
        array = getattr(data, field)
        assert (array.shape, array.dtype) == (shape, np.dtype(kind)), field
    assert (data.name, data.task) == ("liquidation", "liquidation")
    assert (list(data.action_low), list(data.action_high)) == ([-1.0], [1.0])


def test_the_seed_decides_everything(data) -> None:
    again, other = make_dataset(seed=0), make_dataset(seed=1)
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(data, field), getattr(again, field))
    assert not np.array_equal(data.action, other.action)
    assert not np.array_equal(data.obs[0], other.obs[0])


@settings(max_examples=15, deadline=None)
@given(size=st.integers(1, 60_000))
def test_a_small_dataset_is_the_beginning_of_a_large_one(data, size: int) -> None:
    small = make_dataset(size)
    assert len(small.obs) == size
    for field in FIELDS[:-1]:
        np.testing.assert_array_equal(getattr(small, field), getattr(data, field)[:size])
    # The cut is a timeout, unless the episode ended just there.
    assert bool(small.timeout[-1]) is not bool(small.terminal[-1])
    assert not small.timeout[:-1].any()


def test_episodes_are_contiguous(data) -> None:
    done = data.terminal | data.timeout
    assert done[-1]
    begins = np.concatenate([[True], done[:-1]])
    # A row begins an episode exactly if the row before it ended one; within an episode states follow on exactly.
    np.testing.assert_array_equal(data.obs[:, 0] == 0, begins)
    np.testing.assert_array_equal(data.next_obs[:-1][~done[:-1]], data.obs[1:][~done[:-1]])
    assert np.all(data.obs[begins, 1] == 100)
    np.testing.assert_array_equal(data.next_obs[:, 0], data.obs[:, 0] + 1)


def test_terminals_are_exactly_the_true_ends(data) -> None:
    ended = (data.next_obs[:, 0] >= 20) | (data.next_obs[:, 1] < 0.1)
    np.testing.assert_array_equal(data.terminal, ended)
    assert not np.any(data.terminal & data.timeout)


def test_rewards_and_inventory_follow_from_the_actions(data) -> None:
    sold = data.obs[:, 1].astype(float) * np.clip(data.action[:, 0], 0, 1)
    np.testing.assert_allclose(data.obs[:, 1] - data.next_obs[:, 1], sold, atol=2e-5)
    np.testing.assert_allclose(data.reward, sold * data.obs[:, 2], rtol=1e-5, atol=1e-4)


def test_the_noise_behind_the_prices_is_standard_normal(data) -> None:
    price, moved = data.obs[:, 2].astype(float), data.next_obs[:, 2].astype(float)
    inside = (moved > 0) & (moved < 5) & (price > 1) & (price < 4)  # clipping is out of reach (5 standard deviations)
    noise = (moved - price - 0.05 * (1.5 - price))[inside] / 0.2
    assert noise.mean() == pytest.approx(0, abs=4 / inside.sum() ** 0.5)
    assert noise.std() == pytest.approx(1, abs=4 / (2 * inside.sum()) ** 0.5)


def test_behaviour_mostly_holds() -> None:
    action = behaviour_action(np.random.default_rng(0), 200_000)[:, 0]
    sales, holds = action[action > 0], action[action <= 0]
    assert len(sales) / len(action) == pytest.approx(0.2, abs=4 * (0.16 / len(action)) ** 0.5)
    assert (holds.min() >= -1, sales.max() <= 1) == (True, True)
    # Uniform on an interval of length one: standard deviation 1 / sqrt(12).
    assert sales.mean() == pytest.approx(0.5, abs=4 / (12 * len(sales)) ** 0.5)
    assert holds.mean() == pytest.approx(-0.5, abs=4 / (12 * len(holds)) ** 0.5)


def test_the_logged_return_is_that_of_the_behaviour_policy(data) -> None:
    ends = np.flatnonzero(data.terminal)
    returns = np.diff(np.concatenate([[0.0], np.cumsum(data.reward, dtype=float)[ends]]))
    assert returns.mean() == pytest.approx(98.9, abs=4 * returns.std() / len(returns) ** 0.5)
    assert (data.action > 0).mean() == pytest.approx(0.2, abs=0.006)


@pytest.mark.parametrize(
    ("size", "seed", "named"), [(0, 0, "size"), (-5, 0, "size"), (1.5, 0, "size"), (True, 0, "size"), (10, -1, "seed")]
)
def test_bad_sizes_and_seeds_are_named(size, seed, named: str) -> None:
    with pytest.raises(UserError, match=f"the {named} of a liquidation dataset"):
        make_dataset(size, seed)


def test_more_rows_than_fit_into_memory_are_refused_at_once() -> None:
    with pytest.raises(UserError, match="GiB of memory: split the data"):
        make_dataset(size=10**14)
