"""Policies of every kind: densities by quadrature and SciPy, NumPy twins, files, samples."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from pspo.data.normalise import Normaliser
from pspo.nets.actors import NETWORKS, ClippedGaussian, Deterministic, LinearGaussian, Perturbed, TanhGaussian, act
from pspo.nets.mlp import MLP
from pspo.nets.policies import MixturePolicy
from pspo.policies import heads
from pspo.policies.policy import Policy, from_network, to_network
from tests.algorithms.baseline_cases import made_mlp as random_mlp
from tests.algorithms.baseline_cases import net_by_hand
from tests.arrays import f32

OBS, ACT, HIDDEN = 2, 2, 5
LOW, HIGH = np.array([-1.0, 2.0], np.float32), np.array([3.0, 2.5], np.float32)
NORM = Normaliser(
    obs_mean=np.array([0.1, -0.2], np.float32),
    obs_std=np.array([1.0, 1.5], np.float32),
    obs_low=np.full(OBS, -5.0, np.float32),
    obs_high=np.full(OBS, 5.0, np.float32),
    grid_column=np.zeros(0, np.int32),
    grid_points=np.zeros((0, 0), np.float32),
    action_low=LOW,
    action_high=HIGH,
    reward_scale=np.asarray(1.7, np.float32),
)


def made_mlp(sizes: list[int], seed: int = 0, activation: str = "relu") -> MLP:
    return random_mlp(np.random.default_rng(seed), sizes, activation=activation)


def constant(*outputs: float) -> MLP:
    """A network that says the same everywhere; its one layer has a bias to take gradients at."""
    return MLP([jnp.asarray(np.zeros((OBS, len(outputs)), np.float32))], [f32(outputs)], "relu")


def some_features(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, OBS)).astype(np.float32)


log_prob = jax.jit(lambda policy, features, action: policy.log_prob(features, action))
sample = jax.jit(lambda policy, features, noise: policy.sample(features, noise))


# The Gaussian before the tanh


def test_the_density_of_squashed_actions_integrates_to_one() -> None:
    """By Gauss-Legendre quadrature over the square of all actions."""
    policy = TanhGaussian(constant(0.3, -0.5, np.log(0.5), np.log(0.8)))
    node, weight = np.polynomial.legendre.leggauss(120)
    action = np.stack(np.meshgrid(node, node, indexing="ij"), axis=-1).astype(np.float32)
    density = np.exp(np.asarray(log_prob(policy, np.zeros(OBS, np.float32), action), np.float64))
    assert density.shape == (120, 120)
    assert (weight[:, None] * weight * density).sum() == pytest.approx(1.0, abs=2e-3)


def test_the_density_of_given_actions_is_that_of_the_change_of_variables() -> None:
    policy, features = TanhGaussian(made_mlp([OBS, HIDDEN, 2 * ACT])), some_features(6)
    action = np.random.default_rng(1).uniform(-0.99, 0.99, size=(6, ACT)).astype(np.float32)
    mean, log_std = np.split(net_by_hand(policy.net, features), 2, axis=-1)
    u = np.arctanh(action.astype(np.float64))
    by_hand = (scipy.stats.norm.logpdf(u, mean, np.exp(log_std)) - np.log(1.0 - action.astype(np.float64) ** 2)).sum(1)
    np.testing.assert_allclose(log_prob(policy, features, action), by_hand, rtol=1e-4, atol=1e-3)


def test_a_sample_knows_its_own_density() -> None:
    policy, features = TanhGaussian(made_mlp([OBS, HIDDEN, 2 * ACT])), some_features(6)
    noise = np.random.default_rng(1).normal(size=(50, 6, ACT)).astype(np.float32)
    action, density = sample(policy, features, noise)
    assert (action.shape, density.shape) == ((50, 6, ACT), (50, 6))
    mean, log_std = np.split(net_by_hand(policy.net, features), 2, axis=-1)
    np.testing.assert_allclose(action, np.tanh(mean + np.exp(log_std) * noise), atol=1e-5)
    inside = np.abs(np.asarray(action)).max(axis=-1) < 0.999  # float32 does not tell u from a further out
    assert inside.mean() > 0.7
    np.testing.assert_allclose(log_prob(policy, features, action)[inside], density[inside], rtol=1e-3, atol=5e-3)


def test_standard_deviations_are_clipped() -> None:
    policy = TanhGaussian(constant(0.0, 0.0, -40.0, 40.0))
    _, log_std = policy.moments(jnp.zeros(OBS))
    np.testing.assert_array_equal(log_std, [-5.0, 2.0])
    narrow = TanhGaussian(policy.net, log_std_min=-20.0, log_std_max=0.0)
    np.testing.assert_array_equal(narrow.moments(jnp.zeros(OBS))[1], [-20.0, 0.0])


def test_a_soft_clamp_bounds_the_std_and_has_gradients_everywhere(tmp_path: Path) -> None:
    """max - softplus(max - x), then min + softplus(x - min); files that do not say it have the hard one."""
    raw = np.array([-9.0, -3.9, -1.0, 1.9, 6.0])
    inside = 2.0 - np.log1p(np.exp(2.0 - raw))
    inside = -4.0 + np.log1p(np.exp(inside + 4.0))

    def std_of(outputs: Any) -> Any:
        net = MLP([jnp.zeros((OBS, 10))], [jnp.concatenate([jnp.zeros(5), outputs])], "relu")
        return TanhGaussian(net, -4.0, 2.0, soft=True).moments(jnp.zeros(OBS))[1]

    np.testing.assert_allclose(std_of(f32(raw)), inside, rtol=1e-5)
    assert np.all((inside > -4.0) & (inside < 2.0 + np.log1p(np.exp(-6.0))))
    assert np.all(jax.grad(lambda x: std_of(x).sum())(f32(raw)) > 1e-3)
    network = TanhGaussian(made_mlp([OBS, HIDDEN, 2 * ACT], 4), log_std_min=-1.0, log_std_max=0.2, soft=True)
    policy = from_network(network, NORM, {})
    policy.save(tmp_path / "policy.safetensors")
    loaded = Policy.load(tmp_path / "policy.safetensors")
    assert jax.tree.structure(to_network(loaded)) == jax.tree.structure(network)
    drawn = np.stack([loaded.sample(RAW, np.random.default_rng(i)) for i in range(3)])
    x = (RAW - NORM.obs_mean) / NORM.obs_std
    mean, log_std = np.split(net_by_hand(network.net, x), 2, axis=-1)
    log_std = 0.2 - np.log1p(np.exp(0.2 - log_std))
    std = np.exp(-1.0 + np.log1p(np.exp(log_std + 1.0)))
    noise = np.stack([np.random.default_rng(i).standard_normal(mean.shape) for i in range(3)])
    unit = np.tanh(mean + std * noise)
    np.testing.assert_allclose(drawn, LOW + (unit + 1.0) / 2.0 * (HIGH - LOW), atol=1e-5)
    old = Policy(policy.kind, policy.nets, {}, {"log_std_min": -1.0, "log_std_max": 0.2}, NORM, {})
    assert not to_network(old).soft
    np.testing.assert_array_equal(
        old.sample(RAW, np.random.default_rng(0)),
        from_network(made_network("tanh-gaussian"), NORM, {}).sample(RAW, np.random.default_rng(0)),
    )


@jax.jit
def own_density(biases: Any, noise: Any) -> Any:
    """Log density of a sample, and its slope in the network's outputs."""
    zero = jnp.zeros((OBS, 2 * ACT))
    return jax.value_and_grad(lambda b: TanhGaussian(MLP([zero], [b], "relu")).sample(jnp.zeros(OBS), noise)[1])(biases)


