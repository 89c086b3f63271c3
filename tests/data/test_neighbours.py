"""Nearest states against a search by hand over all pairs."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.data import neighbours
from pspo.data.neighbours import APART, chunks, mean_spacing, nearest_states, neighbourhoods, state_tree


@st.composite
def states(draw: st.DrawFn) -> np.ndarray:
    """Few values in few columns: most examples have several copies of a state."""
    rows, columns = draw(st.integers(1, 25)), draw(st.integers(1, 3))
    return draw(hnp.arrays(np.float32, (rows, columns), elements=st.integers(-3, 3)))


def distances_by_hand(obs: np.ndarray) -> np.ndarray:
    wide = obs.astype(np.float64)
    return np.sqrt(((wide[:, None] - wide[None]) ** 2).sum(-1))


@settings(max_examples=60, deadline=None)
@given(obs=states(), count=st.integers(1, 8), within=st.sampled_from([0.0, 1.0, 1.5, np.inf]))
def test_neighbours_are_those_of_a_search_over_all_pairs(obs, count: int, within: float) -> None:
    result = nearest_states(state_tree(obs), np.arange(len(obs)), count, within)
    every = distances_by_hand(obs)
    for i in range(len(obs)):
        wanted = np.sort(every[i])[:count]
        wanted = wanted[wanted <= within]
        real = np.isfinite(result.distance[i])
        np.testing.assert_allclose(result.distance[i][real], wanted, rtol=1e-12)
        np.testing.assert_allclose(every[i, result.row[i][real]], wanted, rtol=1e-12)
        assert len(set(result.row[i][real])) == real.sum()
        assert (result.row[i, 0], result.distance[i, 0]) == (i, 0.0)
        assert (result.row[i][~real] == i).all()


def test_a_state_with_many_copies_is_its_own_first_neighbour() -> None:
    obs = np.repeat(np.array([[0.0, 1.0], [5.0, 5.0]], np.float32), 40, axis=0)
    result = nearest_states(state_tree(obs), np.arange(80), 10)
    np.testing.assert_array_equal(result.row[:, 0], np.arange(80))
    assert all(len(set(row)) == 10 for row in result.row.tolist())
    np.testing.assert_array_equal(result.row // 40, np.repeat([[0], [1]], 40, axis=0) * np.ones((1, 10)))


@settings(max_examples=40, deadline=None)
@given(obs=states())
def test_the_spacing_leaves_copies_out(obs) -> None:
    every = distances_by_hand(obs)
    nearest = [row[row > APART].min() for row in every if (row > APART).any()]
    wanted = np.mean(nearest) if nearest else 0.0
    assert mean_spacing(state_tree(obs), len(obs)) == pytest.approx(wanted)


def test_the_spacing_ignores_states_with_copies_only() -> None:
    obs = np.array([[0.0]] * 5 + [[7.0], [9.0]], np.float32)
    assert mean_spacing(state_tree(obs), 3) == pytest.approx(2.0)  # of the two that stand alone
    assert mean_spacing(state_tree(np.zeros((6, 2), np.float32)), 3) == 0.0


@settings(max_examples=40, deadline=None)
@given(obs=states(), count=st.integers(1, 8), epsilon=st.sampled_from([0.0, 1.0, 1.5]), piece=st.integers(1, 9))
def test_neighbourhoods_are_the_concatenated_neighbours(obs, count: int, epsilon: float, piece: int) -> None:
    done: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "CHUNK", piece)
        result, spacing = neighbourhoods(obs, count, epsilon, done.append)
    assert spacing == mean_spacing(state_tree(obs), count)
    assert (done == sorted(done), done[-1]) == (True, 2 * len(obs))
    every, start = distances_by_hand(obs), 0
    for i, size in enumerate(result.size):
        row = result.row[start : start + size]
        wanted = np.sort(every[i])[:count]
        np.testing.assert_allclose(every[i, row], wanted[wanted <= epsilon * spacing * (1.0 + 1e-12)])
        assert row[0] == i
        start += size
    assert start == len(result.row)
    assert result.others == pytest.approx(start / len(obs) - 1.0)


def test_chunks_cover_all_states_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "CHUNK", 4)
    np.testing.assert_array_equal(np.concatenate(list(chunks(10))), np.arange(10))
    obs = np.random.default_rng(0).normal(size=(10, 2)).astype(np.float32)
    done: list[int] = []
    spacing = mean_spacing(state_tree(obs), 5, done.append)
    assert done == [4, 8, 10]
    every = distances_by_hand(obs) + np.diag(np.full(10, np.inf))
    assert spacing == pytest.approx(every.min(1).mean())
