"""Fitted Q evaluation on a Markov chain with known values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

from pspo.data import Dataset, load_dataset
from pspo.data.normalise import fit_normaliser
from pspo.evaluation import fitted_critics
from pspo.evaluation.fitted_critics import FittedQ, FittedQConfig, fit_q, steps_share
from pspo.evaluation.ope.fitted_q import bellman_residual, estimate_by_critics, summarise
from tests.evaluation.ope.ope_cases import constant, gaussian, linear, made_dataset, made_problem

SMALL = FittedQConfig(critics=3, width=16, steps=1500, batch=64, lr=5e-3, tau=0.05, chunk=500)
GAMMA, ACTION, STEPS = 0.8, 0.5, 4
EXACT = sum(GAMMA**k * (k + ACTION) for k in range(STEPS))


def markov_chain(terminals: bool = True, seed: int = 0) -> Dataset:
    """Positions 0 to 3, one after the other; the reward is position plus action. Every third episode is truncated."""
    lengths = np.where(np.arange(150) % 3 == 2, 2, STEPS)
    position = np.concatenate([np.arange(n) for n in lengths]).astype(float)
    action = np.random.default_rng(seed).uniform(-1, 1, size=(len(position), 1))
    obs = np.stack([position, np.zeros(len(position))], axis=1)
    ended = (lengths == STEPS) & terminals
    after = obs + np.array([1.0, 0.0])
    return made_dataset(lengths, ended, obs=obs, next_obs=after, action=action, reward=position + action[:, 0])


def estimate(data: Dataset, gamma: float = GAMMA, network: Any = None, sampled: bool = False) -> Any:
    norm = fit_normaliser(data, GAMMA)
    problem = made_problem(data, network or constant(norm, ACTION), GAMMA)._replace(gamma=gamma)
    return problem, fit_q(problem, SMALL, sampled)


def value(data: Dataset, gamma: float = GAMMA) -> float:
    return estimate_by_critics(*estimate(data, gamma), 0.9).value


def test_critics_reach_the_exact_value_though_episodes_are_truncated() -> None:
    found = estimate_by_critics(*estimate(markov_chain()), 0.9)
    assert found.value == pytest.approx(EXACT, rel=0.03)
    assert found.low < EXACT < found.high
    assert found.actions == "mode"


@pytest.mark.parametrize(("terminals", "gamma"), [(True, 1.0), (False, GAMMA)])
def test_backups_without_discount_or_terminals_miss_the_value(terminals, gamma) -> None:
    """The test above can fail: both mistakes lead far away."""
    assert abs(value(markov_chain(terminals), gamma) - EXACT) > 0.15 * EXACT


def test_undiscounted_values_are_sums_of_rewards() -> None:
    assert value(markov_chain(), 1.0) == pytest.approx(sum(k + ACTION for k in range(STEPS)), rel=0.03)


def drift(horizon: int, seed: int = 0) -> Dataset:
    """x' = 0.9 x + 0.5 a + noise, r = 1 - x^2; every episode is cut after so many steps, and time is not observed."""
    rng = np.random.default_rng(seed)
    x, rows = rng.normal(1.0, 0.5, size=400), []
    action, noise = rng.uniform(-1, 1, size=(horizon, 400)), 0.3 * rng.normal(size=(horizon, 400))
    for t in range(horizon):
        after = 0.9 * x + 0.5 * action[t] + noise[t]
        rows.append((x, after, action[t], 1.0 - x**2))
        x = after
    obs, after, action, reward = (np.stack(part, axis=1).reshape(-1) for part in zip(*rows, strict=True))
    states = (np.stack([part, np.zeros(len(part))], axis=1) for part in (obs, after))
    fields = dict(zip(("obs", "next_obs"), states, strict=True))
    return made_dataset([horizon] * 400, [False] * 400, **fields, action=action[:, None], reward=reward)


def exact_drift(data: Dataset, horizon: int) -> float:
    """Mean and variance of x, step by step, under the constant action."""
    mean, variance, total = data.obs[data.episode_starts, 0].astype(float), 0.0, 0.0
    for _ in range(horizon):
        total = total + 1.0 - mean**2 - variance
        mean, variance = 0.9 * mean + 0.5 * ACTION, 0.81 * variance + 0.09
    return float(np.mean(total))


