"""Posterior models: episodes against a plain simulation, and estimates from their returns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.algorithms.pspo.config import Config
from pspo.algorithms.pspo.posterior import f_scale
from pspo.dynamics.ensemble import Ensemble
from pspo.dynamics.prediction_range import Box
from pspo.dynamics.termination import KnownTermination, NeverTerminates
from pspo.evaluation.fitted_critics import FittedQ
from pspo.evaluation.models_and_critics import PosteriorArrays, fitted_backup, uniform_posterior
from pspo.evaluation.ope import posterior_models as module
from pspo.evaluation.ope.posterior_models import PosteriorModels, estimate_by_models, simulate, summarise
from pspo.evaluation.ope.return_estimate import effective_size, t_quantile, weighted_quantiles
from pspo.evaluation.problem import EvaluationProblem
from pspo.nets.actors import Deterministic
from tests.arrays import f32
from tests.dynamics.dynamics_cases import plain_norm, unlimited
from tests.evaluation.ope.ope_cases import linear

NORM = plain_norm()  # actions lie in [1, 3], one unit of reward is 2
OWN = plain_norm()._replace(  # the policy's: other scales, and actions in [0, 4]
    obs_mean=f32([0.3, 0.1]), obs_std=f32([0.7, 1.3]), action_low=f32([0.0]), action_high=f32([4.0])
)
RNG = np.random.default_rng(0)
WEIGHTS = 0.3 * RNG.normal(size=(3, 3, 6))  # member, (standardised state, action), (mean, log-std) of three targets
BIAS = 0.2 * RNG.normal(size=(3, 6))
TARGET_MEAN, TARGET_STD = np.array([0.1, -0.2, 0.5]), np.array([1.5, 0.8, 1.2])
POLICY, POLICY_BIAS = np.array([[0.6], [-0.4]]), np.array([0.2])
STARTS = RNG.normal(size=(4, 2)).astype(np.float32)
GAMMA, HORIZON = 0.9, 6
WIDE = Box(np.full(2, -np.inf), np.full(2, np.inf))


def pool() -> Ensemble:
    """Linear maps, one per member."""
    low, high = f32(np.full((3, 3), -3.0)), f32(np.full((3, 3), 0.5))
    return Ensemble(linear(WEIGHTS, BIAS), low, high, f32(TARGET_MEAN), f32(TARGET_STD))


def rule(obs, action, next_obs):
    """Uses all three, so that a mix-up shows."""
    return next_obs[..., 0] + 0.1 * obs[..., 1] > action[..., 0] - 0.6


def made_models(**changes: Any) -> PosteriorModels:
    def uniform(arrays: PosteriorArrays, obs: Any, action: Any, key: Any) -> Any:
        return jnp.full((arrays.pool.size, len(obs)), -jnp.log(arrays.pool.size))

    parts = {"pool": pool(), "terminated": KnownTermination(rule), "networks": ()}
    parts |= {name: changes.pop(name) for name in tuple(parts) if name in changes}
    fields = {"norm": NORM, "arrays": PosteriorArrays(**parts), "log_weight": uniform, "range": unlimited()}
    return PosteriorModels(**(fields | {"box": WIDE, "noise": 0.0} | changes))


def made_problem(gamma: float = GAMMA, horizon: int = HORIZON, starts: np.ndarray = STARTS) -> EvaluationProblem:
    data: Any = SimpleNamespace(obs=starts, episode_starts=np.arange(len(starts)))
    return EvaluationProblem(Deterministic(linear(POLICY, POLICY_BIAS)), OWN, NORM, data, None, gamma, horizon)  # pyright: ignore


def simulated(gamma: float = GAMMA, box: Box = WIDE, left_value: float | None = None) -> dict[str, Any]:
    """Every member from every start, one step after the other, in double precision."""
    returns, visited, left, running = np.zeros((3, 4)), [], 0, 0
    for m in range(3):
        for e in range(4):
            obs, discount, alive = STARTS[e].astype(float), 1.0, True
            for _ in range(HORIZON):
                unit = np.tanh((obs - OWN.obs_mean) / OWN.obs_std @ POLICY + POLICY_BIAS)
                action = 2.0 + 2.0 * unit  # within [0, 4], as the policy was trained
                visited.append(obs)
                x = np.concatenate(
                    [(obs - NORM.obs_mean) / NORM.obs_std, action - 2.0]
                )  # [1, 3] is the dataset's range
                target = (x @ WEIGHTS[m] + BIAS[m])[:3] * TARGET_STD + TARGET_MEAN
                after = obs + target[:2]
                returns[m, e] += 2.0 * discount * target[2]
                done = bool(rule(obs, np.clip(action, 1.0, 3.0), after))
                gone = not done and bool(((after < box.low) | (after > box.high)).any())
                left += gone
                discount *= gamma
                if gone and left_value is not None:
                    returns[m, e] += 2.0 * discount * left_value
                    done = True
                if done:
                    alive = False
                    break
                obs = after
            running += alive
    return {"returns": returns, "visited": np.array(visited), "left": left / len(visited), "running": running / 12}


def played(models: PosteriorModels, problem: EvaluationProblem | None = None, seed: int = 0):
    problem = problem or made_problem()
    return jax.jit(lambda starts, key: simulate(problem, models, starts, key))(f32(STARTS), jax.random.PRNGKey(seed))


def test_episodes_agree_with_a_plain_simulation() -> None:
    found, truth = played(made_models()), simulated()
    assert 0.0 < truth["running"] < 1.0  # some end, some continue
    np.testing.assert_allclose(found.returns, truth["returns"], rtol=1e-4, atol=1e-4)
    assert float(found.running) == pytest.approx(truth["running"])
    assert float(found.outside) == 0.0


def test_only_visited_states_are_weighted() -> None:
    found, truth = played(made_models()), simulated()
    gaps = np.abs(np.asarray(found.obs)[:, None] - truth["visited"]).max(-1).min(1)
    assert gaps.max() < 1e-4
    assert len(np.unique(np.asarray(found.obs).round(4), axis=0)) == len(np.unique(truth["visited"].round(4), axis=0))


@pytest.mark.parametrize("left_value", [None, -3.0])
def test_leaving_the_data_is_counted_and_ends_episodes_if_configured(left_value) -> None:
    box = Box(np.array([-1.0, -0.8]), np.array([1.0, 1.5]))
    found, truth = played(made_models(box=box, left_value=left_value)), simulated(box=box, left_value=left_value)
    assert 0.0 < truth["left"] < 1.0
    np.testing.assert_allclose(found.returns, truth["returns"], rtol=1e-4, atol=1e-4)
    assert float(found.outside) == pytest.approx(truth["left"])


def test_all_models_share_the_same_noise() -> None:
    """Identical models return the same bit for bit; other seeds do not."""
    same = made_models(pool=pool().take(jnp.array([1, 1, 1])), terminated=NeverTerminates(), noise=1.0)
    found, other = played(same), played(same, seed=1)
    np.testing.assert_array_equal(found.returns[0], found.returns[2])
    assert not np.allclose(found.returns, other.returns)
    assert float(found.running) == 1.0


def test_the_estimate_is_the_weighted_mean_of_the_models(monkeypatch) -> None:
    """From all starts, the models weighted by `log_weight` in the visited states."""
    monkeypatch.setattr(module, "MOST_STEPS", 2 * HORIZON * 4)

    def log_weight(arrays, obs, action, key):
        return jax.nn.log_softmax(arrays.networks[:, None] * jnp.tanh(obs[:, 0]), axis=0)

    given = made_models(networks=f32([0.0, 0.5, 1.5]), log_weight=log_weight)
    found, truth = estimate_by_models(made_problem(), given, 0.9), simulated()
    odds = np.exp(np.array([0.0, 0.5, 1.5])[:, None] * np.tanh(np.asarray(played(given).obs)[:, 0]))
    weight = (odds / odds.sum(0)).mean(1)
    each = truth["returns"].mean(1)
    assert found.value == pytest.approx(weight @ each, rel=1e-3)
    assert found.numbers["effective_models"] == pytest.approx(1.0 / np.square(weight).sum(), rel=1e-3)
    assert found.numbers["truncated_weight"] == pytest.approx(GAMMA**HORIZON * truth["running"], rel=1e-5)


def test_repeated_first_states_do_not_count_as_more(monkeypatch) -> None:
    monkeypatch.setattr(module, "MOST_STEPS", 50 * HORIZON * 4)
    noisy, calm = (
        estimate_by_models(made_problem(), made_models(noise=n, terminated=NeverTerminates()), 0.9).numbers
        for n in (1.0, 0.0)
    )
    # The variance between the four starts remains, however often each is repeated.
    assert 0.5 < noisy["sampling_error"] / calm["sampling_error"] < 2.0
    assert noisy["chance_std"] > calm["chance_std"]


def test_fitted_critics_weight_models_by_their_consistency() -> None:
    """P(T_i|E) is proportional to exp(-F_i / unit), F_i = (Q - r_i - gamma V(s'_i))^2, the unit F's std."""
    rng = np.random.default_rng(1)
    critic, bias = 0.5 * rng.normal(size=(2, 3)), np.array([0.3, -0.1])
    fitted = FittedQ(linear(critic[:, :, None], bias[:, None]), np.ones((2, 4)))
    problem = made_problem()._replace(
        dataset=SimpleNamespace(obs_dim=2, obs=STARTS, reward=np.array([-1e6, 1e6]))  # pyright: ignore
    )
    backup = fitted_backup(problem, Config(model_noise=0.0), fitted)
    arrays = PosteriorArrays(pool(), KnownTermination(rule), (fitted.critic, problem.network))
    obs, action = rng.normal(1.0, 1.0, size=(7, 2)), rng.uniform(-1, 1, size=(7, 1))
    made = jax.jit(lambda arrays: backup(arrays, f32(obs), f32(action), jax.random.PRNGKey(0)))(arrays)
    found = uniform_posterior(made.f, f_scale(made.f))

    def q(obs, unit):
        return np.concatenate([(obs - NORM.obs_mean) / NORM.obs_std, unit]) @ critic.mean(0) + bias.mean()

    f, ends = np.zeros((3, 7)), 0
    for m in range(3):
        for b in range(7):
            x = np.concatenate([(obs[b] - NORM.obs_mean) / NORM.obs_std, action[b]])
            target = (x @ WEIGHTS[m] + BIAS[m])[:3] * TARGET_STD + TARGET_MEAN
            after = obs[b] + target[:2]
            own = 2.0 * np.tanh((after - OWN.obs_mean) / OWN.obs_std @ POLICY + POLICY_BIAS)
            done = bool(rule(obs[b], 2.0 + action[b], after))
            ends += done
            f[m, b] = (q(obs[b], action[b]) - target[2] - GAMMA * (0.0 if done else q(after, own))) ** 2
    assert 0 < ends < 21
    odds = np.exp(-f / f.std(axis=0).mean())
    np.testing.assert_allclose(np.exp(found), odds / odds.sum(0), rtol=1e-3, atol=1e-4)


# From returns to an estimate

RETURNS = RNG.normal([[1.0], [2.0], [4.0]], 1.5, size=(3, 40)).reshape(3, 20, 2)
WEIGHT = np.array([0.5, 0.3, 0.2])


def test_the_interval_predicts_one_more_model() -> None:
    each = [RETURNS[m].mean() for m in range(3)]
    value = sum(w * x for w, x in zip(WEIGHT, each, strict=True))
    n = 1.0 / sum(w**2 for w in WEIGHT)
    variance = sum(w * (x - value) ** 2 for w, x in zip(WEIGHT, each, strict=True)) / (1.0 - sum(w**2 for w in WEIGHT))
    starts = [sum(WEIGHT[m] * RETURNS[m, s].mean() for m in range(3)) for s in range(20)]
    error = np.std(starts, ddof=1) / np.sqrt(20)
    half = scipy.stats.t(n - 1.0).ppf(0.95) * np.sqrt(variance * (1.0 + 1.0 / n) + error**2)
    found = summarise(RETURNS, WEIGHT, 0.9)
    assert found.value == pytest.approx(value)
    assert (found.low, found.high) == pytest.approx((value - half, value + half))
    assert found.numbers["sampling_error"] == pytest.approx(error)
    assert found.numbers["effective_models"] == pytest.approx(n)
    assert (found.numbers["lowest_model"], found.numbers["highest_model"]) == (min(each), max(each))


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(2, 8))
@settings(max_examples=60, deadline=None)
def test_variance_between_models_and_chance_add_up(seed, members, starts) -> None:
    rng = np.random.default_rng(seed)
    returns, weight = rng.normal(size=(members, starts, 2)) * 10, rng.dirichlet(np.ones(members))
    found = summarise(returns, weight, 0.9).numbers
    total = sum(w * np.square(r - found_mean(returns, weight)).mean() for w, r in zip(weight, returns, strict=True))
    assert found["model_std"] ** 2 + found["chance_std"] ** 2 == pytest.approx(total)


def found_mean(returns, weight) -> float:
    return float(sum(w * r.mean() for w, r in zip(weight, returns, strict=True)))


def test_identical_models_and_deterministic_models() -> None:
    alike = np.repeat(RETURNS[:1], 3, axis=0)
    assert summarise(alike, WEIGHT, 0.9).numbers["model_std"] == pytest.approx(0.0, abs=1e-12)
    sure = np.broadcast_to(np.array([1.0, 2.0, 4.0])[:, None, None], (3, 20, 2))
    assert summarise(sure, WEIGHT, 0.9).numbers["chance_std"] == 0.0


@pytest.mark.parametrize(("returns", "weight"), [(RETURNS, np.array([1.0, 0.0, 0.0])), (RETURNS[:, :1], WEIGHT)])
def test_a_single_model_or_first_state_has_no_interval(returns, weight) -> None:
    found = summarise(returns, weight, 0.9)
    assert np.isfinite(found.value)
    assert (found.low, found.high) == (-np.inf, np.inf)


def test_nan_stays_nan() -> None:
    returns = RETURNS.copy()
    returns[1, 3] = np.nan
    found = summarise(returns, WEIGHT, 0.9)
    assert np.isnan(found.value)
    assert np.isnan(found.numbers["return_50"])


def test_quantiles_of_weighted_returns() -> None:
    values, weight = np.array([3.0, 1.0, 2.0, 4.0]), np.array([0.1, 0.4, 0.4, 0.1])
    assert weighted_quantiles(values, weight, [0.05, 0.4, 0.41, 0.8, 0.95, 1.0]) == [1.0, 1.0, 2.0, 2.0, 4.0, 4.0]
    found = summarise(RETURNS, WEIGHT, 0.9).numbers
    many = np.concatenate([np.repeat(RETURNS[m].reshape(-1), round(10 * WEIGHT[m])) for m in range(3)])
    for level in (5, 50, 95):
        assert found[f"return_{level}"] == pytest.approx(np.quantile(many, level / 100, method="inverted_cdf"))


def test_effective_size_and_t_quantile() -> None:
    assert effective_size(np.ones(7)) == pytest.approx(7.0)
    assert effective_size(np.array([1.0, 0.0])) == pytest.approx(1.0)
    assert effective_size(np.array([3.0, 1.0])) == pytest.approx(16.0 / 10.0)
    assert np.isnan(effective_size(np.zeros(3)))
    assert t_quantile(0.9, 5.0) == pytest.approx(2.0150, abs=1e-4)  # as tables have it
    assert t_quantile(0.9, 0.0) == np.inf
