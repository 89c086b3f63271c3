"""Densities of policies and of the behaviour in the units of the dataset."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.data.normalise import fit_normaliser
from pspo.envs.liquidation import behaviour_action
from pspo.evaluation.density import BEHAVIOURS, fraction_at_bounds, has_density, log_ratios, unit_log_density
from pspo.evaluation.problem import EvaluatedReturn, make_problem
from pspo.nets.actors import ClippedGaussian, Deterministic, LinearGaussian, TanhGaussian
from pspo.nets.policies import MixturePolicy
from pspo.policies.policy import from_network
from tests.algorithms.baseline_cases import made_mlp
from tests.arrays import f32
from tests.evaluation.ope.ope_cases import METADATA, gaussian, linear, made_dataset, made_problem

RNG = np.random.default_rng(0)
NETWORKS = {
    "mixture": MixturePolicy(made_mlp(RNG, [2, 5, 6], activation="silu"), 2, 1),
    "tanh": TanhGaussian(linear([[0.3, 0.1], [0.2, 0.0]], [0.2, -0.7])),
    "clipped": ClippedGaussian(linear([[0.3], [0.2]], [0.2]), f32([-0.6])),
    "linear": LinearGaussian(linear([[0.3], [0.2]], [0.2]), f32([-0.6])),
}
EDGES = np.linspace(-1, 1, 21)


def shares(density, features) -> np.ndarray:
    """Probability of each bin, by the density at many points of it."""
    fine = np.linspace(-1, 1, 4001)[:, None].astype(np.float32)
    found = np.exp(density(jnp.broadcast_to(features, (4001, 2)), jnp.asarray(fine)))
    middle = 0.5 * (found[1:] + found[:-1]) / 2000.0
    return middle.reshape(20, 200).sum(1)


@pytest.mark.parametrize("kind", NETWORKS)
def test_densities_match_histograms_of_sampled_actions(kind) -> None:
    """Between the bounds; clipped actions are probability mass at the bound."""
    network, features = NETWORKS[kind], f32([0.4, -0.8])
    drawn = np.asarray(network.unit_action(jnp.broadcast_to(features, (100_000, 2)), jax.random.PRNGKey(0)))[:, 0]
    inside = np.abs(drawn) < 1.0
    counted = np.histogram(drawn[inside], EDGES)[0] / len(drawn)
    found = shares(lambda f, u: np.asarray(unit_log_density(network, f, u), np.float64), features)
    np.testing.assert_allclose(found, counted, atol=0.006)
    assert found.sum() == pytest.approx(inside.mean(), abs=0.006)


def test_deterministic_policies_have_no_density() -> None:
    assert all(has_density(network) for network in NETWORKS.values())
    assert not has_density(Deterministic(linear([[1.0], [1.0]], [0.0])))


def test_the_known_behaviour_density_of_liquidation() -> None:
    drawn = behaviour_action(np.random.default_rng(0), 100_000)[:, 0]
    counted = np.histogram(drawn, EDGES)[0] / len(drawn)
    middle = f32(0.5 * (EDGES[1:] + EDGES[:-1]))[:, None]
    found = np.exp(np.asarray(BEHAVIOURS["liquidation"](jnp.zeros((20, 3)), middle))) * 0.1
    np.testing.assert_allclose(found, counted, atol=0.004)


def by_hand(data, norm, log_std: float = -0.5) -> np.ndarray:
    """Log density of the Gaussian of ope_cases in its own units."""
    unit = 2.0 * (data.action - norm.action_low) / (norm.action_high - norm.action_low) - 1.0
    mean = 0.1 + ((data.obs - norm.obs_mean) / norm.obs_std) @ np.array([0.1, -0.2])
    z = (unit[:, 0] - mean) / np.exp(log_std)
    return -0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)


def test_ratios_are_policy_density_over_behaviour_density(monkeypatch) -> None:
    monkeypatch.setattr("pspo.evaluation.blocks.BLOCK", 5)  # the last block overlaps the previous one
    problem = made_problem(made_dataset([7, 6], [True, True]))
    found = log_ratios(problem, lambda obs, unit: 0.3 * obs[:, 0] + unit[:, 0])
    expected = by_hand(problem.dataset, problem.norm) - (0.3 * problem.dataset.obs[:, 0] + problem.dataset.action[:, 0])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_policy_with_other_bounds_is_evaluated_in_units_of_the_dataset() -> None:
    """A wider range of actions lowers the density in proportion."""
    data = made_dataset([7, 6], [True, True], action_low=np.array([-2.0]), action_high=np.array([3.0]))
    other = made_dataset([20], [True], seed=5, action_low=np.array([-3.0]), action_high=np.array([5.0]))
    own = fit_normaliser(other)
    policy = from_network(gaussian(own), own, METADATA)
    problem = make_problem(policy, data, EvaluatedReturn(1.0, 7, False), 1.0)
    np.testing.assert_allclose(
        problem.act(jnp.asarray(data.obs)), 2.0 * (policy(data.obs) + 2.0) / 5.0 - 1.0, atol=1e-5
    )
    found = log_ratios(problem, lambda obs, unit: jnp.zeros(unit.shape[:-1]))
    np.testing.assert_allclose(found, by_hand(data, own) + np.log(5.0 / 8.0), rtol=1e-4, atol=1e-5)


def test_actions_outside_the_bounds_of_the_policy_have_density_zero() -> None:
    data = made_dataset([7, 6], [True, True])
    narrow = made_dataset([20], [True], seed=5, action_low=np.array([-0.4]), action_high=np.array([0.4]))
    narrow = fit_normaliser(narrow)
    problem = make_problem(from_network(gaussian(narrow), narrow, METADATA), data, EvaluatedReturn(1.0, 7, False), 1.0)
    found = log_ratios(problem, lambda obs, unit: jnp.zeros(unit.shape[:-1]))
    beyond = np.abs(data.action[:, 0]) > 0.4
    assert 0 < beyond.sum() < 13
    np.testing.assert_array_equal(np.isneginf(found), beyond)


def test_actions_beyond_the_bounds_of_the_dataset_are_not_clipped() -> None:
    data = made_dataset([7, 6], [True, True])
    wide = fit_normaliser(made_dataset([20], [True], seed=5, action_low=np.array([-4.0]), action_high=np.array([4.0])))
    problem = make_problem(
        from_network(gaussian(wide, bias=0.5), wide, METADATA), data, EvaluatedReturn(1.0, 7, False), 1.0
    )
    assert float(problem.act(jnp.asarray(data.obs)).max()) > 1.5


def test_actions_at_a_bound_are_counted() -> None:
    action = np.random.default_rng(0).uniform(-0.9, 0.9, size=(10, 1))
    action[[2, 5]] = [[1.0], [-1.0]]
    assert fraction_at_bounds(made_problem(made_dataset([10], [True], action=action))) == pytest.approx(0.2)
