"""Backups of all models, their posterior weights, and how persistent rollouts advance; against plain loops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.algorithms.pspo.posterior import Limits, PosteriorBackup, posterior_backup
from pspo.algorithms.pspo.rollout import draw_members, follow
from pspo.dynamics.persistent_rollouts import PersistentRollouts, antithetic_noise
from pspo.dynamics.prediction_range import Box, data_box, outside
from pspo.dynamics.termination import KnownTermination, NeverTerminates
from tests.dynamics.dynamics_cases import made_ensemble, plain_norm, predict_by_hand, unlimited

NORM = plain_norm()
MODELS = made_ensemble()  # three members over two observation columns and one action
BATCH, GAMMA, BETA = 5, 0.9, 0.7
RNG = np.random.default_rng(0)
OBS = RNG.normal(size=(BATCH, 2)).astype(np.float32)
ACTION = RNG.uniform(-1, 1, size=(BATCH, 1)).astype(np.float32)  # unit actions; raw ones lie in [1, 3]
Q = RNG.normal(size=BATCH).astype(np.float32)
NOISE = RNG.normal(size=(4, 1, BATCH, 2)).astype(np.float32)
LOG_PRIOR = np.log(np.array([0.2, 0.5, 0.3], np.float32))


def rule(obs, action, next_obs):
    """Uses all three, so that a mix-up shows."""
    return next_obs[..., 0] + 0.1 * obs[..., 1] > action[..., 0] - 1.5


def value(features):
    return 2.0 * features[..., 0] - features[..., 1] ** 2


def backup_of(models=MODELS, **changes) -> PosteriorBackup:
    """The posterior and its backups for the inputs above, but for `changes`."""
    inputs = {"log_prior": LOG_PRIOR, "norm": NORM, "terminated": KnownTermination(rule), "range": unlimited()}
    inputs |= {"value": value, "q": Q, "obs": OBS, "action": ACTION, "noise": NOISE, "gamma": GAMMA, "beta": BETA}
    return posterior_backup(models, **(inputs | changes))


@jax.jit
def compiled_backup(models, log_prior, q, noise, beta):
    return backup_of(models=models, log_prior=log_prior, q=q, noise=noise, beta=beta)


@pytest.fixture(scope="module")
def backups() -> PosteriorBackup:
    return compiled_backup(MODELS, LOG_PRIOR, Q, NOISE, BETA)


def test_the_posterior_backup_agrees_with_a_loop_over_models_and_draws(backups) -> None:
    obs, action = OBS.astype(np.float64), ACTION.astype(np.float64)
    f, backup, ends = np.empty((3, BATCH)), np.empty((3, BATCH)), 0
    for m in range(3):
        x = np.concatenate([(obs - NORM.obs_mean) / NORM.obs_std, action], axis=1)
        mean, std = predict_by_hand(MODELS, m, x)
        for b in range(BATCH):
            values = []
            for k in range(4):
                after = obs[b] + mean[b, :2] + std[b, :2] * NOISE[k, 0, b]
                np.testing.assert_allclose(backups.next_obs[k, m, b], after, rtol=1e-3, atol=1e-4)
                done = bool(rule(obs[b], 2.0 + action[b], after))
                assert bool(backups.done[k, m, b]) == done
                values.append(0.0 if done else value((after - NORM.obs_mean) / NORM.obs_std))
                ends += done
            assert float(backups.reward[m, b]) == pytest.approx(mean[b, 2], rel=1e-3, abs=1e-4)
            backup[m, b] = mean[b, 2] + GAMMA * np.mean(values)
            f[m, b] = (Q[b] - backup[m, b]) ** 2
    assert 0 < ends < 4 * 3 * BATCH  # both cases occur
    np.testing.assert_allclose(backups.backup, backup, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(backups.f, f, rtol=2e-3, atol=1e-3)
    weight = np.exp(LOG_PRIOR)[:, None] * np.exp(-BETA * f)
    weight /= weight.sum(axis=0)
    np.testing.assert_allclose(np.exp(backups.log_weight), weight, rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(backups.target, (weight * backup).sum(axis=0), rtol=1e-2, atol=5e-3)


def test_without_beta_the_target_is_the_priors_mean_backup() -> None:
    found = compiled_backup(MODELS, LOG_PRIOR, Q, NOISE, 0.0)
    np.testing.assert_allclose(found.target, np.exp(LOG_PRIOR) @ np.asarray(found.backup), rtol=1e-4, atol=1e-5)


def test_identical_members_agree_bit_for_bit() -> None:
    """Common noise: what differs between members is what they predict, not luck."""
    same = MODELS.take(jnp.array([1, 1, 1]))
    found = compiled_backup(same, LOG_PRIOR, Q, NOISE, BETA)
    for part in (found.next_obs[:, 1], found.next_obs[:, 2]):
        np.testing.assert_array_equal(part, found.next_obs[:, 0])
    np.testing.assert_array_equal(found.f[0], found.f[2])
    np.testing.assert_allclose(np.exp(found.log_weight), np.exp(LOG_PRIOR)[:, None].repeat(BATCH, axis=1), rtol=1e-5)


def test_noise_comes_in_pairs_that_cancel() -> None:
    noise = np.asarray(antithetic_noise(jax.random.PRNGKey(0), 2, jnp.zeros((5, 2))))
    assert noise.shape == (4, 1, 5, 2)
    np.testing.assert_array_equal(noise[:2], -noise[2:])
    assert len(np.unique(np.abs(noise))) == 20


def test_a_rule_that_never_terminates_ends_no_rollout() -> None:
    found = jax.jit(lambda noise: backup_of(terminated=NeverTerminates(), noise=noise, beta=1.0))(NOISE)
    assert not np.asarray(found.done).any()


# Persistent rollouts


def made_backup(done: np.ndarray, log_weight: np.ndarray) -> PosteriorBackup:
    """Next observations that tell where they come from: 100 draw + 10 model + transition."""
    draw, model, row = np.meshgrid(range(2), range(3), range(BATCH), indexing="ij")
    obs = (100.0 * draw + 10.0 * model + row)[..., None]
    zero, zeros = jnp.zeros((3, BATCH)), jnp.zeros((2, 3, BATCH))
    return PosteriorBackup(
        jnp.asarray(obs), jnp.asarray(done), zero, zeros, zero, zero, jnp.asarray(log_weight), zero[0]
    )


def rollouts(age, member=(0, 0, 0, 0, 0)) -> PersistentRollouts:
    return PersistentRollouts(jnp.full((BATCH, 1), -7.0), jnp.array(age), jnp.array(member))


def test_rollouts_follow_their_member_and_restart_at_an_end_or_the_horizon() -> None:
    done = np.zeros((2, 3, BATCH), bool)
    done[0, 2, 1] = True  # rollout 1 ends in its member
    done[0, 0, 2] = True  # rollout 2 would have ended in another member
    done[1, 1, 3] = True  # rollout 3 would have ended with another draw
    member = jnp.array([1, 2, 1, 1, 0])
    restart = jnp.arange(500.0, 505.0)[:, None]
    after = follow(rollouts([0, 3, 5, 5, 6]), made_backup(done, np.zeros((3, BATCH))), member, restart, horizon=7)
    np.testing.assert_array_equal(after.obs[:, 0], [10.0, 501.0, 12.0, 13.0, 504.0])
    np.testing.assert_array_equal(after.age, [1, 0, 6, 6, 0])
    np.testing.assert_array_equal(after.member, member)


def test_a_rollout_restarts_exactly_at_its_horizon() -> None:
    backups = made_backup(np.zeros((2, 3, BATCH), bool), np.zeros((3, BATCH)))
    now, ages = rollouts([0] * BATCH), []
    for _ in range(7):
        ages.append(int(now.age[0]))
        now = follow(now, backups, jnp.zeros(BATCH, jnp.int32), jnp.zeros((BATCH, 1)), horizon=3)
    assert ages == [0, 1, 2, 0, 1, 2, 0]


def test_a_held_member_stays_for_the_episode_and_is_drawn_again_at_its_start() -> None:
    sure = np.full((3, BATCH), -np.inf)
    sure[2] = 0.0  # the posterior says 2, always
    backups = made_backup(np.zeros((2, 3, BATCH), bool), sure)
    now = rollouts([0, 1, 5, 0, 2], member=[0, 0, 1, 1, 1])
    held = draw_members(now, backups, jax.random.PRNGKey(0), hold=True)
    np.testing.assert_array_equal(held, [2, 0, 1, 2, 1])
    redrawn = draw_members(now, backups, jax.random.PRNGKey(0), hold=False)
    np.testing.assert_array_equal(redrawn, 2)


def test_members_are_drawn_with_the_posteriors_frequencies() -> None:
    probability = np.array([0.2, 0.7, 0.1])
    log_weight = np.repeat(np.log(probability)[:, None], 20_000, axis=1)
    nothing = jnp.zeros((1, 1))
    backups = PosteriorBackup(*[nothing] * 6, jnp.asarray(log_weight), nothing)
    many = PersistentRollouts(nothing, jnp.zeros(20_000, int), jnp.zeros(20_000, int))
    drawn = np.asarray(draw_members(many, backups, jax.random.PRNGKey(3), hold=True))
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 20_000, probability, atol=0.02)


# Limits: where the dataset ends, and what its rewards can add up to


def backups_with(limits: Limits, reach: float = 1.0) -> tuple[PosteriorBackup, PosteriorBackup]:
    """The same backups in a narrow box, without limits and with them."""
    narrow, within = plain_norm(reach=reach), unlimited(edge_low=-reach, edge_high=reach)

    def run(limits: Limits) -> PosteriorBackup:
        return jax.jit(lambda noise: backup_of(norm=narrow, range=within, noise=noise, limits=limits))(NOISE)

    return run(Limits()), run(limits)


def test_predictions_past_an_edge_at_which_columns_saturate_are_moved_to_it() -> None:
    free, _ = backups_with(Limits())
    assert np.abs(free.next_obs).max() == 1.0
    assert (np.abs(free.next_obs) < 1.0).any()


def test_leaving_the_box_ends_the_rollout_at_the_given_value() -> None:
    free, ended = backups_with(Limits(Box(np.full(2, -1.5), np.full(2, 1.5)), left_value=-3.0))
    narrow = plain_norm(reach=1.0)
    left = np.zeros(free.done.shape, bool)
    expected = np.zeros((3, BATCH))
    for m in range(3):
        x = np.concatenate([(OBS - narrow.obs_mean) / narrow.obs_std, ACTION], axis=1).astype(np.float64)
        mean, std = predict_by_hand(MODELS, m, x)
        for b in range(BATCH):
            ahead = []
            for k in range(4):
                predicted = OBS[b] + mean[b, :2] + std[b, :2] * NOISE[k, 0, b]
                left[k, m, b] = (np.abs(predicted) > 1.5).any()
                kept = np.clip(predicted, -1, 1)
                if rule(OBS[b], 2.0 + ACTION[b], kept):
                    ahead.append(0.0)
                else:
                    ahead.append(-3.0 if left[k, m, b] else value((kept - narrow.obs_mean) / narrow.obs_std))
            expected[m, b] = mean[b, 2] + GAMMA * np.mean(ahead)
    assert left.any()
    assert not left.all()
    np.testing.assert_array_equal(ended.done, np.asarray(free.done) | left)
    np.testing.assert_allclose(ended.backup, expected, rtol=1e-3, atol=1e-3)


def test_the_box_is_the_datasets_range_with_a_margin_and_open_at_repeated_edges() -> None:
    obs = np.random.default_rng(0).uniform(-1.0, 1.0, (1000, 3)).astype(np.float32)
    obs[:, 1] = np.clip(3 * obs[:, 1], -2.0, 2.5)  # a sensor that saturates
    obs[:9, 2] = -4.0  # nine transitions may still be chance
    norm = plain_norm(reach=1.0)._replace(obs_low=obs.min(0), obs_high=obs.max(0))
    low, high = data_box(obs, norm, 0.5)
    width = obs.max(0) - obs.min(0)
    np.testing.assert_allclose(low, [obs[:, 0].min() - width[0] / 2, -np.inf, -4.0 - width[2] / 2], rtol=1e-6)
    np.testing.assert_allclose(
        high, [obs[:, 0].max() + width[0] / 2, np.inf, obs[:, 2].max() + width[2] / 2], rtol=1e-6
    )
    far = np.array([[0.0, 99.0, 0.0], [99.0, 0.0, 0.0], [0.0, 0.0, -9.0]], np.float32)
    assert np.asarray(outside(jnp.asarray(far), Box(low, high))).tolist() == [False, True, True]


def test_backups_are_clipped_and_the_posterior_sees_the_clipped_ones() -> None:
    free, clipped = backups_with(Limits(backup_low=-0.2, backup_high=0.3), reach=5.0)
    assert (np.asarray(free.backup) > 0.3).any()
    np.testing.assert_allclose(clipped.backup, np.clip(free.backup, -0.2, 0.3), rtol=1e-6)
    np.testing.assert_allclose(clipped.f, (Q - np.asarray(clipped.backup)) ** 2, rtol=1e-5, atol=1e-7)


def test_outside_is_two_sided_and_any_column_suffices() -> None:
    rows = np.array([[0.0, 0.0], [1.19, -1.19], [1.21, 0.0], [0.0, -1.21]], np.float32)
    assert np.asarray(outside(jnp.asarray(rows), Box(np.full(2, -1.2), np.full(2, 1.2)))).tolist() == [
        False,
        False,
        True,
        True,
    ]