@pytest.mark.parametrize("u", [0.5, 5.0, -5.0, 12.0, -40.0, 1e3, -1e5])
def test_the_density_of_a_sample_and_its_slope_are_exact_where_the_tanh_saturates(u: float) -> None:
    """log pi = log N - log(1 - tanh(u)^2), the latter written as -2 log cosh u; its slope in the mean is 2 tanh u."""
    density, slope = own_density(f32([u, 0.2, -0.3, 0.1]), f32([0.0, 0.0]))
    log_cosh = [np.logaddexp(v, -v) - np.log(2.0) for v in (u, 0.2)]
    by_hand = -np.log(2.0 * np.pi) - (-0.3 + 0.1) + 2.0 * sum(log_cosh)
    assert float(density) == pytest.approx(by_hand, rel=1e-4)
    np.testing.assert_allclose(slope, [2.0 * np.tanh(u), 2.0 * np.tanh(0.2), -1.0, -1.0], rtol=1e-4, atol=1e-5)


@jax.jit
def given_density(biases: Any, action: Any) -> Any:
    zero = jnp.zeros((OBS, 2 * ACT))
    return jax.value_and_grad(lambda b: TanhGaussian(MLP([zero], [b], "relu")).log_prob(jnp.zeros(OBS), action))(biases)


