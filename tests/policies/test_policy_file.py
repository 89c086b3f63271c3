"""The deployed policy: the same actions as the trained network, complete in one file, clear when something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.core.errors import UserError
from pspo.core.files import write_arrays
from pspo.nets.actors import act
from pspo.policies.heads import mixture_moments
from pspo.policies.policy import FILE_NAME, FORMAT, Policy, from_network, load_policy, to_network
from tests.core.core_cases import HIGH, LOW, lively_network, small_norm
from tests.refusals import message_of

FACTS = {"algo": "pspo", "dataset": "made up", "task": None, "seed": 3, "preset": "smoke", "step": 10}
NORM = small_norm()
NETWORK = lively_network(NORM)
POLICY = from_network(NETWORK, NORM, FACTS)


@jax.jit
def jax_act(network, obs):
    return act(network, NORM, obs)


def some_obs(rows: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.normal(size=rows), rng.integers(0, 5, size=rows)], axis=1).astype(np.float32)


def assert_same_policy(a: Policy, b: Policy) -> None:
    assert (a.kind, a.numbers, a.metadata) == (b.kind, b.numbers, b.metadata)
    assert {n: net.activation for n, net in a.nets.items()} == {n: net.activation for n, net in b.nets.items()}
    for x, y in zip(all_arrays(a), all_arrays(b), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        assert x.tobytes() == y.tobytes()


def all_arrays(policy: Policy) -> list[np.ndarray]:
    nets = [array for net in policy.nets.values() for array in (*net.weights, *net.biases)]
    return [np.asarray(array) for array in (*nets, *policy.arrays.values(), *policy.norm)]


# Actions


@pytest.mark.parametrize("components", [1, 3])
def test_numpy_and_jax_agree_on_batches_and_single_observations(components: int) -> None:
    network = lively_network(NORM, components)
    policy, obs = from_network(network, NORM, {}), some_obs(200)
    expected = np.asarray(jax_act(network, obs))
    assert expected.std(axis=0).min() > 0.02  # the network does something
    found = policy(obs)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert (found.shape, found.dtype) == ((200, 2), np.float32)
    for row in range(5):
        single = policy(obs[row])
        assert single.shape == (2,)
        np.testing.assert_allclose(single, expected[row], atol=1e-5)
    np.testing.assert_allclose(policy(obs.reshape(4, 50, 2)), expected.reshape(4, 50, 2), atol=1e-5)


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=2))
@settings(max_examples=50, deadline=None)
def test_actions_far_from_the_data_are_finite_bounded_and_the_same(obs: list[float]) -> None:
    """The comparison is loose: both are float32, and far out a rounding error is multiplied by the distance."""
    raw = np.array(obs, np.float32)
    found = POLICY(raw)
    assert np.all(found >= LOW - 1e-6)
    assert np.all(found <= HIGH + 1e-6)
    np.testing.assert_allclose(found, jax_act(NETWORK, raw), atol=2e-3)


def test_lists_and_doubles_are_observations_too() -> None:
    assert np.array_equal(POLICY([0.5, 2.0]), POLICY(np.array([0.5, 2.0], np.float64)))


@pytest.mark.parametrize("wrong", [np.zeros(3), np.zeros((5, 1)), np.float32(1.0), np.zeros((2, 3))])
def test_an_observation_of_another_shape_is_refused(wrong) -> None:
    for ask in (POLICY, lambda obs: POLICY.sample(obs, np.random.default_rng(0))):
        with pytest.raises(UserError, match="2 numbers"):
            ask(wrong)


# Samples


def test_samples_have_the_mean_and_std_of_the_squashed_mixture() -> None:
    """Against quadrature: E[g(x)] of each Gaussian by Gauss-Hermite, summed with the mixture's weights."""
    obs = some_obs(3, seed=1)
    mixture = jax.jit(lambda features: NETWORK(features))(jnp.asarray(NORM.encode(obs)))
    node, node_weight = np.polynomial.hermite_e.hermegauss(101)
    node_weight = node_weight / node_weight.sum()
    x = np.asarray(mixture.mean)[..., None] + np.exp(np.asarray(mixture.log_std))[..., None] * node
    u = np.clip(1.02 * np.tanh(x), -1.0, 1.0)
    action = LOW[:, None] + (u + 1.0) / 2.0 * (HIGH - LOW)[:, None]  # (batch, K, d, nodes)
    weight = np.exp(np.asarray(mixture.log_weight))[..., None]
    mean = (weight * (action @ node_weight)).sum(axis=1)
    variance = (weight * (action**2 @ node_weight)).sum(axis=1) - mean**2
    drawn = POLICY.sample(np.broadcast_to(obs, (40_000, 3, 2)), np.random.default_rng(0))
    assert drawn.dtype == np.float32
    assert np.all(drawn >= LOW - 1e-6)
    assert np.all(drawn <= HIGH + 1e-6)
    width = HIGH - LOW
    np.testing.assert_allclose(drawn.mean(axis=0) / width, mean / width, atol=0.01)
    np.testing.assert_allclose(drawn.std(axis=0) / width, np.sqrt(variance) / width, atol=0.01)


