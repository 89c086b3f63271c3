"""The stacked dynamics networks, member by member against NumPy."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pspo.dynamics.ensemble import Prediction, draw_next, ensemble, model_inputs
from tests.dynamics.dynamics_cases import made_ensemble, member_by_hand, plain_norm, predict_by_hand

shared = jax.jit(lambda models, x: models.normalised(x))
each = jax.jit(lambda models, x: models.normalised(x, each=True))
predict = jax.jit(lambda models, x: models.predict(x))


def some_inputs(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(*shape, 3)).astype(np.float32)


def test_one_input_for_all_members() -> None:
    models, x = made_ensemble(), some_inputs(6)
    mean, log_std = shared(models, x)
    prediction = predict(models, x)
    assert mean.shape == log_std.shape == prediction.mean.shape == prediction.std.shape == (3, 6, 3)
    for m in range(3):
        expected = member_by_hand(models, m, x)
        np.testing.assert_allclose(mean[m], expected[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(log_std[m], expected[1], rtol=1e-4, atol=1e-5)
        expected = predict_by_hand(models, m, x)
        np.testing.assert_allclose(prediction.mean[m], expected[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(prediction.std[m], expected[1], rtol=1e-4, atol=1e-5)


def test_an_input_for_each_member() -> None:
    models, x = made_ensemble(), some_inputs(3, 6)
    mean, log_std = each(models, x)
    for m in range(3):
        expected = member_by_hand(models, m, x[m])
        np.testing.assert_allclose(mean[m], expected[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(log_std[m], expected[1], rtol=1e-4, atol=1e-5)


def test_layer_normalisation_makes_outputs_bounded_far_from_the_dataset() -> None:
    shape = {"members": 2, "inputs": 3, "width": 8, "depth": 2, "target_mean": np.zeros(2), "target_std": np.ones(2)}
    plain, normalised = (ensemble(jax.random.PRNGKey(0), **shape, layer_norm=on) for on in (False, True))
    x = some_inputs(5)
    near, far = (np.abs(np.asarray(shared(normalised, size * x)[0])).max() for size in (1.0, 1e4))
    assert far < 3.0 * near
    assert np.abs(np.asarray(shared(plain, 1e4 * x)[0])).max() > 100.0 * near
    hidden, net = x.astype(np.float64), jax.tree.map(lambda leaf: np.asarray(leaf[0], np.float64), normalised.net)
    for w, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
        hidden = hidden @ w + b
        hidden = (hidden - hidden.mean(-1, keepdims=True)) / np.sqrt(hidden.var(-1, keepdims=True) + 1e-6)
        hidden = hidden / (1.0 + np.exp(-hidden))
    expected = (hidden @ net.weights[-1] + net.biases[-1])[:, :2]
    np.testing.assert_allclose(shared(normalised, x)[0][0], expected, rtol=1e-3, atol=1e-5)


def test_the_soft_clamp_holds_for_any_output_of_the_network() -> None:
    """Never under the floor; over the ceiling by no more than the softness of the floor, log(1 + exp(low - high))."""
    models = made_ensemble(scale=30.0)
    log_std = np.asarray(shared(models, some_inputs(200))[1])
    low, high = np.asarray(models.log_std_low)[:, None], np.asarray(models.log_std_high)[:, None]
    assert np.isfinite(log_std).all()
    assert np.all(log_std >= low - 1e-5)
    assert np.all(log_std <= high + np.log1p(np.exp(low - high)) + 1e-5)
    assert np.any(log_std < low + 0.01)  # both ends are reached
    assert np.any(log_std > high - 0.01)


def test_in_the_middle_the_clamp_changes_little() -> None:
    models = made_ensemble()
    bounds = (models.log_std_low - 20, models.log_std_high + 20)
    wide = eqx.tree_at(lambda e: (e.log_std_low, e.log_std_high), models, bounds)
    x = some_inputs(6)
    raw = np.stack([raw_log_std(models, m, x) for m in range(3)])
    np.testing.assert_allclose(shared(wide, x)[1], raw, rtol=1e-4, atol=1e-4)


def raw_log_std(models, m: int, x: np.ndarray) -> np.ndarray:
    (w0, w1), (b0, b1) = ([np.asarray(leaf[m]) for leaf in part] for part in (models.net.weights, models.net.biases))
    hidden = x @ w0 + b0
    return ((hidden / (1 + np.exp(-hidden))) @ w1 + b1)[:, 3:]


def test_taking_members_is_taking_their_predictions() -> None:
    models, x = made_ensemble(members=5), some_inputs(4)
    some = models.take(jnp.array([4, 1]))
    assert (models.size, some.size) == (5, 2)
    whole, part = predict(models, x), predict(some, x)
    np.testing.assert_allclose(part.mean, whole.mean[np.array([4, 1])], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(part.std, whole.std[np.array([4, 1])], rtol=1e-5, atol=1e-6)


def test_a_new_ensemble_predicts_about_the_mean_with_a_large_std() -> None:
    mean, std = np.array([1.0, -2.0, 3.0], np.float32), np.array([0.5, 2.0, 1.0], np.float32)
    shape = {"members": 3, "inputs": 3, "width": 8, "depth": 1}
    make = jax.jit(lambda key: ensemble(key, **shape, target_mean=mean, target_std=std))
    models = make(jax.random.PRNGKey(0))
    prediction = predict(models, some_inputs(50))
    assert np.all(np.abs(prediction.mean - mean) < std)
    assert np.all(prediction.std > 0.5 * std)
    assert np.all(prediction.std < 2.0 * std)
    assert len({np.asarray(w).tobytes() for w in models.net.weights[0]}) == 3


def test_inputs_are_the_encoded_observation_and_the_unit_action() -> None:
    norm = plain_norm()
    x = model_inputs(norm, jnp.array([[1.5, 2.5]]), jnp.array([[-0.25]]))
    np.testing.assert_allclose(x, [[2.0, 1.0, -0.25]], rtol=1e-6)


def test_next_observations_share_their_noise() -> None:
    rng = np.random.default_rng(0)
    obs, noise = rng.uniform(-1, 1, size=(4, 2)), rng.normal(size=(6, 1, 4, 2))
    mean, std = rng.normal(size=(3, 4, 3)), rng.uniform(0.1, 0.5, size=(3, 4, 3))
    result, reward = jax.jit(lambda *a: draw_next(a[0], Prediction(a[1], a[2]), a[3]))(obs, mean, std, noise)
    assert result.shape == (6, 3, 4, 2)
    for k in range(6):
        for m in range(3):
            expected = obs + mean[m, :, :2] + std[m, :, :2] * noise[k, 0]
            np.testing.assert_allclose(result[k, m], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(reward, mean[..., 2], rtol=1e-6)  # the expected reward, without noise
