"""The any-step model: windows that stay inside episodes, its targets, the network by hand, and its fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.algorithms.adm import fit as anystep_fit
from pspo.algorithms.adm.fit import (
    AnyStepConfig,
    device_steps,
    fit,
    fit_windows,
    load_or_fit_any_step,
    random_ends,
    score_holdout,
    sequences,
    target_scale,
)
from pspo.algorithms.adm.model import AnyStep, any_step, any_step_loss
from pspo.algorithms.adm.windows import lengths_to, make_windows, split_windows
from pspo.data import Dataset
from pspo.data.normalise import fit_normaliser
from tests.arrays import f32
from tests.dynamics.dynamics_cases import linear_dataset

CONFIG = AnyStepConfig(max_lag=3, width=16, depth=1, blocks=1, steps=300, batch=96, lr=1e-2, evaluate_every=100)


def quiet(*_: object) -> None:
    pass


def counted_dataset(lengths: list[int], terminal: list[bool], **changes: Any) -> Dataset:
    """Episodes of these lengths, whose numbers are their indices: transition i has obs 100 i, action i / 100."""
    size, ends = sum(lengths), np.cumsum(lengths) - 1
    row = np.arange(size, dtype=np.float32)
    last = np.isin(np.arange(size), ends)
    over = np.zeros(size, bool)
    over[ends] = terminal
    fields = {
        "obs": 100.0 * row[:, None],
        "action": row[:, None] / 100.0,
        "reward": row + 0.25,
        "next_obs": 100.0 * row[:, None] + 7.0,
        "terminal": over,
        "timeout": last & ~over,
        "action_low": np.array([-1.0]),
        "action_high": np.array([1.0]),
    }
    return Dataset(**(fields | changes))


# Windows


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=2, max_size=8),
    most=st.integers(1, 5),
    seed=st.integers(0, 1000),
    held=st.floats(0.05, 0.6),
)
def test_windows_are_all_those_inside_one_episode_and_apart_from_the_hold_out(
    lengths: list[int], most: int, seed: int, held: float
) -> None:
    data = counted_dataset(lengths, [seed % 2 == 0] * len(lengths))
    episode = np.repeat(np.arange(len(lengths)), lengths)
    train, holdout = split_windows(data, held, most, seed)
    apart = set(holdout.ends.tolist())
    assert apart.isdisjoint(train.ends.tolist())
    assert len(apart) + len(train.ends) == data.size
    for windows, ends, forbidden in ((train, set(range(data.size)) - apart, apart), (holdout, apart, set())):
        assert windows.lags <= most
        for k in range(1, most + 1):
            inside = {e for e in ends if e - k + 1 >= 0 and episode[e - k + 1] == episode[e]}
            expected = {e for e in inside if forbidden.isdisjoint(range(e - k + 1, e + 1))}
            found = windows.ends[: windows.counts[k - 1]].tolist() if k <= windows.lags else []
            assert set(found) == expected
            assert len(found) == len(expected)


def test_a_window_has_its_old_state_its_actions_and_its_last_reward_and_state() -> None:
    data = counted_dataset([4, 1, 3], [True, False, False])
    windows = make_windows(np.arange(8), lengths_to(data), 3)
    assert windows.counts.tolist() == [8, 5, 3]
    assert set(windows.ends[:3].tolist()) == {2, 3, 7}
    norm = fit_normaliser(data)
    ends = jnp.array([[4, 0], [1, 6], [3, 7]])  # of lags 1, 2 and 3
    seen = jax.jit(sequences)(device_steps(data, norm), ends)
    for k, row in ((k, row) for k in (1, 2, 3) for row in (0, 1)):
        end = int(ends[k - 1, row])
        old = end - k + 1
        np.testing.assert_allclose(seen.features[k - 1, row], norm.encode(data.obs[old]), rtol=1e-5)
        taken = np.asarray(seen.action[k - 1, row])[-k:, 0]
        np.testing.assert_allclose(taken, np.arange(old, end + 1) / 100.0, atol=1e-6)
        expected = [100.0 * end + 7.0 - 100.0 * old, (end + 0.25) / norm.reward_scale]
        np.testing.assert_allclose(seen.target[k - 1, row], expected, rtol=1e-5)
    assert seen.counts is None


def test_drawn_windows_are_of_their_lag() -> None:
    data = counted_dataset([4, 1, 3], [True, False, False])
    windows = make_windows(np.arange(8), lengths_to(data), 3)
    drawn = np.asarray(random_ends(jnp.asarray(windows.ends), jnp.asarray(windows.counts), 200, jax.random.PRNGKey(0)))
    for k in (1, 2, 3):
        assert set(drawn[k - 1].tolist()) == set(windows.ends[: windows.counts[k - 1]].tolist())


def test_targets_have_one_scale_to_which_each_lag_contributes_alike() -> None:
    data = linear_dataset(60)
    norm, windows = fit_normaliser(data), make_windows(np.arange(60), lengths_to(data), 3)
    by_lag = []
    for k in (1, 2, 3):
        ends = windows.ends[: windows.counts[k - 1]]
        change = data.next_obs[ends] - data.obs[ends - k + 1]
        by_lag.append(np.column_stack([change, data.reward[ends] / norm.reward_scale]).astype(np.float64))
    mean, std = target_scale(data, norm, windows)
    expected = np.mean([part.mean(0) for part in by_lag], axis=0)
    np.testing.assert_allclose(mean, expected, rtol=1e-4, atol=1e-6)
    deviation = np.sqrt(np.mean([((part - expected) ** 2).mean(0) for part in by_lag], axis=0))
    np.testing.assert_allclose(std, deviation, rtol=1e-4)
    still = dataclasses.replace(data, next_obs=np.ones_like(data.obs), obs=np.ones_like(data.obs))
    assert target_scale(still, norm, windows)[1][0] == 1.0


# The network


def made_model(lags: int = 3, dropout: float = 0.0) -> AnyStep:
    """Two layers, two blocks, random bounds and scales."""
    rng = np.random.default_rng(lags)
    scale = f32(rng.normal(size=3)), f32(rng.uniform(0.5, 2.0, size=3))
    sizes = {"inputs": 3, "width": 4, "depth": 2, "blocks": 2, "dropout": dropout}
    form = any_step(jax.random.PRNGKey(0), **sizes, target_mean=scale[0], target_std=scale[1])
    model = jax.tree.map(lambda leaf: f32(rng.normal(scale=0.7, size=leaf.shape)), form)
    bounds = f32(rng.uniform(-3, -2, 3)), f32(rng.uniform(-0.5, 0.5, 3))
    return dataclasses.replace(
        model, log_var_low=bounds[0], log_var_high=bounds[1], target_mean=scale[0], target_std=scale[1]
    )


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def normalised_by_hand(model: AnyStep, features: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One lag alone: actions (windows, k, columns), the old state at every position, hidden states from zero."""
    net = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), model)
    x, hidden = features, [np.zeros((len(features), u.shape[0])) for u in net.memory.hidden_weights]
    for k in range(actions.shape[1]):
        x = np.concatenate([features, actions[:, k]], axis=1)
        for layer, h in enumerate(hidden):
            a = np.split(x @ net.memory.input_weights[layer] + net.memory.input_biases[layer], 3, axis=1)
            b = np.split(h @ net.memory.hidden_weights[layer] + net.memory.hidden_biases[layer], 3, axis=1)
            keep = sigmoid(a[1] + b[1])
            x = (1 - keep) * np.tanh(a[2] + sigmoid(a[0] + b[0]) * b[2]) + keep * h
            hidden[layer] = x
    blocks = net.blocks
    for w, b, scale, shift in zip(blocks.weights, blocks.biases, blocks.scales, blocks.shifts, strict=True):
        inside = x @ w + b
        x = x + inside * sigmoid(inside)
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6) * scale + shift
    mean, raw = np.split(x @ net.head.weights[0] + net.head.biases[0], 2, axis=1)
    capped = net.log_var_high - np.log1p(np.exp(net.log_var_high - raw))
    return mean, net.log_var_low + np.log1p(np.exp(capped - net.log_var_low))


