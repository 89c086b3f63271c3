"""Q, densities, weights and disagreement of real runs, against NumPy on the same networks."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from pspo.core.progress import silent
from pspo.data.normalise import ACTION_MARGIN, squash
from pspo.evaluation.inspect.action import choose_actions
from pspo.evaluation.inspect.action_values import BEST, LOGGED, POLICY, REFERENCE, values_of
from pspo.evaluation.inspect.model_predictions import mix
from pspo.evaluation.models_and_critics import trained_pspo
from pspo.policies.heads import mixture_moments
from tests.evaluation.inspect.inspect_cases import ROW, InspectedRun, member_net, plain_net

BOTH = ["pspo", pytest.param("td3bc", marks=pytest.mark.slow)]


@pytest.mark.parametrize("algo", BOTH)
def test_q_along_every_action_column(inspected, algo) -> None:
    case, found = inspected[algo], inspected[algo].found.values
    own = case.policy(case.obs)
    for i, curve in enumerate(found.curves):
        actions = np.repeat(own[None], len(curve.action), axis=0)
        actions[:, i] = curve.action
        assert (curve.action[0], curve.action[-1]) == (case.data.action_low[i], case.data.action_high[i])
        each = case.q(np.repeat(case.obs[None], len(actions), axis=0), case.unit(actions))
        assert curve.q == pytest.approx(each.mean(0), rel=1e-4, abs=1e-5)
        assert curve.std == pytest.approx(each.std(0, ddof=1), rel=1e-2, abs=1e-4)


@pytest.mark.parametrize("algo", BOTH)
def test_marked_actions_and_their_gains(inspected, algo) -> None:
    case, found = inspected[algo], inspected[algo].found.values
    assert [mark.name for mark in found.marks] == [POLICY, REFERENCE, BEST, LOGGED]
    assert found.mark(POLICY).action == pytest.approx(case.policy(case.obs), abs=1e-5)
    assert found.mark(LOGGED).action == pytest.approx(case.data.action[ROW], abs=1e-5)
    assert found.mark(BEST).q == pytest.approx(max(curve.q.max() for curve in found.curves), rel=1e-5)
    at_policy = case.q(case.obs[None], case.unit(found.mark(POLICY).action)[None])[:, 0]
    for mark in found.marks:
        each = case.q(case.obs[None], case.unit(mark.action)[None])[:, 0]
        assert mark.q == pytest.approx(each.mean(), rel=1e-4, abs=1e-5)
        assert mark.gain == pytest.approx((each - at_policy).mean(), abs=1e-3)
        assert mark.gain_std == pytest.approx((each - at_policy).std(ddof=1), abs=1e-3)


@pytest.mark.slow
def test_q_is_the_lowest_critic_where_pspo_is_configured_so(inspected) -> None:
    case = inspected["td3bc"]
    evaluators = case.networks.evaluators._replace(critic_value="min")
    cautious = case.networks._replace(evaluators=evaluators)
    chosen = choose_actions(case.problem, cautious, case.obs)
    found = values_of(case.problem, cautious, ["a", "b"], case.obs, chosen, None)
    each = case.q(case.obs[None], case.unit(found.mark(POLICY).action)[None])[:, 0]
    assert found.mark(POLICY).q == pytest.approx(each.min(), rel=1e-4, abs=1e-5)
    assert len(found.marks) == 3  # without a row there is no logged action


def mixture_log_density(case: InspectedRun, network: Any, unit: np.ndarray) -> np.ndarray:
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
def test_densities_of_mu_and_policy(inspected, algo) -> None:
    case, found = inspected[algo], inspected[algo].found
    mu, own = case.networks.reference, case.unit(case.policy(case.obs))
    for i, curve in enumerate(found.values.curves):
        unit = np.repeat(own[None].astype(np.float64), len(curve.action), axis=0)
        unit[:, i] = np.linspace(-1, 1, len(unit))
        assert curve.reference_log_density == pytest.approx(mixture_log_density(case, mu, unit), abs=2e-3)
        if algo == "pspo":
            policy = mixture_log_density(case, case.problem.network, unit)
            assert curve.policy_log_density == pytest.approx(policy, abs=2e-3)
        else:
            assert curve.policy_log_density is None
    action = found.action
    mode = case.unit([column.reference for column in action.columns])
    at = mixture_log_density(case, mu, np.stack([own, mode]))
    assert action.reference_log_density == pytest.approx(at[0], abs=2e-3)
    assert action.below_mode == pytest.approx(at[1] - at[0], abs=2e-3)
    assert (action.log_ratio is None) == (algo == "td3bc")
    assert (action.columns[0].noise > 0) == (algo == "pspo")
    drawn = np.asarray(squash(mu(case.networks.norm.encode(case.obs)).sample(jax.random.PRNGKey(99), 4000)))
    rarer = mixture_log_density(case, mu, drawn.astype(np.float64)) <= at[0]
    assert action.percentile == pytest.approx(100 * rarer.mean(), abs=5.0)  # other samples of the same density


def test_weights_of_pspos_models_follow_their_consistency(inspected) -> None:
    """P(T_i|E) is proportional to exp(-beta F_i), F_i = (Q - r_i - gamma V(s'_i))^2; the run's models have no noise."""
    case, found = inspected["pspo"], inspected["pspo"].found.models
    trained = trained_pspo(case.run, case.data, silent)
    assert trained is not None
    config, setup, state = trained
    norm, pool = setup.norm, setup.arrays.pool
    own = case.unit(case.policy(case.obs))
    x = np.concatenate([case.features(), own])
    value = plain_net(state.params.value)
    q = case.q(case.obs[None], own[None]).mean() / norm.reward_scale
    f, columns = np.zeros(pool.size), np.zeros((pool.size, 4))
    for i in range(pool.size):
        mean = member_net(pool.net, i)(x)[:4] * np.asarray(pool.target_std) + np.asarray(pool.target_mean)
        columns[i] = [*(case.obs + mean[:3]), mean[3] * norm.reward_scale]
        ahead = norm.snap((case.obs + mean[:3]).astype(np.float32))
        f[i] = (q - mean[3] - config.gamma * value(norm.encode(ahead))[0]) ** 2
    weight = softmax(-config.beta * f / float(state.f_scale))
    assert found.termination == 0.0  # nothing terminates in these data
    assert np.ptp(weight) > 1e-3
    for model in found.members:
        assert model.weight == pytest.approx(weight[model.number], rel=1e-2)
        assert [*model.next_obs, model.reward] == pytest.approx(columns[model.number], rel=1e-3, abs=1e-3)
    assert [m.weight for m in found.members] == sorted((m.weight for m in found.members), reverse=True)
    assert found.effective_models == pytest.approx(1 / (weight**2).sum(), rel=1e-2)
    assert found.entropy == pytest.approx(-(weight * np.log(weight)).sum() / np.log(pool.size), rel=1e-2)
    expected = weight @ columns
    assert [c.expected for c in found.columns] == pytest.approx(expected, rel=1e-3, abs=1e-3)
    between = np.sqrt(weight @ (columns - expected) ** 2)
    assert [c.model_std for c in found.columns] == pytest.approx(between, rel=2e-2, abs=1e-4)


@pytest.mark.slow
def test_fitted_critics_weight_models_in_the_scale_of_the_dataset(inspected) -> None:
    """The scale of F is its mean standard deviation over states of the dataset, not that of the inspected state."""
    case = inspected["td3bc"]
    own = np.asarray(case.problem.act(case.compared))
    key = jax.random.fold_in(jax.random.PRNGKey(0), 0)
    count = min(500, len(own))
    result = case.networks.posterior(case.compared[:count], own[:count], key)
    f, odds = np.asarray(result.f, np.float64), np.asarray(result.log_weight, np.float64)
    unit = f.std(0).mean()
    assert odds == pytest.approx(np.log(softmax(-f / unit, axis=0)), abs=2e-2)
    assert sum(m.weight for m in case.found.models.members) == pytest.approx(1.0)


@pytest.mark.parametrize("algo", BOTH)
def test_disagreement_is_compared_with_states_of_the_dataset(inspected, algo) -> None:
    case, found = inspected[algo], inspected[algo].found.disagreement
    obs = np.concatenate([case.obs[None], case.compared])
    unit = case.unit(case.policy(obs))
    std = case.q(obs, unit).std(0, ddof=1)
    assert found.critics == pytest.approx(std[0], rel=1e-2, abs=1e-4)
    assert found.critics_median == pytest.approx(np.median(std[1:]), rel=1e-2)
    assert found.critics_percentile == pytest.approx(100 * (std[1:] < std[0]).mean(), abs=0.5)
    pool, x = case.networks.pool, np.concatenate([case.features(obs), unit], axis=-1)
    means = np.stack([member_net(pool.net, i)(x)[:, : case.data.obs_dim] for i in range(pool.size)])
    means = means * np.asarray(pool.target_std)[:-1] / case.networks.norm.obs_std
    apart = np.sqrt(means.var(0).mean(-1))
    assert found.models == pytest.approx(apart[0], rel=1e-2)
    assert found.models_percentile == pytest.approx(100 * (apart[1:] < apart[0]).mean(), abs=0.5)
    assert found.compared == min(2000, case.data.size)


def test_the_observed_outcome_and_the_prediction_for_the_logged_action(inspected) -> None:
    case, found = inspected["pspo"], inspected["pspo"].found
    data = case.data
    assert found.logged is not None
    assert found.logged.return_to_go == pytest.approx(data.returns_to_go(found.values.gamma)[ROW])
    observed = [c.observed for c in found.models.columns]
    assert observed == pytest.approx([*data.next_obs[ROW], data.reward[ROW]])
    unit = case.unit(data.action[ROW])
    x = np.concatenate([case.features(), unit])
    pool = case.networks.pool
    next_speed = [member_net(pool.net, i)(x)[0] * float(pool.target_std[0]) for i in range(pool.size)]
    low, high = (case.obs[0] + edge + float(pool.target_mean[0]) for edge in (min(next_speed), max(next_speed)))
    assert low - 1e-4 <= found.models.columns[0].expected_after_logged <= high + 1e-4


def test_the_variance_of_a_mixture_is_between_plus_within() -> None:
    rng = np.random.default_rng(0)
    weight, mean, std = np.array([0.2, 0.5, 0.3]), rng.normal(size=(3, 2)), rng.uniform(0.5, 1.0, size=(3, 2))
    which = rng.choice(3, 200_000, p=weight)
    drawn = mean[which] + std[which] * rng.normal(size=(200_000, 2))
    expected, between, within = mix(weight, mean, std)
    assert expected == pytest.approx(drawn.mean(0), abs=0.01)
    assert np.hypot(between, within) == pytest.approx(drawn.std(0), rel=0.01)
