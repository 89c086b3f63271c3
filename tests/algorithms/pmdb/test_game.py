"""PMDB: temperature, soft value and weights of sampled actions, units, soft ends and rollouts, against NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from pspo.algorithms.pmdb import algorithm as pmdb
from pspo.algorithms.pmdb.game import SampledPredictions, follow, make_units, models_of, predict, stay_probability
from pspo.algorithms.pmdb.values import ActionGaussian, candidates, improved_log_weights, soft_value, temperature
from pspo.algorithms.registry import preset
from pspo.core.config import build
from pspo.core.errors import UserError
from pspo.core.progress import silent
from pspo.dynamics.model_env import ModelEnv
from pspo.dynamics.persistent_rollouts import PersistentRollouts
from pspo.dynamics.termination import KnownTermination
from tests.algorithms.baseline_cases import ACT, OBS, made_data, made_norm, started
from tests.algorithms.pmdb.pmdb_cases import CONFIG, MODEL_NORM, POOL, UNITS, ends, stay_by_hand
from tests.algorithms.tiny_task import tiny_dataset
from tests.arrays import equal_bits, f32
from tests.dynamics.dynamics_cases import made_ensemble, unlimited

# Estimates from sampled actions


SOFT = jax.jit(lambda q, w, lowest: (alpha := temperature(q, w, 5.0, lowest), soft_value(q, w, alpha)))


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_with_equal_weights_the_temperature_is_maximum_less_mean_over_kl(scale: float) -> None:
    q = scale * np.random.default_rng(0).uniform(size=(20, 7))
    alpha, value = SOFT(f32(q), jnp.zeros((20, 7)), 1e-5)
    np.testing.assert_allclose(alpha, (q.max(0) - q.mean(0)) / 5.0, rtol=1e-2)
    np.testing.assert_allclose(value, alpha * (scipy.special.logsumexp(q / alpha, axis=0) - np.log(20)), rtol=1e-4)
    assert np.all(value <= q.max(0))


def test_a_soft_value_is_between_mean_and_maximum_and_its_policy_within_kl() -> None:
    rng = np.random.default_rng(1)
    q, log_ratio = rng.normal(size=(20, 500)), rng.normal(scale=2.0, size=(20, 500))
    weight = scipy.special.softmax(log_ratio, axis=0)
    alpha, value = (np.asarray(part, np.float64) for part in SOFT(f32(q), f32(log_ratio), 1e-3))
    near_best = (scipy.special.softmax(log_ratio + q / 1e-3, axis=0) * q).sum(0)
    np.testing.assert_allclose(alpha, np.maximum((near_best - (weight * q).sum(0)) / 5.0, 1e-3), rtol=1e-3)
    assert np.all(value <= q.max(0) + 1e-5)
    assert np.all(value >= (weight * q).sum(0) - 1e-5)
    log_improved = np.asarray(improved_log_weights(f32(q), f32(log_ratio), f32(alpha)), np.float64)
    np.testing.assert_allclose(log_improved, scipy.special.log_softmax(q / alpha + log_ratio, axis=0), atol=1e-3)
    divergence = (np.exp(log_improved) * (log_improved - np.log(weight))).sum(0)
    assert np.all(divergence <= 5.0 + 1e-3)
    assert divergence.max() > 1.0


def test_equal_values_give_the_lowest_temperature_and_that_value() -> None:
    log_ratio = f32(np.random.default_rng(2).normal(size=(4, 3)))
    alpha, value = SOFT(jnp.full((4, 3), 7.0), log_ratio, 0.01)
    np.testing.assert_allclose(alpha, 0.01)
    np.testing.assert_allclose(value, 7.0, rtol=1e-4)


def test_actions_of_another_policy_count_by_the_ratio_of_densities_after_the_tanh() -> None:
    rng = np.random.default_rng(3)
    mean, log_std = rng.normal(size=(2, 4, ACT)), rng.normal(scale=0.3, size=(2, 4, ACT))
    noise = rng.normal(size=(7, 4, ACT))
    actor, reference = (ActionGaussian(f32(m), f32(s)) for m, s in zip(mean, log_std, strict=True))
    drawn = candidates(actor, reference, f32(noise))
    which = np.array([0, 0, 0, 1, 1, 1, 1])  # the odd one is the reference policy's
    x = mean[which] + np.exp(log_std[which]) * noise
    np.testing.assert_allclose(drawn.x, x, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(drawn.action, np.tanh(x), rtol=1e-5, atol=1e-6)
    slope = np.log(1.0 - np.tanh(x) ** 2)
    density = [(scipy.stats.norm.logpdf(x, mean[i], np.exp(log_std[i])) - slope).sum(-1) for i in (0, 1)]
    np.testing.assert_allclose(drawn.log_ratio, np.where(which[:, None] == 0, density[1] - density[0], 0.0), atol=1e-4)
    assert np.abs(density[1] - density[0])[:3].min() > 1e-3


def test_a_value_from_the_actors_actions_is_that_of_the_reference_policy() -> None:
    """alpha data E_ref exp(Q / alpha), by quadrature; what the actor does more often must not count more."""
    actor, reference = (ActionGaussian(f32([[m]]), f32([[s]])) for m, s in ((0.8, -0.3), (-0.2, 0.1)))
    noise = np.random.default_rng(4).normal(size=(40_000, 1, 1))
    drawn = candidates(actor, reference, f32(noise))
    node, weight = np.polynomial.hermite_e.hermegauss(101)
    exact = 0.5 * np.log((weight / weight.sum()) @ np.exp(np.sin(3.0 * np.tanh(-0.2 + np.exp(0.1) * node)) / 0.5))
    half = slice(None, 20_000)
    q, log_ratio = jnp.sin(3.0 * drawn.action[..., 0]), drawn.log_ratio
    assert float(soft_value(q, log_ratio, jnp.float32(0.5))[0]) == pytest.approx(exact, abs=0.02)
    assert float(soft_value(q[half], log_ratio[half], jnp.float32(0.5))[0]) == pytest.approx(exact, abs=0.02)
    unweighted = float(soft_value(q[half], 0.0 * log_ratio[half], jnp.float32(0.5))[0])
    assert abs(unweighted - exact) > 0.1


def test_a_divergence_is_that_of_two_gaussians() -> None:
    p, q = ActionGaussian(f32([0.3, -1.0]), f32([-0.5, 0.2])), ActionGaussian(f32([1.0, 0.0]), f32([0.1, -0.4]))
    x = np.linspace(-12.0, 12.0, 40_001)
    by_hand = 0.0
    for c in range(2):
        log_p, log_q = (scipy.stats.norm.logpdf(x, float(g.mean[c]), np.exp(float(g.log_std[c]))) for g in (p, q))
        by_hand += (np.exp(log_p) * (log_p - log_q)).sum() * (x[1] - x[0])
    assert float(p.divergence(q)) == pytest.approx(by_hand, rel=1e-4)


# Units and ends


def test_the_authors_unit_maps_rewards_into_the_middle_of_zero_to_one() -> None:
    data = tiny_dataset(400)
    norm, units = make_units(data, "raw", "unit", 0.99)
    mapped = data.reward / float(norm.reward_scale) - units.shift
    assert mapped.min() == pytest.approx(1 / 22, abs=1e-5)
    assert mapped.max() == pytest.approx(21 / 22, abs=1e-5)
    np.testing.assert_allclose(units[1:], [0.0, 1.0, 0.0, 100.0], atol=1e-4)
    np.testing.assert_array_equal(norm.obs_std, 1.0)
    constant = make_units(tiny_dataset(400, reward=np.full(400, 3.0)), "raw", "unit", 0.99)[1]
    assert np.isfinite(constant).all()


def test_without_a_discount_values_stay_within_returns_and_nothing_is_shifted() -> None:
    data = tiny_dataset(400, reward=np.random.default_rng(0).normal(-0.5, 1.0, 400))
    norm, units = make_units(data, "features", "std", 1.0)
    scale, span = float(norm.reward_scale), float(np.ptp(data.reward))
    assert scale == pytest.approx(data.returns_to_go(1.0).std(), rel=1e-5)
    assert units.shift == 0.0
    limits = [data.reward.min() - 0.05 * span, data.reward.max() + 0.05 * span]
    np.testing.assert_allclose(units[1:3], np.array(limits) / scale, rtol=1e-5)
    to_go = data.returns_to_go(1.0) / scale
    np.testing.assert_allclose(units[3:], [min(to_go.min(), 0.0), max(to_go.max(), 0.0)], rtol=1e-5)
    discounted = make_units(data, "features", "raw", 0.9)[1]
    np.testing.assert_allclose(discounted[3:], 10.0 * np.array(limits), rtol=1e-5)
    with pytest.raises(UserError, match="rewards=std"):
        make_units(data, "features", "unit", 1.0)


@pytest.mark.parametrize("name", ["laptop", "paper", "smoke"])
def test_no_preset_shifts_the_rewards_of_liquidation(name: str) -> None:
    values = preset("pmdb", name, "liquidation")
    assert (values["rewards"], values["gamma"]) == ("std", 1.0)


def test_rollouts_end_softly_between_eleven_and_twenty_one_half_ranges() -> None:
    some = np.random.default_rng(0).uniform(-4.0, 4.0, size=(3, 50, OBS))
    stay = jax.jit(lambda next_obs: stay_probability(MODEL_NORM, next_obs))
    np.testing.assert_allclose(stay(f32(some)), stay_by_hand(some), atol=1e-4)
    half = 0.15
    made = half * np.array(
        [[0.0, 0.0], [11.0, -11.0], [16.0, 0.0], [0.0, -16.0], [16.0, 16.0], [21.0, 0.0], [40.0, 1.0]]
    )
    middle = 0.5 * (1.0 + np.exp(-6.0))
    at_end = (1.0 + np.exp(-6.0)) / (1.0 + np.exp(6.0))
    np.testing.assert_allclose(stay(f32(made)), [1.0, 1.0, middle, middle, middle**2, at_end, 0.0], atol=1e-4)
    flat = MODEL_NORM._replace(obs_high=MODEL_NORM.obs_low)  # constant columns
    assert float(stay_probability(flat, f32(MODEL_NORM.obs_low) + 1.0)) == 1.0


def test_predictions_may_leave_the_datasets_range_but_counters_stay_on_values() -> None:
    grid = MODEL_NORM._replace(grid_column=np.array([1], np.int32), grid_points=np.array([[0.0, 1.0, 2.0]], np.float32))
    pool = made_ensemble(members=POOL, inputs=grid.features + ACT, targets=OBS + 1)
    env = ModelEnv(pool, KnownTermination(ends), grid, made_norm(), unlimited(OBS))
    rng = np.random.default_rng(5)
    obs, action, noise = (
        f32(rng.normal(size=(40, OBS))),
        f32(rng.uniform(-1, 1, (40, ACT))),
        f32(rng.normal(size=(2, 1, 40, OBS))),
    )
    found = predict(env, UNITS, obs, action, noise)
    assert np.abs(found.next_obs[..., 0]).max() > 0.5
    assert set(np.unique(found.next_obs[..., 1])) <= {0.0, 1.0, 2.0}


def test_a_small_pool_is_asked_as_a_whole_and_of_a_large_one_only_the_drawn() -> None:
    pool, drawn = made_ensemble(members=POOL), jnp.asarray([2, 0, 2])
    models, env = models_of(pool, drawn)
    assert models is pool
    np.testing.assert_array_equal(env, drawn)
    models, env = models_of(pool, drawn[:2])
    np.testing.assert_array_equal(models.log_std_low, np.asarray(pool.log_std_low)[[2, 0]])
    np.testing.assert_array_equal(env, [0, 1])


def test_rollouts_continue_in_their_member_until_an_end_or_the_horizon() -> None:
    rng = np.random.default_rng(6)
    end = np.zeros((2, 3, 5), np.float32)
    end[0, 1, 0], end[0, 2, 1], end[1, 0, 2] = 1.0, 1.0, 1.0  # of the first draw, and of the right member, one counts
    predictions = SampledPredictions(f32(rng.normal(size=(2, 3, 5, OBS))), f32(end), jnp.zeros((3, 5)))
    rollouts = PersistentRollouts(jnp.zeros((5, OBS)), jnp.asarray([0, 1, 2, 3, 0], jnp.int32), jnp.zeros(5, jnp.int32))
    member, restart = jnp.asarray([1, 1, 0, 2, 2], jnp.int32), f32(rng.normal(size=(5, OBS)))
    after = follow(rollouts, predictions, member, jax.random.PRNGKey(0), restart, 4)
    gone = np.asarray(predictions.next_obs)[0, np.asarray(member), np.arange(5)]
    np.testing.assert_array_equal(after.obs, np.where([[1], [0], [0], [1], [0]], restart, gone))
    np.testing.assert_array_equal(after.age, [0, 2, 3, 0, 1])
    np.testing.assert_array_equal(after.member, member)


# The rest


def test_the_defaults_are_the_authors() -> None:
    config = pmdb.Config()
    assert (config.active, config.order, config.explore, config.kl_target, config.lowest_temperature) == (
        10,
        2,
        0.1,
        5,
        1e-3,
    )
    assert (2 * config.next_pairs, config.action_samples, config.imitation_std, config.rewards) == (10, 20, 0.1, "unit")
    assert (config.critic_lr, config.actor_lr, config.tau, config.reference_tau) == (
        3e-4,
        3e-5,
        5e-3,
        1e-5,
    )
    assert (config.real_batch, config.synthetic_batch, config.rollout_horizon) == (128, 128, 1000)
    assert (config.width, config.depth) == (256, 3)


def test_a_new_state_has_copies_for_averages_and_rollouts_of_all_ages(monkeypatch) -> None:
    fresh, asked = started(pmdb, CONFIG, monkeypatch)
    assert asked == [([2, 5, 4], "relu", "keras"), (2, [4, 5, 1], "relu", "keras")]
    actor = fresh.params.actor
    assert (actor.log_std_min, actor.log_std_max, actor.soft) == (-4.0, 2.0, True)
    assert equal_bits(fresh.reference, actor)
    assert equal_bits(fresh.target_critic, fresh.params.critic)
    np.testing.assert_array_equal(fresh.rollouts.age, [0, 1, 2, 3, 0, 1])
    states = np.asarray(made_data().transitions.obs)
    assert all((np.asarray(obs) == states).all(1).any() for obs in fresh.rollouts.obs)
    assert pmdb.policies(fresh) == {"policy": fresh.reference, "actor": actor}


def test_rollouts_restart_from_states_and_next_states_but_not_after_an_end() -> None:
    data = made_data()
    config = build(pmdb.Config, {"synthetic_batch": 400, "real_batch": 3})
    batch = jax.jit(lambda key: pmdb.draw(config, data, key))(jax.random.PRNGKey(0))
    assert batch.real.obs.shape == (3, OBS)
    found = {np.asarray(obs).tobytes() for obs in batch.restart}
    before = {np.asarray(obs).tobytes() for obs in data.transitions.obs}
    behind = {np.asarray(obs).tobytes() for obs in data.transitions.next_obs[~data.transitions.terminal]}
    assert found <= before | behind
    assert len(found & before) == 40
    assert len(found & behind) > 20


def test_more_than_the_drawn_models_cannot_be_counted() -> None:
    with pytest.raises(UserError, match="order=3"):
        pmdb.prepare(pmdb.Config(active=2, order=3), tiny_dataset(100), 0, silent)
