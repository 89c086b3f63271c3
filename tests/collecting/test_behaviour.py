"""Behaviour policies from files: the same actions as sums by hand, and one sentence for every defect."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from pspo.collecting.behaviour import Gaussian, Uniform, load_behaviour, save_behaviour
from pspo.core.errors import UserError
from tests.collecting.collecting_cases import ACTION_DIM, OBS_DIM, expected_action, policy_arrays


def loaded(path: Path, arrays: dict[str, np.ndarray]) -> Gaussian:
    np.savez(path / "policy.npz", **arrays)
    return load_behaviour(path / "policy.npz", OBS_DIM, ACTION_DIM)[0]


@pytest.mark.parametrize("squash", ["tanh", "clip"])
@pytest.mark.parametrize("noise", ["state", "vector"])
@pytest.mark.parametrize(("activation", "scaled"), [("relu", False), ("relu", True), ("tanh", True)])
def test_actions_are_those_of_the_format(squash, noise, activation, scaled, tmp_path: Path) -> None:
    arrays = policy_arrays(noise, squash, activation, scaled)
    policy, rng = loaded(tmp_path, arrays), np.random.default_rng(1)
    obs, eps = 3 * rng.normal(size=(7, OBS_DIM)).astype(np.float32), rng.normal(size=(7, ACTION_DIM)).astype(np.float32)
    mode = [expected_action(arrays, row, None) for row in obs]
    sampled = [expected_action(arrays, row, e) for row, e in zip(obs, eps, strict=True)]
    np.testing.assert_allclose(policy.mode(obs), mode, atol=2e-5)
    np.testing.assert_allclose(policy.sample(obs, eps), sampled, atol=2e-5)
    assert policy.sample(obs, eps).dtype == np.float32


def test_the_standard_deviation_is_clipped_on_both_sides(tmp_path: Path) -> None:
    arrays = policy_arrays("vector", "clip")
    arrays["log_std"] = np.array([9.0, -50.0, 0.0], np.float32)
    _, log_std = loaded(tmp_path, arrays).moments(np.zeros((1, OBS_DIM)))
    assert log_std.tolist() == [2.0, -20.0, 0.0]


def test_an_action_does_not_depend_on_the_rest_of_the_batch(tmp_path: Path) -> None:
    """To the last bit: sums over a batch would round differently for every size of it."""
    arrays = policy_arrays(seed=3)
    rng = np.random.default_rng(0)
    arrays |= {"w0": rng.normal(size=(OBS_DIM, 64)).astype(np.float32), "b0": np.zeros(64, np.float32)}
    arrays["w1"] = rng.normal(size=(64, 4)).astype(np.float32)
    policy = loaded(tmp_path, arrays)
    obs, noise = rng.normal(size=(16, OBS_DIM)), rng.normal(size=(16, ACTION_DIM))
    whole = policy.sample(obs, noise)
    for size in (1, 3, 5, 16):
        for first in range(0, 16, size):
            rows = slice(first, first + size)
            np.testing.assert_array_equal(policy.sample(obs[rows], noise[rows]), whole[rows])


@pytest.mark.parametrize("noise", ["state", "vector"])
def test_a_saved_policy_is_read_back_unchanged_with_its_checksum(noise, tmp_path: Path) -> None:
    policy = loaded(tmp_path, policy_arrays(noise, scaled=True))
    save_behaviour(policy, tmp_path / "again.npz")
    again, sha256 = load_behaviour(tmp_path / "again.npz", OBS_DIM, ACTION_DIM)
    assert sha256 == hashlib.sha256((tmp_path / "again.npz").read_bytes()).hexdigest()
    before, after = policy.arrays(), again.arrays()
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)


def without(name: str) -> dict[str, np.ndarray]:
    return {key: value for key, value in policy_arrays().items() if key != name}


def changed(**arrays) -> dict[str, np.ndarray]:
    return policy_arrays() | {name: np.asarray(value) for name, value in arrays.items()}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (without("mean_w"), "'mean_w' is missing"),
        (without("b1"), "'b1' is missing"),
        (without("log_std_b"), "'log_std_b' is missing"),
        (without("activation"), "'activation' is missing: give one of the texts relu, tanh"),
        (changed(w0=np.zeros((17, 5))), r"'w0' has shape \(17, 5\), but .* need \(11, any\)"),
        (changed(w1=np.zeros((6, 4))), r"'w1' has shape \(6, 4\), but .* need \(5, any\)"),
        (changed(mean_w=np.zeros((4, 6))), r"'mean_w' has shape \(4, 6\), but .* need \(4, 3\)"),
        (changed(b0=np.zeros((1, 5))), "'b0' has shape"),
        (changed(b1=[1.0, np.nan, 0.0, 0.0]), "'b1' holds values that are not finite"),
        (changed(b1=["a", "b", "c", "d"]), "'b1' holds values of type <U1"),
        (changed(activation="rleu"), "unknown activation 'rleu': did you mean 'relu'"),
        (changed(squash="sigmoid"), "unknown squash 'sigmoid'"),
        (changed(squash=3), "'squash' is not a text"),
        (changed(obs_mean=np.zeros(OBS_DIM)), "'obs_std' is missing"),
        (changed(obs_mean=np.zeros(OBS_DIM), obs_std=np.zeros(OBS_DIM)), "'obs_std' is not positive"),
        (changed(obs_meen=np.zeros(OBS_DIM)), "'obs_meen' has no meaning"),
        (changed(w3=np.zeros((4, 4))), "'w3' has no meaning"),  # a layer after a gap would be left out in silence
        (changed(w0=np.array([None, 1], dtype=object)), "'w0' holds pickled objects, which are never loaded"),
    ],
)
def test_a_defect_is_reported_in_one_sentence(arrays, message, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message) as error:
        loaded(tmp_path, arrays)
    assert "\n" not in str(error.value)
    assert "policy.npz" in str(error.value)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file"):
        load_behaviour(tmp_path / "nothing.npz", OBS_DIM, ACTION_DIM)
    with pytest.raises(UserError, match="is a folder"):
        load_behaviour(tmp_path, OBS_DIM, ACTION_DIM)
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(UserError, match="not an NPZ file"):
        load_behaviour(tmp_path / "text.npz", OBS_DIM, ACTION_DIM)
    np.savez(tmp_path / "cut.npz", **policy_arrays())
    content = (tmp_path / "cut.npz").read_bytes()
    for size in (10, len(content) // 2, len(content) - 5):
        (tmp_path / "cut.npz").write_bytes(content[:size])
        with pytest.raises(UserError, match="damaged"):
            load_behaviour(tmp_path / "cut.npz", OBS_DIM, ACTION_DIM)


def test_the_uniform_policy_covers_the_range_in_every_state() -> None:
    policy, rng = Uniform(2), np.random.default_rng(0)
    noise = np.stack([policy.draw(rng) for _ in range(2000)])
    actions = policy.sample(np.full((2000, 4), np.nan), noise)
    assert (np.abs(actions) <= 1).all()
    np.testing.assert_allclose(np.histogram(actions, 4, (-1, 1))[0] / 4000, 0.25, atol=0.03)