def test_the_mixture_is_the_networks_own() -> None:
    features = NORM.encode(some_obs(30))
    expected = jax.jit(lambda x: NETWORK(x))(features)
    logits, mean, log_std = mixture_moments(POLICY.fields, features)
    weight = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(weight, np.exp(expected.log_weight), atol=1e-5)
    np.testing.assert_allclose(mean, expected.mean, atol=1e-5)
    np.testing.assert_allclose(log_std, expected.log_std, atol=1e-5)


def test_samples_follow_the_generator() -> None:
    obs = some_obs(4)
    first, second = (POLICY.sample(obs, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, POLICY.sample(obs, np.random.default_rng(6)))


def test_no_action_passes_the_bounds_even_by_rounding() -> None:
    for low, high in ((-0.1, 0.3), (0.1, 0.7), (-1.3, 0.4), (0.3, 1.1), (-0.7, 0.1)):
        norm = NORM._replace(
            action_low=np.full(2, low, np.float32),
            action_high=np.full(2, high, np.float32),
        )
        for push in (-30.0, 30.0):  # means at the ends of their range: the policy acts at the bounds
            net = POLICY.nets["net"]
            pushed = np.concatenate([net.biases[-1][:3], np.full(6, push), net.biases[-1][9:]]).astype(np.float32)
            policy = replace(POLICY, norm=norm, nets={"net": replace(net, biases=(*net.biases[:-1], pushed))})
            obs = some_obs(50)
            for action in (policy(obs), policy.sample(obs, np.random.default_rng(0))):
                assert np.all(action >= norm.action_low)
                assert np.all(action <= norm.action_high)


# Files


def test_a_saved_policy_is_the_same_policy(tmp_path) -> None:
    POLICY.save(tmp_path / FILE_NAME)
    for place in (tmp_path, tmp_path / FILE_NAME, str(tmp_path)):
        loaded = load_policy(place)
        assert_same_policy(loaded, POLICY)
        np.testing.assert_array_equal(loaded(some_obs(9)), POLICY(some_obs(9)))


def test_a_network_survives_the_round_trip_through_a_policy() -> None:
    back = to_network(POLICY)
    assert jax.tree.structure(back) == jax.tree.structure(NETWORK)
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(NETWORK), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_policy_acts_where_jax_cannot_be_imported(tmp_path) -> None:
    POLICY.save(tmp_path / FILE_NAME)
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "from pspo.policies.policy import load_policy; import json\n"
        "print(json.dumps(load_policy(sys.argv[1])([0.5, 2.0]).tolist()))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), POLICY([0.5, 2.0]), rtol=1e-6)


def refusal(path: Path) -> str:
    return message_of(load_policy, path, naming=path)


def test_damaged_foreign_and_absent_files_are_refused(tmp_path) -> None:
    path = tmp_path / "p.safetensors"
    assert "no policy" in refusal(path)
    POLICY.save(path)
    data = path.read_bytes()
    for broken in (data[:-1], b"", data[:-1] + bytes([data[-1] ^ 255]), b"not a policy at all"):
        path.write_bytes(broken)
        assert "damaged" in refusal(path)
    write_arrays(path, {"a": np.zeros(2, np.float32)}, {"format": "something else"})
    assert "not a policy file" in refusal(path)


def test_a_policy_file_that_lacks_an_array_is_refused(tmp_path) -> None:
    path = tmp_path / "p.safetensors"
    form = {"kind": "mixture", "nets": {"net": {"layers": 1, "activation": "silu"}}, "numbers": {"components": 1}}
    write_arrays(path, {"net.net.weights.0": np.zeros((2, 2), np.float32)}, {"format": FORMAT, **form})
    with pytest.raises(UserError, match="damaged"):
        load_policy(path)


def test_names_of_version_0_1_still_work() -> None:
    assert POLICY.facts == POLICY.metadata
    assert POLICY.parts.keys() == POLICY.fields.keys()