RNG = np.random.default_rng(5)
FEATURES = RNG.normal(size=(3, 5, 2)).astype(np.float32)
ACTIONS = RNG.uniform(-1, 1, size=(3, 5, 3, 1)).astype(np.float32)


def all_lags_by_hand(model: AnyStep) -> tuple[np.ndarray, np.ndarray]:
    lags = [normalised_by_hand(model, FEATURES[k - 1], ACTIONS[k - 1, :, 3 - k :]) for k in (1, 2, 3)]
    return np.stack([mean for mean, _ in lags]), np.stack([log_var for _, log_var in lags])


def test_all_lags_at_once_are_each_lag_alone_and_in_raw_units() -> None:
    model = made_model()
    both = jax.jit(lambda f, a: (model.normalised(f, a), model.predict(f, a)))
    (mean, log_var), raw = both(FEATURES, ACTIONS)
    expected_mean, expected_log_var = all_lags_by_hand(model)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(log_var, expected_log_var, rtol=1e-4, atol=1e-5)
    assert np.all(log_var > model.log_var_low)
    std = np.asarray(model.target_std, np.float64)
    np.testing.assert_allclose(raw.mean, expected_mean * std + np.asarray(model.target_mean), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(raw.std, np.exp(0.5 * expected_log_var) * std, rtol=1e-4)
    other = ACTIONS.copy()
    other[0, :, :2], other[1, :, :1] = 9.0, 9.0  # what stands before a lag's own actions
    again = both(FEATURES, other)[1]
    np.testing.assert_array_equal(again.mean, raw.mean)


@pytest.mark.parametrize(("exponent", "some"), [(0.0, False), (0.5, True)])
def test_the_loss_is_the_likelihood_of_the_known_targets(exponent: float, some: bool) -> None:
    model = made_model()
    target = RNG.normal(size=(3, 5, 3)).astype(np.float32)
    counts = RNG.random((3, 5, 3)) < 0.6 if some else None
    key = jax.random.PRNGKey(0)
    inputs = {"features": FEATURES, "action": ACTIONS, "counts": counts, "exponent": exponent, "key": key}
    loss = jax.jit(lambda y: any_step_loss(model, target=y, **inputs))
    mean, log_var = all_lags_by_hand(model)
    each = ((mean - target) ** 2 / np.exp(log_var) + log_var) * np.exp(exponent * log_var)
    expected = (each if counts is None else each * counts).mean()
    expected += 0.01 * float((model.log_var_high - model.log_var_low).sum())
    assert float(loss(target)) == pytest.approx(expected, rel=1e-4)
    if counts is not None:
        assert float(loss(np.where(counts, target, 50.0))) == float(loss(target))


def test_with_a_key_units_are_dropped_and_the_clamp_has_a_gradient_outside() -> None:
    model = made_model(dropout=0.3)
    run = jax.jit(lambda key: model.normalised(FEATURES, ACTIONS, key)[0])  # pyright: ignore[reportArgumentType]
    one, other = run(jax.random.PRNGKey(0)), run(jax.random.PRNGKey(1))
    assert not np.allclose(one, other)
    np.testing.assert_array_equal(one, run(jax.random.PRNGKey(0)))
    far = dataclasses.replace(model, head=jax.tree.map(lambda leaf: leaf + 8.0, model.head))
    slope = jax.jit(jax.grad(lambda m: m.normalised(FEATURES, ACTIONS)[1].sum()))(far)
    assert np.all(np.asarray(slope.head.biases[0])[3:] != 0.0)


# The fit


@pytest.fixture(scope="module")
def one_program() -> Iterator[None]:
    """Fits of one configuration share what they compile, as long as this lives."""
    make, programs = anystep_fit.compile_fit, {}

    def shared(rule: Any, *shape: Any) -> Any:
        return programs.setdefault(shape, make(rule, *shape))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anystep_fit, "compile_fit", shared)
        yield