@pytest.mark.parametrize("horizon", [3, 8])
def test_critics_of_so_many_steps_reach_the_exact_return(horizon) -> None:
    """Without a discount and without a terminal: critics of all rewards have no finite value here.

    The second horizon is that of the episodes, the first is shorter.
    """
    data = drift(8)
    problem = made_problem(data, constant(fit_normaliser(data, 1.0), ACTION), 1.0, horizon)
    exact = exact_drift(data, horizon)
    found = estimate_by_critics(problem, fit_q(problem, SMALL), 0.9)
    assert abs(exact_drift(data, horizon - 1) - exact) > 0.2 * abs(exact)  # one step more or less would show
    assert found.value == pytest.approx(exact, rel=0.1)
    assert abs(found.numbers["bellman_residual"]) < 0.1 * abs(exact)


def test_the_last_critic_counts_no_step_and_the_share_is_discounted() -> None:
    np.testing.assert_allclose(steps_share(0.5, 3), [0.0, 1.0 / 1.75, 1.5 / 1.75, 1.0], rtol=1e-6)
    np.testing.assert_allclose(steps_share(1.0, 4), [0.0, 0.25, 0.5, 0.75, 1.0], rtol=1e-6)


def test_the_bellman_residual_of_so_many_steps_against_a_loop() -> None:
    data, horizon = markov_chain(), 3
    problem = made_problem(data, constant(fit_normaliser(data, GAMMA), ACTION), GAMMA, horizon)
    weights = np.random.default_rng(0).normal(size=(problem.norm.features + 2, 1))
    share = np.array([0.0, 1.0, 1.0 + GAMMA, 1.0 + GAMMA + GAMMA**2]) / (1.0 + GAMMA + GAMMA**2)
    raw = FittedQ(linear([weights], [[0.5]]), np.ones((1, 150)), steps_share(GAMMA, horizon))
    scale, total = float(problem.norm.reward_scale), 0.0

    def q(obs, action, left):
        x = np.concatenate([problem.norm.encode(obs), [action, left / horizon]]).astype(float)
        return scale * share[left] * (float((x @ weights)[0]) + 0.5)

    for i, age in enumerate(data.ages()):
        if age < horizon:
            left = horizon - age
            ahead = 0.0 if data.terminal[i] else q(data.next_obs[i], ACTION, left - 1)
            total += GAMMA**age * (data.reward[i] + GAMMA * ahead - q(data.obs[i], data.action[i, 0], left))
    assert bellman_residual(problem, raw) == pytest.approx(total / 150, rel=1e-4)


def test_a_stochastic_policy_has_the_value_of_its_mean_for_linear_rewards() -> None:
    data = markov_chain()
    noisy = gaussian(fit_normaliser(data, GAMMA), slope=(0.0, 0.0), bias=0.3, log_std=-1.6)
    problem, fitted = estimate(data, network=noisy, sampled=True)
    starts = problem.starts[:1]
    found = fitted.q(problem.norm.encode(np.repeat(starts, 41, 0)), 0.3 + 0.2 * np.linspace(-1, 1, 41)[:, None])
    exact = sum(GAMMA**k * (k + 0.3) for k in range(STEPS))
    assert float(np.mean(found)) * float(problem.norm.reward_scale) == pytest.approx(exact, rel=0.04)


def test_an_episode_without_weight_has_no_influence(monkeypatch) -> None:
    data = markov_chain()
    odd = np.repeat(np.arange(150) % 2 == 1, data.episode_lengths())
    fields = {name: getattr(data, name) for name in ("obs", "next_obs", "action", "terminal", "timeout")}
    spoiled = made_dataset(data.episode_lengths(), np.ones(150, bool), **fields, reward=data.reward + 5.0 * odd)
    problem = made_problem(spoiled, constant(fit_normaliser(data, GAMMA), ACTION), GAMMA)

    class Even:
        def exponential(self, size):
            return np.broadcast_to((np.arange(size[1]) % 2 == 0).astype(float), size)

    monkeypatch.setattr(np.random, "default_rng", lambda seed: Even())
    assert estimate_by_critics(problem, fit_q(problem, SMALL), 0.9).value == pytest.approx(EXACT, rel=0.05)


