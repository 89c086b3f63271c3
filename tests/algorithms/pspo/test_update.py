"""One iteration of PSPO against the equations, computed by hand from the same random draws."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.algorithms.pspo import algorithm as pspo
from pspo.algorithms.pspo import improvement as pspo_improvement
from pspo.algorithms.pspo import rollout
from pspo.algorithms.pspo.algorithm import Params, State
from pspo.algorithms.pspo.improvement import Sampled, alpha_at, improve
from tests.algorithms.pspo.pspo_cases import (
    constraints,
    critics_by_hand,
    encode_by_hand,
    ends,
    log_density_by_hand,
    made_config,
    made_data,
    made_policy,
    made_setup,
    mlp_by_hand,
    predict_by_hand,
    start,
)
from tests.arrays import f32

CONFIG = made_config(beta=2.0, critic_lr=0.01, tau=0.25, policy_tau=0.125, lambda_lr=0.05)
SETUP, DATA = made_setup(log_prior=(0.0, 1.0, -0.5)), made_data()
WATCHED = {
    rollout: ("antithetic_noise", "rollout_action", "active_posterior", "draw_members"),
    pspo_improvement: ("sample_actions", "improve"),
}


def some_state() -> State:
    """Networks that all differ, so that taking one for another shows."""
    rng = np.random.default_rng(7)

    def noisy(tree):
        return jax.tree.map(lambda leaf: leaf + f32(rng.normal(scale=0.3, size=leaf.shape)), tree)

    state = start()
    params = Params(made_policy(2), noisy(state.params.critic), noisy(state.params.value))
    return state._replace(
        params=params,
        target_critic=noisy(state.target_critic),
        target_policy=made_policy(4),
        f_scale=jnp.float32(0.6),
        log_lambda=jnp.log(jnp.float32(0.4)),
        rollouts=state.rollouts._replace(obs=state.rollouts.obs + 0.5),
    )


@pytest.fixture(scope="module")
def iterate():
    """A compiled iteration that also gives out what it drew and computed on the way."""
    with pytest.MonkeyPatch.context() as patch:
        seen = {}
        for home, names in WATCHED.items():
            for name in names:
                patch.setattr(home, name, watch(seen, name, getattr(home, name)))
        patch.setattr(pspo, "critic_loss", watch(seen, "critic_loss", pspo.critic_loss, inputs=slice(1, 4)))

        @jax.jit
        def compiled(state: State, key):
            moved, context, _ = pspo.begin_chunk(CONFIG, SETUP, DATA, state)
            batch = pspo.draw(CONFIG, DATA, key)
            after, metrics = pspo.update(CONFIG, SETUP, context, moved, batch, key)
            return after, metrics, batch, context, dict(seen)

        def call(state: State) -> SimpleNamespace:
            after, metrics, batch, context, on_the_way = compiled(state, jax.random.PRNGKey(11))
            return SimpleNamespace(
                before=state, after=after, metrics=metrics, batch=batch, context=context, **on_the_way
            )

        call(some_state())  # compiled while the watches are in place
        yield call


def watch(seen: dict, name: str, real, inputs: slice | None = None):
    def watched(*arguments, **options):
        result = real(*arguments, **options)
        seen[name] = result if inputs is None else arguments[inputs]
        return result

    return watched


@pytest.fixture(scope="module")
def one(iterate) -> SimpleNamespace:
    return iterate(some_state())


# Evaluation


def by_hand_synthetic(one) -> SimpleNamespace:
    """Eqs. (4) and (8) at the states of rollouts, in loops over models and draws."""
    state, norm = one.before, SETUP.norm
    obs, action = np.asarray(state.rollouts.obs, np.float64), np.asarray(one.rollout_action, np.float64)
    noise = np.asarray(one.antithetic_noise, np.float64)
    features = encode_by_hand(norm, obs)
    q = critics_by_hand(state.target_critic, features, action).mean(axis=0)
    raw_action = -2.0 + 2.5 * (action + 1.0)
    backups, every_done = [], []
    for m in range(2):
        mean, std = predict_by_hand(one.context.models, m, np.concatenate([features, action], axis=1))
        values = []
        for draw in noise[:, 0]:
            next_obs = np.clip(obs + mean[:, :2] + std[:, :2] * draw, -5.0, 5.0)
            done = np.asarray(ends(obs, raw_action, next_obs))
            value = mlp_by_hand(state.params.value, encode_by_hand(norm, next_obs))[:, 0]
            values.append(np.where(done, 0.0, value))
            every_done.append(done)
        backups.append(mean[:, 2] + CONFIG.gamma * np.mean(values, axis=0))
    backups = np.stack(backups)
    f = (q - backups) ** 2
    weight = np.exp(np.asarray(one.context.log_prior, np.float64))[:, None] * np.exp(-CONFIG.beta / 0.6 * f)
    weight /= weight.sum(axis=0)
    return SimpleNamespace(f=f, weight=weight, target=(weight * backups).sum(axis=0), done=np.array(every_done))


def test_synthetic_targets_are_the_posteriors_expected_backup(one) -> None:
    expected = by_hand_synthetic(one)
    assert 0 < expected.done.mean() < 1  # ends and no ends both occur
    np.testing.assert_allclose(one.active_posterior.f, expected.f, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(np.exp(one.active_posterior.log_weight), expected.weight, rtol=2e-3, atol=1e-4)
    assert expected.weight.std() > 0.01  # the posterior is not uniform
    np.testing.assert_allclose(one.critic_loss[2][CONFIG.real_batch :], expected.target, rtol=1e-3, atol=1e-3)


def test_real_targets_are_reward_plus_discounted_value_unless_terminal(one) -> None:
    real = one.batch.real
    value = mlp_by_hand(one.before.params.value, encode_by_hand(SETUP.norm, real.next_obs))[:, 0]
    terminal = np.asarray(real.terminal)
    assert 0 < terminal.sum() < len(terminal)
    expected = np.asarray(real.reward) + np.where(terminal, 0.0, CONFIG.gamma * value)
    np.testing.assert_allclose(one.critic_loss[2][: CONFIG.real_batch], expected, rtol=1e-4, atol=1e-5)


def test_every_transition_has_its_own_target(one) -> None:
    """Features, actions and targets are stacked in the same order, real transitions first."""
    features, action, target = one.critic_loss
    real = one.batch.real
    obs = np.concatenate([real.obs, one.before.rollouts.obs])
    np.testing.assert_allclose(features, encode_by_hand(SETUP.norm, obs), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(action, np.concatenate([real.action, one.rollout_action]))
    assert np.abs(one.rollout_action).max() <= 1.0
    q = critics_by_hand(one.before.params.critic, np.asarray(features, np.float64), np.asarray(action, np.float64))
    expected = ((q - np.asarray(target, np.float64)) ** 2).mean()
    assert float(one.metrics["critic_loss"]) == pytest.approx(expected, rel=1e-3)


# Improvement


def by_hand_improvement(one) -> SimpleNamespace:
    state, x = one.before, np.asarray(one.sample_actions.x, np.float64)
    features = np.asarray(one.critic_loss[0], np.float64)
    unit = np.clip(1.02 * np.tanh(x), -1.0, 1.0)
    q = critics_by_hand(state.target_critic, features, unit).mean(axis=0)
    nets = SETUP.arrays.reference, state.params.policy, state.target_policy
    mu, policy, target = (np.exp(log_density_by_hand(p, features, x)) for p in nets)
    proposal = 0.5 * (mu + policy)
    alpha, multiplier = CONFIG.alpha, float(np.exp(state.log_lambda))
    both = alpha + multiplier
    soft = alpha * np.log((mu / proposal * np.exp(q / alpha)).mean(axis=0))
    weight = mu ** (alpha / both) * target ** (multiplier / both) * np.exp(q / both) / proposal
    weight /= weight.sum(axis=0)
    return SimpleNamespace(q=q, mu=mu, policy=policy, target=target, soft=soft, weight=weight, features=features, x=x)


def test_soft_values_and_improvement_weights_are_the_closed_forms(one) -> None:
    expected = by_hand_improvement(one)
    assert expected.x.shape == (6, 11, 1)
    np.testing.assert_allclose(one.sample_actions.q, expected.q, rtol=1e-3, atol=1e-4)
    soft, log_weight = one.improve
    np.testing.assert_allclose(soft, expected.soft, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(np.exp(log_weight), expected.weight, rtol=5e-3, atol=1e-4)


def test_value_and_policy_losses_are_regression_and_weighted_likelihood(one) -> None:
    expected = by_hand_improvement(one)
    value = mlp_by_hand(one.before.params.value, expected.features)[:, 0]
    assert float(one.metrics["value_loss"]) == pytest.approx(((value - expected.soft) ** 2).mean(), rel=1e-3)
    likelihood = -(expected.weight * np.log(expected.policy)).sum(axis=0).mean()
    assert float(one.metrics["policy_loss"]) == pytest.approx(likelihood, rel=1e-3, abs=1e-4)


def test_divergences_are_measured_on_the_policys_own_samples(one) -> None:
    expected = by_hand_improvement(one)
    own = slice(CONFIG.action_samples, None)
    for name, other in (("kl_mu", expected.mu), ("kl_target_policy", expected.target)):
        kl = np.log(expected.policy / other)[own].mean()
        assert float(one.metrics[name]) == pytest.approx(kl, rel=1e-3, abs=1e-4)


def test_without_the_reference_term_mu_has_no_part() -> None:
    config = made_config(reference_term=False)
    rng = np.random.default_rng(0)
    q, log_policy, log_target, log_mu, other_mu = rng.normal(size=(5, 6, 4))
    multiplier = 0.7

    def improved(log_mu, log_policy):
        drawn = Sampled(
            jnp.zeros((6, 4, 1)), *(jnp.asarray(a) for a in (log_mu, log_policy, log_target, q)), kl_states=jnp.zeros(4)
        )
        soft, log_weight = improve(config, drawn, constraints(config, multiplier))
        return np.asarray(soft), np.exp(log_weight)

    soft, weight = improved(log_mu, log_policy)
    np.testing.assert_allclose(soft, q[3:].mean(axis=0), rtol=1e-5)  # plain evaluation of the policy's own samples
    expected = np.exp(log_target + q / multiplier) / (0.5 * (np.exp(log_mu) + np.exp(log_policy)))
    np.testing.assert_allclose(weight, expected / expected.sum(axis=0), rtol=1e-4)
    # other densities of mu, and of the policy such that the proposal stays as it was: nothing changes
    twice = np.exp(log_mu) + np.exp(log_policy)
    other = np.minimum(np.exp(other_mu), 0.9 * twice)
    again_soft, again = improved(np.log(other), np.log(twice - other))
    np.testing.assert_allclose(again_soft, soft, rtol=1e-6)
    np.testing.assert_allclose(again, weight, rtol=1e-3)


# What moves


def test_averages_follow_at_their_rates(one) -> None:
    before, after = one.before, one.after
    for old, online, new, rate in (
        (before.target_critic, after.params.critic, after.target_critic, 0.25),
        (before.target_policy, after.params.policy, after.target_policy, 0.125),
    ):
        for o, f, n in zip(*(jax.tree.leaves(tree) for tree in (old, online, new)), strict=True):
            expected = (1 - rate) * np.asarray(o, np.float64) + rate * np.asarray(f, np.float64)
            np.testing.assert_allclose(n, expected, rtol=1e-4, atol=1e-6)


def test_each_network_learns_at_its_own_rate(one) -> None:
    """Adam's first step is the learning rate, whatever the gradient."""
    before, after = one.before.params, one.after.params
    for part, rate in (("policy", 1e-3), ("critic", 0.01), ("value", 0.01)):
        for old, new in zip(jax.tree.leaves(getattr(before, part)), jax.tree.leaves(getattr(after, part)), strict=True):
            step = np.abs(np.asarray(new, np.float64) - np.asarray(old, np.float64))
            assert np.quantile(step, 0.9) == pytest.approx(rate, rel=0.05)