@pytest.fixture(scope="module")
def fitted(one_program: None) -> tuple[Any, ...]:
    data = linear_dataset(1000)
    norm = fit_normaliser(data)
    return data, norm, *fit(data, norm, CONFIG, 0, quiet)


def test_a_fit_predicts_better_and_keeps_the_best_model(fitted: tuple[Any, ...]) -> None:
    data, norm, model, record = fitted
    train, held = fit_windows(data, CONFIG, 0)
    fresh = anystep_fit.fresh_model(
        jax.random.PRNGKey(0), data, norm, CONFIG, *map(jnp.asarray, target_scale(data, norm, train))
    )
    holdout = device_steps(data, norm), jnp.asarray(held.ends), jnp.asarray(held.counts), jnp.asarray(norm.obs_std)
    before, after = score_holdout(fresh, *holdout), score_holdout(model, *holdout)
    assert np.all(np.asarray(after.error) < 0.5 * np.asarray(before.error))
    assert np.all(np.asarray(after.ahead) < np.asarray(after.no_change))
    np.testing.assert_array_equal(after.error, record.kept.error)
    assert float(after.error.mean()) == pytest.approx(min(error for _, _, error in record.curve))
    assert [step for step, _, _ in record.curve] == [100, 200, 300]
    np.testing.assert_array_equal(model.target_std, fresh.target_std)  # scales are not trained
    assert not np.array_equal(model.log_var_high, fresh.log_var_high)  # and bounds are