@pytest.mark.parametrize("mean", [0.0, 5.0, -30.0, 1e6])
@pytest.mark.parametrize("action", [(1.0, -1.0), (-1.0, 0.0), (1.0 - 1e-7, 1.0)])
def test_actions_at_the_bounds_have_finite_densities_and_slopes(mean: float, action: tuple[float, float]) -> None:
    for log_std in (-5.0, 0.0, 2.0):
        density, slope = given_density(f32([mean, -mean, log_std, log_std]), f32(action))
        assert np.isfinite(density)
        assert np.isfinite(slope).all()
    if mean == 0.0:  # the nearest action that counts as inside
        inside = np.clip(np.asarray(action), -np.float32(1 - 1e-6), np.float32(1 - 1e-6)).astype(np.float64)
        by_hand = scipy.stats.norm.logpdf(np.arctanh(inside), 0.0, np.exp(2.0)) - np.log(1.0 - inside**2)
        assert float(density) == pytest.approx(by_hand.sum(), rel=1e-3)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_density_of_an_action_clips_the_mean_at_nine_without_gradient(sign: float) -> None:
    """Only there: what is drawn is drawn around the mean itself."""
    action, std = np.array([0.3, -0.6], np.float32), np.exp(0.5)
    density, slope = given_density(f32([sign * 30.0, 0.2, 0.5, 0.5]), f32(action))
    u = np.arctanh(action.astype(np.float64))
    by_hand = scipy.stats.norm.logpdf(u, [sign * 9.0, 0.2], std) - np.log(1.0 - np.tanh(u) ** 2)
    assert float(density) == pytest.approx(by_hand.sum(), rel=1e-5)
    assert slope[0] == 0.0
    assert float(slope[1]) == pytest.approx((u[1] - 0.2) / std**2, rel=1e-4)
    inside, pulled = given_density(f32([sign * 8.9, 0.2, 0.5, 0.5]), f32(action))
    assert float(inside) > float(density)
    assert float(pulled[0]) == pytest.approx((u[0] - sign * 8.9) / std**2, rel=1e-4)


# The Gaussian that is clipped


def test_the_density_of_a_clipped_gaussian_is_summed_over_the_columns() -> None:
    policy = ClippedGaussian(made_mlp([OBS, HIDDEN, ACT]), f32([-0.5, 0.3]))
    features, action = some_features(6), np.random.default_rng(1).uniform(-1, 1, size=(6, ACT)).astype(np.float32)
    mean = np.tanh(net_by_hand(policy.net, features))
    covariance = np.diag(np.exp(2.0 * np.array([-0.5, 0.3])))
    by_hand = [scipy.stats.multivariate_normal(m, covariance).logpdf(a) for m, a in zip(mean, action, strict=True)]
    result = log_prob(policy, features, action)
    assert result.shape == (6,)
    np.testing.assert_allclose(result, by_hand, rtol=1e-4, atol=1e-5)
    wild = ClippedGaussian(policy.net, f32([-40.0, 40.0]))
    by_hand = scipy.stats.norm.logpdf(action, mean, np.exp([-5.0, 2.0])).sum(axis=1)
    np.testing.assert_allclose(log_prob(wild, features, action), by_hand, rtol=1e-3)


