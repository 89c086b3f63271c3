"""Normalisers: hat features, snapping and action maps, on NumPy and JAX arrays alike."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.data import Dataset, normalise
from pspo.data.batches import device_dataset, pick_transitions, sample_transitions
from pspo.data.normalise import Normaliser, fit_normaliser, squash

ROWS = 700


def dataset(columns: list[np.ndarray], low: Any = (-1.0,), high: Any = (1.0,), **changes: Any) -> Dataset:
    """Episodes of seven rows over the given observation columns."""
    obs = np.stack(columns, axis=1).astype(np.float32)
    rows, rng = len(obs), np.random.default_rng(9)
    fields = {
        "obs": obs,
        "action": rng.uniform(low, high, size=(rows, len(low))),
        "reward": rng.normal(size=rows) * 5,
        "next_obs": obs,
        "terminal": np.arange(rows) % 7 == 6,
        "timeout": np.zeros(rows, bool),
        "action_low": np.array(low, np.float32),
        "action_high": np.array(high, np.float32),
    }
    return Dataset(**(fields | changes))


def noise(seed: int = 0, rows: int = ROWS) -> np.ndarray:
    return np.random.default_rng(seed).normal(3.0, 2.0, size=rows)


def counter(length: int, rows: int = ROWS) -> np.ndarray:
    return np.arange(rows) % length


def with_grids(*grids: list[float]) -> Normaliser:
    """One free column, then a column per grid; short grids repeat their last point."""
    width = max(map(len, grids))
    points = np.array([[*g, *[g[-1]] * (width - len(g))] for g in grids], np.float32)
    dim = 1 + len(grids)
    return Normaliser(
        obs_mean=np.linspace(0.0, 1.0, dim, dtype=np.float32),
        obs_std=np.linspace(1.0, 2.0, dim, dtype=np.float32),
        obs_low=np.array([-10.0, *(g[0] for g in grids)], np.float32),
        obs_high=np.array([10.0, *(g[-1] for g in grids)], np.float32),
        grid_column=np.arange(1, dim, dtype=np.int32),
        grid_points=points,
        action_low=np.array([-1.0], np.float32),
        action_high=np.array([1.0], np.float32),
        reward_scale=np.float32(1.0),
    )


grids = st.lists(st.integers(-50, 50), min_size=2, max_size=8, unique=True).map(lambda g: [v / 4 for v in sorted(g)])


# Hat functions


@given(grids, grids, st.lists(st.floats(-15, 15, width=32), min_size=2, max_size=2))
@settings(max_examples=60, deadline=None)
def test_hats_are_the_linear_interpolation_weights(first, second, where) -> None:
    """A hat is np.interp of the unit vectors: one-hot at the points, linear between, flat outside, adding up to one."""
    norm = with_grids(first, second)
    encoded = norm.encode(np.array([0.0, *where], np.float32))
    width = norm.grid_points.shape[1]
    assert encoded.shape == (norm.features,) == (3 + 2 * width,)
    for g, (points, x) in enumerate(zip((first, second), where, strict=True)):
        hats = encoded[3 + g * width : 3 + (g + 1) * width]
        expected = [np.interp(np.float32(x), points, unit) for unit in np.eye(len(points))]
        np.testing.assert_allclose(hats[: len(points)], expected, atol=2e-6)
        assert np.all(hats[len(points) :] == 0.0)  # padding
        assert hats.sum() == pytest.approx(1.0, abs=1e-5)


@given(grids)
@settings(max_examples=40, deadline=None)
def test_hats_are_exactly_one_hot_on_the_points(points) -> None:
    norm = with_grids(points, [0.0, 0.5, 0.75, 1.0, 2.0, 4.0, 5.0, 5.5, 6.0])
    obs = np.array([[0.0, p, 0.0] for p in points], np.float32)
    hats = norm.encode(obs)[:, 3 : 3 + norm.grid_points.shape[1]]
    np.testing.assert_array_equal(hats[:, : len(points)], np.eye(len(points)))
    assert np.all(hats[:, len(points) :] == 0.0)


def test_padded_grids_are_never_nan_and_have_finite_gradients() -> None:
    norm = with_grids([0.0, 1.0], [0.0, 1.0, 2.0, 3.0, 4.0])
    obs = jnp.array([[0.0, x, x] for x in (-1e30, -1.0, 0.0, 0.5, 1.0, 7.0, 1e30)])
    assert np.isfinite(norm.encode(np.asarray(obs))).all()
    assert np.isfinite(jax.jit(norm.encode)(obs)).all()
    gradient = jax.jit(jax.grad(lambda o: jnp.square(norm.encode(o)[:, 3:]).sum()))
    assert np.isfinite(gradient(obs[1:-1])).all()


# Both array libraries


@pytest.mark.parametrize("shape", [(), (40,), (2, 3)])
def test_numpy_and_jax_give_the_same_features(shape) -> None:
    norm = fit_normaliser(dataset([noise(), counter(5), noise(1), counter(3)], (-1.0, 0.2), (3.0, 0.9)))
    rng = np.random.default_rng(5)
    obs = rng.normal(2.0, 3.0, size=(*shape, 4)).astype(np.float32)
    action = rng.uniform(norm.action_low, norm.action_high, size=(*shape, 2)).astype(np.float32)
    for method, raw in (
        (norm.encode, obs),
        (norm.snap, obs),
        (norm.unit_action, action),
        (norm.presquash, action),
        (norm.from_unit, action),
        (squash, action),
    ):
        ours, theirs = method(raw), jax.jit(method)(raw)
        assert isinstance(ours, np.ndarray)
        assert isinstance(theirs, jax.Array)
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-6)


# Snapping


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_snapping_moves_grid_columns_to_the_nearest_point_and_no_others(seed) -> None:
    norm = with_grids([0.0, 1.0, 4.0], [-1.0, -0.5])
    obs = np.random.default_rng(seed).normal(0.0, 6.0, size=(20, 3)).astype(np.float32)
    result = norm.snap(obs)
    for row, (free, first, second) in enumerate(obs.tolist()):
        expected = [
            free,
            min([0.0, 1.0, 4.0], key=lambda p: abs(p - min(max(first, 0.0), 4.0))),
            min([-1.0, -0.5], key=lambda p: abs(p - min(max(second, -1.0), -0.5))),
        ]
        np.testing.assert_array_equal(result[row], np.array(expected, np.float32))
    np.testing.assert_array_equal(norm.snap(result), result)


# Actions


bounds = st.tuples(st.integers(-1000, 1000), st.integers(1, 1000)).map(
    lambda b: (np.float32(b[0] / 100), np.float32((b[0] + b[1]) / 100))  # decimals: not exact in binary
)


@given(bounds, st.floats(0, 1))
@settings(max_examples=80, deadline=None)
def test_actions_survive_the_round_trip_to_the_unbounded_space(bound, share) -> None:
    low, high = bound
    norm = with_grids([0.0, 1.0])._replace(action_low=np.array([low]), action_high=np.array([high]))
    action = np.array([low + np.float32(share) * (high - low)], np.float32)
    action = np.clip(action, low, high)
    x = norm.presquash(action)
    assert np.isfinite(x).all()
    assert np.abs(x).max() < 3.0  # within reach of a policy's means
    step = max(abs(low), abs(high)) * 1e-6 + (high - low) * 1e-5
    np.testing.assert_allclose(norm.from_unit(squash(x)), action, atol=step)
    np.testing.assert_allclose(norm.from_unit(norm.unit_action(action)), action, atol=step)


def test_unit_actions_of_asymmetric_bounds() -> None:
    norm = with_grids([0.0, 1.0])._replace(
        action_low=np.array([0.0, -3.0], np.float32), action_high=np.array([4.0, -1.0], np.float32)
    )
    unit = norm.unit_action(np.array([[0.0, -3.0], [4.0, -1.0], [1.0, -2.5], [2.0, -2.0]], np.float32))
    np.testing.assert_array_equal(unit, [[-1, -1], [1, 1], [-0.5, -0.5], [0, 0]])
    expected = np.arctanh(unit / 1.02)
    np.testing.assert_allclose(norm.presquash(norm.from_unit(unit)), expected, rtol=1e-5, atol=1e-7)


def test_actions_beyond_the_bounds_count_as_the_bounds() -> None:
    norm = with_grids([0.0, 1.0])
    far = norm.presquash(np.array([[5.0], [-5.0]], np.float32))
    np.testing.assert_array_equal(far, norm.presquash(np.array([[1.0], [-1.0]], np.float32)))


def test_a_policy_reaches_the_bounds_exactly() -> None:
    norm = with_grids([0.0, 1.0])._replace(
        action_low=np.array([0.0, -3.0], np.float32), action_high=np.array([4.0, -1.0], np.float32)
    )
    ends = np.array([[-3.0, -3.0], [3.0, 3.0]], np.float32)
    np.testing.assert_array_equal(squash(ends), [[-1, -1], [1, 1]])
    np.testing.assert_array_equal(norm.from_unit(squash(ends)), [[0.0, -3.0], [4.0, -1.0]])


@given(bounds)
@settings(max_examples=80, deadline=None)
def test_the_ends_of_the_unit_range_are_exactly_the_bounds(bound) -> None:
    norm = with_grids([0.0, 1.0])._replace(action_low=np.array([bound[0]]), action_high=np.array([bound[1]]))
    for xp in (np, jnp):
        result = norm.from_unit(xp.asarray([[-1.0], [1.0]], dtype=np.float32))
        assert float(result[0, 0]) == bound[0]
        assert float(result[1, 0]) == bound[1]


# Fitting


def test_scales_are_those_of_the_data() -> None:
    data = dataset([noise(), noise(1)], next_obs=np.stack([noise(2), noise(3)], axis=1))
    norm = fit_normaliser(data, gamma=0.9)
    both = np.concatenate([data.obs, data.next_obs]).astype(np.float64)
    np.testing.assert_allclose(norm.obs_mean, both.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(norm.obs_std, both.std(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(norm.obs_low, both.min(axis=0))
    np.testing.assert_array_equal(norm.obs_high, both.max(axis=0))
    encoded = norm.encode(both.astype(np.float32))
    np.testing.assert_allclose(encoded.mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(encoded.std(axis=0), 1.0, rtol=1e-5)


def test_rewards_are_divided_by_the_std_of_discounted_returns_to_go() -> None:
    data = dataset([noise()])
    to_go = []
    for start in range(0, ROWS, 7):
        rewards = data.reward[start : start + 7].astype(np.float64)
        to_go += [sum(0.8**k * r for k, r in enumerate(rewards[t:])) for t in range(7)]
    assert float(fit_normaliser(data, gamma=0.8).reward_scale) == pytest.approx(np.std(to_go), rel=1e-5)


def test_constant_rewards_are_not_scaled() -> None:
    data = dataset([noise()], reward=np.zeros(ROWS))
    assert float(fit_normaliser(data).reward_scale) == 1.0


def test_constant_columns_are_harmless() -> None:
    norm = fit_normaliser(dataset([np.full(ROWS, 5.0), noise()]))
    assert norm.obs_std[0] == 1.0
    assert norm.grid_column.tolist() == []
    encoded = norm.encode(np.array([[5.0, 3.0], [6.0, 3.0]], np.float32))
    np.testing.assert_allclose(encoded[:, 0], [0.0, 1.0], atol=1e-6)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0,)])
def test_several_grids_are_those_of_each_column_side_by_side(shape) -> None:
    random = np.random.default_rng(0)
    data = np.stack([random.integers(0, 9, 500), random.normal(size=500), random.integers(0, 2, 500) * 0.3], axis=1)
    columns, points = normalise._grids((data.astype(np.float32), None))
    assert columns == [0, 2]
    zeros, ones = np.zeros(3, np.float32), np.ones(3, np.float32)
    norm = Normaliser(zeros, ones, zeros, ones, np.array(columns), points, zeros, ones, np.float32(1.0))
    obs = random.normal(scale=4.0, size=(*shape, 3)).astype(np.float32)
    width = points.shape[1]
    features, moved = norm.encode(obs), norm.snap(obs)
    np.testing.assert_array_equal(features[..., :3], obs)
    for g, column in enumerate(columns):
        each = features[..., 3 + g * width : 3 + (g + 1) * width].reshape(-1, width)
        for value, hats in zip(obs[..., column].reshape(-1), each, strict=True):
            kept = np.unique(points[g])
            weights = [np.interp(value, kept, np.eye(len(kept))[i]) for i in range(len(kept))]
            np.testing.assert_allclose(hats[: len(kept)], weights, atol=1e-6)
            assert not hats[len(kept) :].any()
        nearest = points[g][np.abs(obs[..., column, None] - points[g]).argmin(-1)]
        np.testing.assert_array_equal(moved[..., column], nearest)
    np.testing.assert_array_equal(moved[..., 1], obs[..., 1])
    np.testing.assert_array_equal(jnp.asarray(norm.encode(jnp.asarray(obs))), features)
    np.testing.assert_array_equal(norm.snap(jnp.asarray(obs)), moved)


def test_hundreds_of_flags_go_without_hats() -> None:
    """Theirs are linear in the column itself, and 500 of them would be most of the network."""
    random = np.random.default_rng(0)
    flags = random.integers(0, 2, (700, 600)).astype(np.float32)
    assert len(normalise._grids((flags[:, :500], None))[0]) == 500  # 1,000 hats
    assert normalise._grids((flags, None))[0] == []
    flags[:, 7], flags[:, 9] = np.arange(700) % 5, np.arange(700) % 3
    columns, points = normalise._grids((flags, None))
    assert columns == [7, 9]
    assert points.shape == (2, 5)


def test_hundreds_of_counters_get_hats_up_to_the_cap() -> None:
    counters = (np.arange(700)[:, None] + np.arange(300)) % 20
    columns, points = normalise._grids((counters.astype(np.float32), None))
    assert columns == list(range(normalise.GRID_MAX_FEATURES // 20))
    assert points.size <= normalise.GRID_MAX_FEATURES


def test_no_grid_columns_is_plain_standardisation() -> None:
    norm = fit_normaliser(dataset([noise(), noise(1)]))
    assert norm.features == 2
    assert norm.grid_points.shape == (0, 0)
    obs = np.array([[1.0, 2.0]], np.float32)
    np.testing.assert_allclose(norm.encode(obs), (obs - norm.obs_mean) / norm.obs_std)
    np.testing.assert_array_equal(norm.snap(obs), obs)


def test_counters_and_flags_are_grids_and_other_columns_are_not() -> None:
    rows = 2000
    columns = [noise(0, rows), counter(20, rows), counter(33, rows), counter(2, rows) * 0.5 - 1, counter(32, rows)]
    norm = fit_normaliser(dataset(columns))
    assert norm.grid_column.tolist() == [1, 3, 4]
    assert norm.grid_points.shape == (3, 32)
    np.testing.assert_array_equal(norm.grid_points[0], [*range(20), *[19] * 12])
    np.testing.assert_array_equal(norm.grid_points[1], [-1.0, *[-0.5] * 31])
    assert norm.features == 5 + 3 * 32


def test_a_column_with_many_late_values_is_not_a_grid() -> None:
    late = np.where(np.arange(3000) < 1500, counter(4, 3000), noise(4, 3000))
    assert fit_normaliser(dataset([noise(0, 3000), late])).grid_column.tolist() == []


def test_few_rows_make_no_grid() -> None:
    columns = [noise(0, 35), counter(5, 35)]  # 70 values of obs and next_obs: fewer than 20 for each of 5 points
    assert fit_normaliser(dataset(columns)).grid_column.tolist() == []


# Rows on the device


def test_transitions_are_in_the_units_that_networks_take() -> None:
    data = dataset([noise(), counter(5)], (0.0, -3.0), (4.0, -1.0))
    norm = fit_normaliser(data)
    rows = device_dataset(data, norm, 0.9).transitions
    np.testing.assert_array_equal(rows.obs, data.obs)
    np.testing.assert_array_equal(rows.terminal, data.terminal)
    np.testing.assert_allclose(rows.action, (data.action - [2.0, -2.0]) / [2.0, 1.0], atol=1e-6)
    np.testing.assert_allclose(rows.reward * norm.reward_scale, data.reward, rtol=1e-5)


def test_sampled_transitions_are_drawn_uniformly_from_the_dataset() -> None:
    data = dataset([np.arange(50.0), noise(0, 50)], reward=np.arange(50.0))
    log = device_dataset(data, fit_normaliser(data), 0.9)
    drawn = sample_transitions(log, jax.random.PRNGKey(0), 20_000)
    picked = np.asarray(drawn.obs[:, 0]).astype(int)
    for part, whole in zip(drawn, log.transitions, strict=True):
        np.testing.assert_array_equal(part, np.asarray(whole)[picked])
    counts = np.bincount(picked, minlength=50)
    assert counts.min() > 300  # 400 each on average, with a standard deviation of 20
    assert counts.max() < 500


def two_episodes() -> Dataset:
    """Thirty rows that end in a terminal, thirty that are cut off."""
    terminal, timeout = np.zeros(60, bool), np.zeros(60, bool)
    terminal[29], timeout[59] = True, True
    data = dataset([np.arange(60.0), noise(0, 60)], reward=np.arange(60.0))
    return dataclasses.replace(data, terminal=terminal, timeout=timeout)


def test_early_transitions_are_drawn_with_the_weights_of_the_discount() -> None:
    data = two_episodes()
    log = device_dataset(data, fit_normaliser(data), 0.9)
    picked = np.concatenate([np.asarray(pick_transitions(log, jax.random.PRNGKey(k), 1000, 0.25)) for k in range(40)])
    early, uniform = picked.reshape(40, 1000)[:, :250].ravel() % 30, picked.reshape(40, 1000)[:, 250:].ravel() % 30
    assert uniform.mean() == pytest.approx(14.5, abs=0.3)
    weight = 0.9 ** np.arange(30)
    expected = (np.arange(30) * weight).sum() / weight.sum()  # about 7.6
    assert early.mean() == pytest.approx(expected, abs=1.5)  # the list itself is one draw of sixty
    assert set(np.asarray(log.early).tolist()) <= set(range(60))


def test_returns_to_go_are_known_up_to_a_time_out() -> None:
    data = two_episodes()
    norm = fit_normaliser(data)
    log = device_dataset(data, norm, 0.9)
    expected = [sum(0.9 ** (j - i) * j for j in range(i, 30 if i < 30 else 60)) for i in range(60)]
    np.testing.assert_allclose(log.to_go * norm.reward_scale, expected, rtol=1e-4)
    known = np.asarray(log.to_go_known)
    assert known[:30].all()
    left = 60 - np.arange(30, 60)  # rows until the cut, this one included
    np.testing.assert_array_equal(known[30:], 0.9**left < 0.05)
    assert known[30:].any()
    assert not known[30:].all()