def test_the_bellman_residual_vanishes_once_critics_are_fitted() -> None:
    """Against a loop over the dataset with a linear critic; close to zero once fitted."""
    data = markov_chain()
    problem = made_problem(data, constant(fit_normaliser(data, GAMMA), ACTION), GAMMA)
    weights = np.random.default_rng(0).normal(size=(problem.norm.features + 1, 1))
    raw = FittedQ(linear([weights, 3.0 * weights], [[0.5], [0.1]]), np.ones((2, 150)))
    x = np.concatenate([problem.norm.encode(data.obs), data.action], axis=1).astype(float)
    after = np.concatenate([problem.norm.encode(data.next_obs), np.full((data.size, 1), ACTION)], axis=1).astype(float)
    scale, total, age = float(problem.norm.reward_scale), 0.0, 0
    for i in range(data.size):
        q, ahead = (scale * (2.0 * float((row @ weights)[0]) + 0.3) for row in (x[i], after[i]))
        total += GAMMA**age * (data.reward[i] + GAMMA * ahead * (not data.terminal[i]) - q)
        age = 0 if data.episode_end[i] else age + 1
    assert bellman_residual(problem, raw) == pytest.approx(total / 150, rel=1e-4)
    assert estimate_by_critics(problem, raw, 0.9).numbers["bellman_residual"] == pytest.approx(total / 150, rel=1e-4)
    assert abs(total / 150) > 0.5
    assert abs(bellman_residual(*estimate(data))) < 0.1


def test_the_interval_is_students_t_over_the_critics() -> None:
    rng = np.random.default_rng(0)
    values, weight = rng.normal(5.0, 1.0, size=(4, 6)), rng.exponential(size=(4, 6))
    each = [sum(v * w for v, w in zip(values[c], weight[c], strict=True)) / sum(weight[c]) for c in range(4)]
    low, high = scipy.stats.t.interval(0.9, 3, np.mean(each), np.std(each, ddof=1))
    found = summarise(values, weight, 0.9)
    assert found.value == pytest.approx(np.mean(each))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.numbers["standard_error"] == pytest.approx(np.std(each, ddof=1))


def test_one_critic_has_no_interval_and_nan_stays_nan() -> None:
    assert summarise(np.ones((1, 3)), np.ones((1, 3)), 0.9).high == np.inf
    assert np.isnan(summarise(np.array([[1.0], [np.nan]]), np.ones((2, 1)), 0.9).value)


@pytest.mark.slow
def test_default_critics_fit_the_last_rewards_of_episodes() -> None:
    """There Q is the reward, whatever the policy. A third of the learning rate leaves errors of more than four."""
    data, fresh = (load_dataset("liquidation", seed=seed) for seed in (6, 7))
    problem = made_problem(data, constant(fit_normaliser(data), 0.9), 1.0)
    fitted = fit_q(problem, FittedQConfig())
    ends = np.flatnonzero(fresh.terminal)
    features, action = problem.norm.encode(fresh.obs[ends]), problem.norm.unit_action(fresh.action[ends])
    q = np.asarray(fitted.q(features, action)).mean(0) * float(problem.norm.reward_scale)
    assert np.sqrt(np.mean(np.square(q - fresh.reward[ends]))) < 3.0


def test_progress_counts_steps_that_are_done(monkeypatch) -> None:
    """A call of a compiled program returns before its work is done."""
    events: list[str] = []

    class Pending:
        def block_until_ready(self) -> Pending:
            events.append("done")
            return self

    def learn(*_: object) -> tuple[None, Pending, None]:
        events.append("started")
        return None, Pending(), None

    config = FittedQConfig(critics=2, width=4, steps=4, chunk=2, batch=8)
    monkeypatch.setattr(fitted_critics, "_compile", lambda config: learn)
    problem = made_problem(markov_chain(), constant(fit_normaliser(markov_chain(), GAMMA), ACTION), GAMMA)
    fit_q(problem, config, progress=lambda stage, done, *_: events.append(f"{done} steps"))
    assert events == ["started", "done", "2 steps", "started", "done", "4 steps"]