def test_the_running_standard_deviation_of_f_is_followed(one) -> None:
    std = by_hand_synthetic(one).f.std(axis=0).mean()
    assert float(one.after.f_scale) == pytest.approx(0.6 + 0.02 * (std - 0.6), rel=1e-4)


def test_rollouts_follow_the_drawn_member(one) -> None:
    backup, member, before, after = (
        one.active_posterior,
        np.asarray(one.draw_members),
        one.before.rollouts,
        one.after.rollouts,
    )
    for b in range(CONFIG.synthetic_batch):
        over = bool(backup.done[0, member[b], b]) or int(before.age[b]) + 1 >= CONFIG.rollout_horizon
        expected = one.batch.restart[b] if over else backup.next_obs[0, member[b], b]
        np.testing.assert_array_equal(after.obs[b], expected)
        assert int(after.age[b]) == (0 if over else int(before.age[b]) + 1)
    assert int(one.after.step) == int(one.before.step) + 1


def test_lambda_rises_above_epsilon_and_falls_below(iterate, one) -> None:
    state = some_state()
    kl = float(one.metrics["kl_target_policy"])
    assert kl > 2 * CONFIG.epsilon
    assert float(one.after.log_lambda) == pytest.approx(np.log(0.4) + 0.05, abs=1e-5)  # the push is at most one
    close = iterate(state._replace(target_policy=state.params.policy))
    assert float(close.metrics["kl_target_policy"]) == pytest.approx(0.0, abs=1e-6)
    assert float(close.after.log_lambda) == pytest.approx(np.log(0.4) - 0.05, abs=1e-5)
    assert float(close.metrics["lambda"]) == pytest.approx(0.4, rel=1e-5)


