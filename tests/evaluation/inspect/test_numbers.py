"""Q, densities, weights and doubt of real runs, against NumPy on the same networks."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from pspo.core.progress import silent
from pspo.data.normalise import ACTION_MARGIN, squash
from pspo.evaluation.inspect.acts import choose
from pspo.evaluation.inspect.beliefs import mixed
from pspo.evaluation.inspect.values import BEST, LOGGED, POLICY, REFERENCE, values_in
from pspo.evaluation.ope.trained import last_state
from pspo.policies.heads import mixture_moments
from tests.evaluation.inspect.inspecting_cases import ROW, Looked, member_net, plain_net

BOTH = ["pspo", pytest.param("td3bc", marks=pytest.mark.slow)]


@pytest.mark.parametrize("algo", BOTH)
def test_q_along_every_action_column(looked, algo) -> None:
    case, found = looked[algo], looked[algo].found.values
    own = case.policy(case.obs)
    for i, curve in enumerate(found.curves):
        actions = np.repeat(own[None], len(curve.action), axis=0)
        actions[:, i] = curve.action
        assert (curve.action[0], curve.action[-1]) == (case.data.action_low[i], case.data.action_high[i])
        each = case.q(np.repeat(case.obs[None], len(actions), axis=0), case.unit(actions))
        assert curve.q == pytest.approx(each.mean(0), rel=1e-4, abs=1e-5)
        assert curve.spread == pytest.approx(each.std(0, ddof=1), rel=1e-2, abs=1e-4)


@pytest.mark.parametrize("algo", BOTH)
def test_marks_are_what_they_are_called(looked, algo) -> None:
    case, found = looked[algo], looked[algo].found.values
    assert [mark.name for mark in found.marks] == [POLICY, REFERENCE, BEST, LOGGED]
    assert found.mark(POLICY).action == pytest.approx(case.policy(case.obs), abs=1e-5)
    assert found.mark(LOGGED).action == pytest.approx(case.data.action[ROW], abs=1e-5)
    assert found.mark(BEST).q == pytest.approx(max(curve.q.max() for curve in found.curves), rel=1e-5)
    at_policy = case.q(case.obs[None], case.unit(found.mark(POLICY).action)[None])[:, 0]
    for mark in found.marks:
        each = case.q(case.obs[None], case.unit(mark.action)[None])[:, 0]
        assert mark.q == pytest.approx(each.mean(), rel=1e-4, abs=1e-5)
        assert mark.gain == pytest.approx((each - at_policy).mean(), abs=1e-3)
        assert mark.gain_spread == pytest.approx((each - at_policy).std(ddof=1), abs=1e-3)


@pytest.mark.slow
def test_the_lowest_critic_speaks_where_pspo_says_so(looked) -> None:
    case = looked["td3bc"]
    cautious = case.judges._replace(together="min")
    chosen = choose(case.subject, cautious, case.obs)
    found = values_in(case.subject, cautious, ["a", "b"], case.obs, chosen, None)
    each = case.q(case.obs[None], case.unit(found.mark(POLICY).action)[None])[:, 0]
    assert found.mark(POLICY).q == pytest.approx(each.min(), rel=1e-4, abs=1e-5)
    assert len(found.marks) == 3  # no row, nothing logged


def mixture_log_density(case: Looked, network: Any, unit: np.ndarray) -> np.ndarray:
    """Of raw actions: Gaussians before the squash, the squash's slope, and the bounds' width."""
    setup = {"net": plain_net(network.net), "components": network.components, "action_dim": network.action_dim}
    logits, mean, log_std = mixture_moments(setup, case.features().astype(np.float64))
    x = np.arctanh(unit / (1.0 + ACTION_MARGIN))[:, None]
    each = -0.5 * ((x - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    before = logsumexp(logits - logsumexp(logits) + each.sum(-1), axis=-1)
    slope = (1.0 + ACTION_MARGIN) * (1.0 - np.tanh(x[:, 0]) ** 2)
    width = case.data.action_high - case.data.action_low
    return before - np.log(slope).sum(-1) + np.log(2.0 / width).sum()


@pytest.mark.parametrize("algo", BOTH)
def test_densities_of_mu_and_policy(looked, algo) -> None:
    case, found = looked[algo], looked[algo].found
    mu, own = case.judges.reference, case.unit(case.policy(case.obs))
    for i, curve in enumerate(found.values.curves):
        unit = np.repeat(own[None].astype(np.float64), len(curve.action), axis=0)
        unit[:, i] = np.linspace(-1, 1, len(unit))
        assert curve.reference_log_density == pytest.approx(mixture_log_density(case, mu, unit), abs=2e-3)
        if algo == "pspo":
            policy = mixture_log_density(case, case.subject.network, unit)
            assert curve.policy_log_density == pytest.approx(policy, abs=2e-3)
        else:
            assert curve.policy_log_density is None
    act = found.act
    mode = case.unit([column.reference for column in act.columns])
    at = mixture_log_density(case, mu, np.stack([own, mode]))
    assert act.reference_log_density == pytest.approx(at[0], abs=2e-3)
    assert act.below_mode == pytest.approx(at[1] - at[0], abs=2e-3)
    assert (act.log_ratio is None) == (algo == "td3bc")
    assert (act.columns[0].noise > 0) == (algo == "pspo")
    drawn = np.asarray(squash(mu(case.judges.norm.encode(case.obs)).sample(jax.random.PRNGKey(99), 4000)))
    rarer = mixture_log_density(case, mu, drawn.astype(np.float64)) <= at[0]
    assert act.percentile == pytest.approx(100 * rarer.mean(), abs=5.0)  # other draws of the same density


def test_pspos_models_are_weighed_by_their_consistency(looked) -> None:
    """P(T_i|E) is proportional to exp(-beta F_i), F_i = (Q - r_i - gamma V(s'_i))^2; the run's models have no noise."""
    case, found = looked["pspo"], looked["pspo"].found.beliefs
    trained = last_state(case.run, case.data, silent)
    assert trained is not None
    config, setup, state = trained
    norm, pool = setup.norm, setup.arrays.pool
    own = case.unit(case.policy(case.obs))
    x = np.concatenate([case.features(), own])
    value = plain_net(state.params.value)
    q = case.q(case.obs[None], own[None]).mean() / norm.reward_scale
    f, following = np.zeros(pool.size), np.zeros((pool.size, 4))
    for i in range(pool.size):
        mean = member_net(pool.net, i)(x)[:4] * np.asarray(pool.target_std) + np.asarray(pool.target_mean)
        following[i] = [*(case.obs + mean[:3]), mean[3] * norm.reward_scale]
        ahead = norm.snap((case.obs + mean[:3]).astype(np.float32))
        f[i] = (q - mean[3] - config.gamma * value(norm.encode(ahead))[0]) ** 2
    weight = softmax(-config.beta * f / float(state.f_spread))
    assert found.ends == 0.0  # nothing in this log does
    assert np.ptp(weight) > 1e-3
    for model in found.members:
        assert model.weight == pytest.approx(weight[model.number], rel=1e-2)
        assert [*model.next_obs, model.reward] == pytest.approx(following[model.number], rel=1e-3, abs=1e-3)
    assert [m.weight for m in found.members] == sorted((m.weight for m in found.members), reverse=True)
    assert found.effective == pytest.approx(1 / (weight**2).sum(), rel=1e-2)
    assert found.entropy == pytest.approx(-(weight * np.log(weight)).sum() / np.log(pool.size), rel=1e-2)
    expected = weight @ following
    assert [c.expected for c in found.following] == pytest.approx(expected, rel=1e-3, abs=1e-3)
    between = np.sqrt(weight @ (following - expected) ** 2)
    assert [c.between for c in found.following] == pytest.approx(between, rel=2e-2, abs=1e-4)


@pytest.mark.slow
def test_fitted_critics_weigh_in_the_unit_of_the_log(looked) -> None:
    """The unit of F is its mean spread over logged states, not that of the one state that is asked about."""
    case = looked["td3bc"]
    own = np.asarray(case.subject.act(case.compared))
    key = jax.random.fold_in(jax.random.PRNGKey(0), 0)
    count = min(500, len(own))
    said = case.judges.weigh(case.compared[:count], own[:count], key)
    f, odds = np.asarray(said.f, np.float64), np.asarray(said.log_weight, np.float64)
    unit = f.std(0).mean()
    assert odds == pytest.approx(np.log(softmax(-f / unit, axis=0)), abs=2e-2)
    assert sum(m.weight for m in case.found.beliefs.members) == pytest.approx(1.0)


@pytest.mark.parametrize("algo", BOTH)
def test_doubt_is_compared_with_logged_states(looked, algo) -> None:
    case, found = looked[algo], looked[algo].found.doubt
    obs = np.concatenate([case.obs[None], case.compared])
    unit = case.unit(case.policy(obs))
    spread = case.q(obs, unit).std(0, ddof=1)
    assert found.critics == pytest.approx(spread[0], rel=1e-2, abs=1e-4)
    assert found.critics_usual == pytest.approx(np.median(spread[1:]), rel=1e-2)
    assert found.critics_percentile == pytest.approx(100 * (spread[1:] < spread[0]).mean(), abs=0.5)
    pool, x = case.judges.pool, np.concatenate([case.features(obs), unit], axis=-1)
    means = np.stack([member_net(pool.net, i)(x)[:, : case.data.obs_dim] for i in range(pool.size)])
    means = means * np.asarray(pool.target_std)[:-1] / case.judges.norm.obs_std
    apart = np.sqrt(means.var(0).mean(-1))
    assert found.models == pytest.approx(apart[0], rel=1e-2)
    assert found.models_percentile == pytest.approx(100 * (apart[1:] < apart[0]).mean(), abs=0.5)
    assert found.compared == min(2000, case.data.size)


def test_what_really_followed_stands_beside_what_was_expected_there(looked) -> None:
    case, found = looked["pspo"], looked["pspo"].found
    data = case.data
    assert found.logged is not None
    assert found.logged.to_go == pytest.approx(data.returns_to_go(found.values.gamma)[ROW])
    followed = [c.followed for c in found.beliefs.following]
    assert followed == pytest.approx([*data.next_obs[ROW], data.reward[ROW]])
    unit = case.unit(data.action[ROW])
    x = np.concatenate([case.features(), unit])
    pool = case.judges.pool
    next_speed = [member_net(pool.net, i)(x)[0] * float(pool.target_std[0]) for i in range(pool.size)]
    low, high = (case.obs[0] + edge + float(pool.target_mean[0]) for edge in (min(next_speed), max(next_speed)))
    assert low - 1e-4 <= found.beliefs.following[0].then_expected <= high + 1e-4


def test_a_mixtures_variance_is_between_plus_within() -> None:
    rng = np.random.default_rng(0)
    weight, mean, std = np.array([0.2, 0.5, 0.3]), rng.normal(size=(3, 2)), rng.uniform(0.5, 1.0, size=(3, 2))
    which = rng.choice(3, 200_000, p=weight)
    drawn = mean[which] + std[which] * rng.normal(size=(200_000, 2))
    expected, between, within = mixed(weight, mean, std)
    assert expected == pytest.approx(drawn.mean(0), abs=0.01)
    assert np.hypot(between, within) == pytest.approx(drawn.std(0), rel=0.01)