def test_the_density_of_a_linear_gaussian_is_that_before_the_clip() -> None:
    policy = LinearGaussian(made_mlp([OBS, HIDDEN, ACT]), f32([-0.5, 0.3]))
    features, drawn = some_features(6), np.random.default_rng(1).normal(scale=2.0, size=(6, ACT)).astype(np.float32)
    assert np.abs(drawn).max() > 1.0
    by_hand = scipy.stats.norm.logpdf(drawn, net_by_hand(policy.net, features), np.exp([-0.5, 0.3])).sum(axis=1)
    np.testing.assert_allclose(log_prob(policy, features, drawn), by_hand, rtol=1e-4, atol=1e-4)
    mean, log_std = policy.moments(jnp.asarray(features))
    np.testing.assert_allclose(mean, net_by_hand(policy.net, features), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(log_std, policy.log_std)


# Every kind


def made_network(kind: str) -> Any:
    if kind == "mixture":
        return MixturePolicy(made_mlp([OBS, HIDDEN, 2 * (1 + 2 * ACT)], 3, "silu"), 2, ACT)
    if kind == "tanh-gaussian":
        return TanhGaussian(made_mlp([OBS, HIDDEN, 2 * ACT], 4), log_std_min=-1.0, log_std_max=0.2)
    if kind == "clipped-gaussian":
        return ClippedGaussian(made_mlp([OBS, HIDDEN, ACT], 5), f32([-0.7, 0.1]))
    if kind == "linear-gaussian":
        return LinearGaussian(made_mlp([OBS, HIDDEN, ACT], 9), f32([-0.7, 0.1]))
    if kind == "deterministic":
        return Deterministic(made_mlp([OBS, HIDDEN, HIDDEN, ACT], 6, "tanh"))
    latent = 3
    decoder, net = made_mlp([OBS + latent, HIDDEN, ACT], 7), made_mlp([OBS + ACT, HIDDEN, ACT], 8)
    return Perturbed(decoder, net, latent_dim=latent, reach=0.25)


NOISY = ("mixture", "tanh-gaussian", "clipped-gaussian", "linear-gaussian", "perturbed")
KINDS = (*NOISY, "deterministic")
RAW = np.random.default_rng(2).normal(size=(6, OBS)).astype(np.float32)
DRAWS = 4000


@jax.jit
def acts(network: Any, key: Any) -> Any:
    """Actions for RAW without noise, and many with: one program per kind, a hundred draws at a time."""

    def draw(key: Any) -> Any:
        return act(network, NORM, jnp.broadcast_to(RAW, (100, *RAW.shape)), key)

    drawn = jax.lax.map(draw, jax.random.split(key, DRAWS // 100))
    return act(network, NORM, RAW), drawn.reshape(DRAWS, *RAW.shape)


@cache
def acted(kind: str) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.asarray(part) for part in acts(made_network(kind), jax.random.PRNGKey(0)))


def test_the_cases_are_all_kinds() -> None:
    assert set(heads.KINDS) == set(NETWORKS) == {*KINDS, "categorical"}  # tests/discrete has the categorical one
    assert all(network.kind == kind for kind, network in NETWORKS.items())
    assert all(type(made_network(kind)) is NETWORKS[kind] for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_numpy_policy_acts_like_the_network(kind: str) -> None:
    policy, (expected, _) = from_network(made_network(kind), NORM, {}), acted(kind)
    result = policy(RAW)
    assert (result.shape, result.dtype) == ((6, ACT), np.float32)
    assert expected.std(axis=0).min() > 0.01  # the network does something
    np.testing.assert_allclose(result, expected, atol=1e-5)
    np.testing.assert_allclose(policy(RAW[3]), expected[3], atol=1e-5)
    np.testing.assert_allclose(policy(RAW.reshape(2, 3, OBS)), expected.reshape(2, 3, ACT), atol=1e-5)


def test_actions_are_the_formulas_of_their_kinds() -> None:
    """The mixture has its own tests; the others here in double precision, in units of the bounds."""
    x = (RAW - NORM.obs_mean) / NORM.obs_std
    by_hand = {
        kind: np.tanh(net_by_hand(made_network(kind).net, x)[:, :ACT]) for kind in ("tanh-gaussian", "clipped-gaussian")
    }
    by_hand["linear-gaussian"] = np.clip(net_by_hand(made_network("linear-gaussian").net, x), -1.0, 1.0)
    deep = made_network("deterministic").net
    h = x
    for w, b in zip(deep.weights, deep.biases, strict=True):
        h = np.tanh(h @ np.asarray(w, np.float64) + np.asarray(b))
    by_hand["deterministic"] = h
    moved = made_network("perturbed")
    imitated = np.tanh(net_by_hand(moved.decoder, np.concatenate([x, np.zeros((6, 3))], axis=1)))
    move = np.tanh(net_by_hand(moved.net, np.concatenate([x, imitated], axis=1)))
    by_hand["perturbed"] = np.clip(imitated + 0.25 * move, -1.0, 1.0)
    for kind, unit in by_hand.items():
        np.testing.assert_allclose(acted(kind)[0], LOW + (unit + 1.0) / 2.0 * (HIGH - LOW), atol=1e-5, err_msg=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_file_brings_everything_back(kind: str, tmp_path: Path) -> None:
    network = made_network(kind)
    policy = from_network(network, NORM, {"algo": "made up", "seed": 3})
    policy.save(tmp_path / "policy.safetensors")
    loaded = Policy.load(tmp_path / "policy.safetensors")
    assert (loaded.kind, loaded.numbers, loaded.metadata) == (kind, policy.numbers, policy.metadata)
    np.testing.assert_array_equal(loaded(RAW), policy(RAW))
    drawn, again = (p.sample(RAW, np.random.default_rng(1)) for p in (policy, loaded))
    np.testing.assert_array_equal(drawn, again)
    back = to_network(loaded)
    assert jax.tree.structure(back) == jax.tree.structure(network)  # its kind, its numbers and its activations
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(network), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_inside_the_bounds_with_the_networks_std(kind: str) -> None:
    plain, expected = acted(kind)
    policy = from_network(made_network(kind), NORM, {})
    drawn = policy.sample(np.broadcast_to(RAW, (DRAWS, *RAW.shape)), np.random.default_rng(0))
    assert (drawn.shape, drawn.dtype) == (expected.shape, np.float32)
    width = HIGH - LOW
    for samples in (drawn, expected):
        assert np.all(samples >= LOW)
        assert np.all(samples <= HIGH)
    # a standard deviation is at most half the width: four standard errors of a mean of 4000, for both samplers
    np.testing.assert_allclose(drawn.mean(axis=0) / width, expected.mean(axis=0) / width, atol=0.045)
    np.testing.assert_allclose(drawn.std(axis=0) / width, expected.std(axis=0) / width, atol=0.03)
    if kind in NOISY:
        assert (expected.std(axis=0) / width).min() > 0.005
    else:
        np.testing.assert_array_equal(drawn, np.broadcast_to(policy(RAW), drawn.shape))
        np.testing.assert_allclose(expected, np.broadcast_to(plain, expected.shape), atol=1e-6)


@pytest.mark.parametrize("kind", ["clipped-gaussian", "linear-gaussian", "tanh-gaussian"])
def test_samples_have_the_moments_of_their_distribution(kind: str) -> None:
    """By quadrature: both samplers could share a mistake."""
    network, x = made_network(kind), (RAW - NORM.obs_mean) / NORM.obs_std
    node, weight = np.polynomial.hermite_e.hermegauss(101)
    weight = weight / weight.sum()
    out = net_by_hand(network.net, x)
    if kind in ("clipped-gaussian", "linear-gaussian"):
        means = np.tanh(out) if kind == "clipped-gaussian" else out
        unit = np.clip(means[..., None] + np.exp([[-0.7], [0.1]]) * node, -1.0, 1.0)
    else:
        mean, log_std = out[:, :ACT], np.clip(out[:, ACT:], -1.0, 0.2)
        unit = np.tanh(mean[..., None] + np.exp(log_std)[..., None] * node)
    mean = unit @ weight
    std = np.sqrt(unit**2 @ weight - mean**2)
    drawn = (acted(kind)[1] - LOW) / (HIGH - LOW) * 2.0 - 1.0
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.06)
    np.testing.assert_allclose(drawn.std(axis=0), std, atol=0.04)


def test_a_compiled_mixture_samples_large_batches_correctly() -> None:
    """One draw for each of 2500 rows of two columns: with one-hot vectors it came out wrong from 4096 numbers on."""
    network, features = made_network("mixture"), some_features(2500)
    compiled = jax.jit(lambda network, key: network.unit_action(features, key))(network, jax.random.PRNGKey(0))
    mixture = jax.jit(lambda network: network(features))(network)
    plain = mixture.sample(jax.random.PRNGKey(0), 1)[0]
    np.testing.assert_allclose(compiled, np.clip(1.02 * np.tanh(plain), -1.0, 1.0), atol=1e-4)


def test_a_perturbed_policy_stays_within_reach_of_the_decoded_action() -> None:
    """And its latents within a half: at most as far as the decoder has seen."""
    network, x = made_network("perturbed"), (RAW - NORM.obs_mean) / NORM.obs_std
    corners = np.stack(np.meshgrid(*[np.linspace(-0.5, 0.5, 21)] * 3, indexing="ij"), axis=-1).reshape(-1, 1, 3)
    wide = np.concatenate([np.broadcast_to(x, (len(corners), *x.shape)), np.broadcast_to(corners, (9261, 6, 3))], -1)
    imitated = np.tanh(net_by_hand(network.decoder, wide))
    low, high = imitated.min(axis=0) - 0.25, imitated.max(axis=0) + 0.25
    in_numpy = from_network(network, NORM, {})
    for drawn in (
        acted("perturbed")[1],
        in_numpy.sample(np.broadcast_to(RAW, (500, 6, OBS)), np.random.default_rng(0)),
    ):
        unit = (drawn - LOW) / (HIGH - LOW) * 2.0 - 1.0
        assert np.all(unit >= low - 1e-3)
        assert np.all(unit <= high + 1e-3)