def test_lambda_follows_the_excess_in_between(iterate) -> None:
    state = some_state()
    nudged = jax.tree.map(lambda leaf: leaf + 0.005, state.params.policy)
    found = iterate(state._replace(target_policy=nudged))
    kl = float(found.metrics["kl_target_policy"])
    push = np.clip(kl / CONFIG.epsilon - 1.0, -1.0, 1.0)
    assert -0.9 < push < 0.9
    assert float(found.after.log_lambda) == pytest.approx(np.log(0.4) + 0.05 * push, abs=1e-5)


def test_lambda_stays_in_its_range(iterate) -> None:
    lowest, highest = pspo.LOG_LAMBDA_RANGE
    state = some_state()
    assert float(iterate(state._replace(log_lambda=jnp.float32(highest))).after.log_lambda) == pytest.approx(highest)
    close = state._replace(target_policy=state.params.policy, log_lambda=jnp.float32(lowest))
    assert float(iterate(close).after.log_lambda) == pytest.approx(lowest)


def test_the_active_set_is_drawn_without_repetition_with_its_prior(one) -> None:
    pool = np.asarray(SETUP.arrays.pool.net.weights[0])
    picked = [
        int(np.flatnonzero([np.array_equal(w, member) for member in pool])[0])
        for w in one.context.models.net.weights[0]
    ]
    assert len(set(picked)) == len(picked) == CONFIG.active
    prior = np.exp(np.array([0.0, 1.0, -0.5])[picked])
    np.testing.assert_allclose(np.exp(one.context.log_prior), prior / prior.sum(), rtol=1e-5)


