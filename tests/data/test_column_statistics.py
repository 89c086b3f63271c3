"""Statistics of columns in blocks: the very numbers that NumPy gives for the whole table."""

from __future__ import annotations

import numpy as np
import pytest

from pspo.data import dataset as datasets
from pspo.data import mapped
from pspo.data.column_statistics import column_statistics, distinct_values
from pspo.data.dataset import discounted_sums


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch) -> None:
    monkeypatch.setattr(mapped, "BLOCK_ROWS", 1000)


def tables(columns: int, rows: int = 20_500) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(columns)
    obs = (1e3 * rng.normal(size=(rows, columns)) + 7.0).astype(np.float32)
    return obs, obs + rng.normal(size=obs.shape).astype(np.float32), rng.random(rows) < 0.7


@pytest.mark.parametrize("columns", [1, 2, 3, 8, 17])
@pytest.mark.parametrize("all_count", [True, False])
def test_they_are_those_of_the_whole_table_bit_for_bit(columns: int, all_count: bool) -> None:
    obs, next_obs, known = tables(columns)
    found = column_statistics((obs, None), (next_obs, None if all_count else known))
    whole = np.concatenate([obs, next_obs if all_count else next_obs[known]])
    np.testing.assert_array_equal(found.mean, whole.mean(axis=0, dtype=np.float64))
    np.testing.assert_array_equal(found.std, whole.std(axis=0, dtype=np.float64))
    np.testing.assert_array_equal(found.low, whole.min(axis=0))
    np.testing.assert_array_equal(found.high, whole.max(axis=0))


def test_distinct_values_are_those_of_all_blocks() -> None:
    counter = np.zeros((5000, 2), np.float32)
    counter[:, 1] = np.arange(5000) // 1000  # one more value in every block
    np.testing.assert_array_equal(distinct_values(((counter, None),), 1, 5), np.arange(5))
    assert distinct_values(((counter, None),), 1, 4) is None


def test_returns_to_go_cross_the_blocks(monkeypatch) -> None:
    monkeypatch.setattr(datasets, "SUMMED_ROWS", 7)
    rng = np.random.default_rng(0)
    reward, ends = rng.normal(size=50).astype(np.float32), np.arange(50) % 13 == 12
    ends[-1] = True
    expected, total = np.zeros(50), 0.0
    for row in range(49, -1, -1):
        total = float(reward[row]) + (0.0 if ends[row] else 0.9 * total)
        expected[row] = total
    np.testing.assert_array_equal(discounted_sums(reward, ends, 0.9), expected)