def test_the_hold_out_score_is_over_the_windows_of_each_lag(fitted: tuple[Any, ...]) -> None:
    data, norm, model, record = fitted
    held = fit_windows(data, CONFIG, 0)[1]
    likelihood = []
    for k, count in enumerate(held.counts, start=1):
        ends = held.ends[:count]
        old = ends - k + 1
        actions = np.stack([data.action[old + i] for i in range(k)], axis=1)  # already in units
        mean, log_var = normalised_by_hand(model, norm.encode(data.obs[old]), actions)
        truth = np.column_stack([data.next_obs[ends] - data.obs[old], data.reward[ends] / norm.reward_scale])
        scale = np.asarray(model.target_std, np.float64)
        away = mean - (truth - np.asarray(model.target_mean)) / scale
        assert float(record.kept.error[k - 1]) == pytest.approx((away**2).mean(), rel=1e-3)
        columns = (away * scale)[:, :2] / norm.obs_std
        assert float(record.kept.ahead[k - 1]) == pytest.approx(np.sqrt((columns**2).mean()), rel=1e-3)
        still = truth[:, :2] / norm.obs_std
        assert float(record.kept.no_change[k - 1]) == pytest.approx(np.sqrt((still**2).mean()), rel=1e-3)
        likelihood.append(-0.5 * (away**2 / np.exp(log_var) + log_var + np.log(2 * np.pi)))
    expected = np.concatenate(likelihood).mean()
    assert float(record.kept.log_likelihood) == pytest.approx(expected, rel=1e-3)


def test_a_fit_depends_on_its_seed_and_the_cache_is_exact_bit_for_bit(fitted: tuple[Any, ...]) -> None:
    data, norm, model, record = fitted
    first, info = load_or_fit_any_step(data, norm, CONFIG, 9, quiet)  # the model's own seed is 0, whatever the run's
    second, again = load_or_fit_any_step(data, norm, CONFIG, 3, pytest.fail)
    assert (info["cached"], again["cached"]) == (False, True)
    assert info | {"cached": True} == again
    assert (info["lags"], info["steps"]) == (3, 300)
    np.testing.assert_allclose(info["holdout_error"], record.kept.error, atol=1e-5)
    for a, b, c in zip(*(jax.tree.leaves(tree) for tree in (model, first, second)), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes() == np.asarray(c).tobytes()
    assert second.dropout == CONFIG.dropout
    other = fit(data, norm, CONFIG, 1, quiet)[0]
    assert not np.array_equal(other.head.weights[0], model.head.weights[0])
    keys = {load_key(data, norm, config) for config in (CONFIG, dataclasses.replace(CONFIG, max_lag=2))}
    assert len(keys) == 2


def load_key(data: Dataset, norm: Any, config: AnyStepConfig) -> str:
    return anystep_fit.content_key("anystep", anystep_fit.RECIPE, data, norm, config, 0)


def test_nothing_is_learned_from_unknown_next_states(one_program: None) -> None:
    lost = np.arange(200) % 10 == 9
    data = linear_dataset(200, terminal=lost, timeout=np.zeros(200, bool), next_known=~lost)
    norm, config = fit_normaliser(data), dataclasses.replace(CONFIG, steps=100)
    model, record = fit(data, norm, config, 0, quiet)
    invented = data.next_obs.copy()
    invented[lost] = 77.0
    object.__setattr__(data, "next_obs", invented)  # as if the placeholder were not cleaned away
    same, same_record = fit(data, norm, config, 0, quiet)
    for a, b in zip(jax.tree.leaves(model), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(record.kept.error, same_record.kept.error)