def test_metrics_tell_what_happened(one) -> None:
    weight = by_hand_synthetic(one).weight
    entropy = -(weight * np.log(weight)).sum(axis=0)
    assert float(one.metrics["posterior_entropy"]) == pytest.approx(entropy.mean() / np.log(2), rel=1e-3)
    assert float(one.metrics["effective_models"]) == pytest.approx(np.exp(entropy).mean(), rel=1e-3)
    q = by_hand_improvement(one).q
    for name, expected in (("q_min", q.min()), ("q_mean", q.mean()), ("q_max", q.max())):
        assert float(one.metrics[name]) == pytest.approx(expected, rel=1e-3, abs=1e-4)
    assert all(np.isfinite(float(value)) for value in one.metrics.values())


# The start, and the learning rates over time


def test_the_policy_starts_as_mu_and_ages_differ() -> None:
    state = start()
    for other in (state.params.policy, state.target_policy):
        for a, b in zip(jax.tree.leaves(other), jax.tree.leaves(SETUP.arrays.reference), strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(state.rollouts.age, [0, 1, 2, 3, 0])
    states = np.asarray(DATA.transitions.obs)
    assert all((states == row).all(axis=1).any() for row in np.asarray(state.rollouts.obs))
    assert float(np.exp(state.log_lambda)) == pytest.approx(CONFIG.lambda_init, rel=1e-5)


def test_learning_rates_are_constant_for_one_half_and_fall_to_their_fraction() -> None:
    config = made_config(steps=10, critic_lr=0.1, policy_lr=0.01, final_lr=0.2)
    optimiser, ones = pspo.optimiser(config), Params(jnp.ones(1), jnp.ones(1), jnp.ones(1))

    @jax.jit
    def many(opt):
        def step(opt, _):
            updates, opt = optimiser.update(ones, opt, ones)
            return opt, updates

        return jax.lax.scan(step, opt, None, length=12)[1]

    steps = many(optimiser.init(ones))
    share = np.array([1.0] * 5 + [0.2 + 0.8 * 0.5 * (1 + np.cos(np.pi * min(k, 5) / 5)) for k in range(7)])
    np.testing.assert_allclose(-steps.critic[:, 0], 0.1 * share, rtol=1e-3)
    np.testing.assert_allclose(-steps.value[:, 0], 0.1 * share, rtol=1e-3)
    np.testing.assert_allclose(-steps.policy[:, 0], 0.01 * share, rtol=1e-3)


@pytest.mark.parametrize(
    ("kl_per_column", "times"), [(0.2, 1.0), (0.5, 1.0), (0.75, np.exp(2.0)), (50.0, np.exp(12.0))]
)
def test_alpha_rises_only_at_states_beyond_the_limit(kl_per_column, times) -> None:
    kl = jnp.array([0.0, 3.0 * kl_per_column])
    np.testing.assert_allclose(
        alpha_at(made_config(alpha=0.3, kl_limit=0.5), kl, 3, 0.5), [0.3, 0.3 * times], rtol=1e-5
    )
    np.testing.assert_allclose(alpha_at(made_config(alpha=0.3), kl, 3, 0.0), 0.3)
    np.testing.assert_array_equal(alpha_at(made_config(reference_term=False), kl, 3, 0.0), 0.0)


def test_beyond_the_limit_the_improved_policy_goes_back_to_mu() -> None:
    rng = np.random.default_rng(0)
    log_mu, log_policy, log_target, q = (jnp.asarray(a) for a in rng.normal(size=(4, 6, 2)))
    drawn = Sampled(jnp.zeros((6, 2, 1)), log_mu, log_policy, log_target, q, kl_states=jnp.array([0.0, 9.0]))
    config = made_config(alpha=0.3, kl_limit=1.0)
    _, limited = improve(config, drawn, constraints(config, 0.1))
    _, free = improve(made_config(alpha=0.3), drawn, constraints(made_config(alpha=0.3), 0.1))
    np.testing.assert_allclose(limited[:, 0], free[:, 0], rtol=1e-5)
    proposal = 0.5 * (np.exp(log_mu) + np.exp(log_policy))
    only_mu = np.exp(log_mu) / proposal
    np.testing.assert_allclose(np.exp(limited[:, 1]), (only_mu / only_mu.sum(axis=0))[:, 1], rtol=1e-3)
    assert np.abs(free[:, 1] - limited[:, 1]).max() > 0.1
