"""Coverage of a state by the dataset, against distances and shares counted one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.data import Dataset
from pspo.data.normalise import fit_normaliser
from pspo.evaluation.inspect import coverage as module
from pspo.evaluation.inspect.coverage import NEIGHBOURS, StateCoverage, coverage_of, percentile

RNG = np.random.default_rng(0)
OBS = np.stack([RNG.normal(5.0, 3.0, size=200), np.arange(200) % 4], axis=1).astype(np.float32)


def made_dataset() -> Dataset:
    return Dataset(
        obs=OBS,
        action=RNG.uniform(-1, 1, size=(200, 1)),
        reward=RNG.normal(size=200),
        next_obs=np.roll(OBS, -1, axis=0),
        terminal=np.arange(200) % 10 == 9,
        timeout=np.zeros(200, bool),
        action_low=np.array([-1.0]),
        action_high=np.array([1.0]),
    )


DATASET = made_dataset()
NORM = fit_normaliser(DATASET)


def covered(obs) -> StateCoverage:
    return coverage_of(DATASET, NORM, ["x", "count"], np.asarray(obs, np.float32))


def distances(obs) -> np.ndarray:
    return np.sort(np.sqrt((((OBS - np.asarray(obs)) / NORM.obs_std) ** 2).sum(1, dtype=np.float64)))


def distances_in_data() -> np.ndarray:
    """The first of a row's distances is to itself."""
    return np.array([distances(obs)[NEIGHBOURS] for obs in OBS])


@pytest.mark.parametrize("obs", [(5.2, 1.5), (40.0, 2.0)])
def test_distance_and_neighbours_of_a_state_outside_the_dataset(obs) -> None:
    found, away = covered(obs), distances(obs)
    assert found.distance == pytest.approx(away[NEIGHBOURS - 1], rel=1e-5)
    assert found.median_distance == pytest.approx(np.median(distances_in_data()), rel=1e-5)
    assert found.distance_percentile == pytest.approx(100 * (distances_in_data() < away[NEIGHBOURS - 1]).mean())
    assert found.neighbours == (away <= np.median(distances_in_data())).sum()
    order = np.argsort((((OBS - np.asarray(obs)) / NORM.obs_std) ** 2).sum(1))
    assert found.nearest_rows[:5] == order[:5].tolist()


def test_a_state_of_the_dataset_is_not_its_own_neighbour() -> None:
    found, away = covered(OBS[17]), distances(OBS[17])
    assert found.distance == pytest.approx(away[NEIGHBOURS], rel=1e-5)
    assert found.neighbours == (away <= np.median(distances_in_data())).sum() - 1


def test_columns_have_percentiles_and_are_marked_outside_the_range() -> None:
    x, count = covered((40.0, 2.0)).columns
    assert (x.name, x.percentile, x.outside) == ("x", 100.0, True)
    assert (x.low, x.high) == (OBS[:, 0].min(), OBS[:, 0].max())
    assert (count.percentile, count.outside) == (62.5, False)  # half are below, and half of a quarter
    assert not any(column.outside for column in covered(OBS.max(0)).columns)
    assert covered(OBS.min(0) - 1e-3).columns[0].outside


def test_only_part_of_a_large_dataset_is_searched(monkeypatch) -> None:
    monkeypatch.setattr(module, "SEARCHED", 50)
    found = covered(OBS[17])
    assert found.searched == 50
    assert len(set(found.nearest_rows)) == 50
    assert found.median_distance > np.median(distances_in_data())


def test_a_dataset_of_two_transitions_works() -> None:
    small = Dataset(**{name: getattr(DATASET, name)[:2] for name in ("obs", "action", "reward", "next_obs")},
                    terminal=np.array([False, True]), timeout=np.zeros(2, bool),
                    action_low=DATASET.action_low, action_high=DATASET.action_high)  # fmt: skip
    found = coverage_of(small, NORM, ["x", "count"], OBS[0])
    assert found.distance == pytest.approx(distances(OBS[0])[distances(OBS[0]) > 0].min(), abs=10.0)
    assert found.searched == 2


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=30), st.integers(-6, 6))
def test_percentiles_count_equal_values_half(values, value) -> None:
    below, equal = sum(v < value for v in values), sum(v == value for v in values)
    assert percentile(float(value), np.array(values, float)) == pytest.approx(100 * (below + equal / 2) / len(values))


def test_the_percentile_of_nan_is_nan() -> None:
    assert np.isnan(percentile(float("nan"), np.arange(3.0)))
