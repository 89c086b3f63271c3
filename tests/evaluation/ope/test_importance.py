"""Weighted importance sampling and doubly robust, against plain loops over episodes and steps."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.data import Dataset
from pspo.data.normalise import fit_normaliser
from pspo.evaluation.dataset_return import dataset_return
from pspo.evaluation.fitted_critics import FittedQ
from pspo.evaluation.ope import importance
from pspo.evaluation.ope.doubly_robust import estimate_by_weights_and_critics
from pspo.evaluation.ope.importance import (
    by_step,
    cumulative_weights,
    estimate_by_weights,
)
from pspo.evaluation.problem import return_to_evaluate
from tests.evaluation.ope.ope_cases import gaussian, linear, made_dataset, made_problem

LENGTHS, ENDED = np.array([3, 1, 4, 2, 4]), np.array([True, True, False, False, True])
GAMMA = 0.8


@pytest.fixture(autouse=True)
def few_repetitions(monkeypatch) -> None:
    monkeypatch.setattr(importance, "BOOTSTRAP_SAMPLES", 40)
    monkeypatch.setattr(importance, "AT_ONCE", 35)  # seven resamples of five episodes at a time


def log_ratio(seed: int = 1, scale: float = 0.7) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=scale, size=LENGTHS.sum())


def by_loops(
    ratio: np.ndarray, gain: np.ndarray, gamma: float, lengths=LENGTHS, ended=ENDED, episodes: np.ndarray | None = None
) -> float:
    """sum_t gamma^t sum_e rho_et gain_et / sum_e rho_et, over the episodes whose step t is known."""
    total, starts = 0.0, np.cumsum(lengths) - lengths
    for t in range(max(lengths)):
        above = below = 0.0
        for e in range(len(lengths)) if episodes is None else episodes:
            if t >= lengths[e] and not ended[e]:
                continue  # truncated: unknown
            weight = np.exp(ratio[starts[e] : starts[e] + min(t + 1, lengths[e])].sum())
            above += weight * (gain[starts[e] + t] if t < lengths[e] else 0.0)
            below += weight
        total += gamma**t * above / below if below else 0.0
    return total


def problem_of(gamma: float = GAMMA, **changes):
    return made_problem(made_dataset(LENGTHS, ENDED, **changes), gamma=gamma)


def mean_dataset_return(problem) -> float:
    return dataset_return(problem.dataset, problem.evaluated).value


def test_importance_sampling_agrees_with_loops_over_episodes() -> None:
    problem, ratio = problem_of(), log_ratio()
    found = estimate_by_weights(problem, ratio, 0.9)
    assert found.value == pytest.approx(by_loops(ratio, problem.dataset.reward, GAMMA), rel=1e-10)
    assert found.actions == "sampled"


def test_a_truncated_episode_is_not_a_terminal_one() -> None:
    ratio = log_ratio()
    data = made_dataset(LENGTHS, ENDED)
    truncated = estimate_by_weights(made_problem(data), ratio, 0.9).value
    over = estimate_by_weights(made_problem(made_dataset(LENGTHS, np.ones(5, bool))), ratio, 0.9).value
    assert over == pytest.approx(by_loops(ratio, data.reward, 1.0, ended=np.ones(5, bool)))
    assert truncated == pytest.approx(by_loops(ratio, data.reward, 1.0))
    assert abs(truncated - over) > 0.05


def test_the_last_episode_is_truncated_where_the_dataset_ends() -> None:
    """No flag says so: neither terminal nor time-out."""
    data = made_dataset(LENGTHS, [True] * 5)
    terminal = np.array(data.terminal)
    terminal[-1] = False
    problem = made_problem(made_dataset(LENGTHS, [True] * 5, terminal=terminal, timeout=np.zeros(len(terminal), bool)))
    assert problem.truncated.tolist() == [False] * 4 + [True]
    found = estimate_by_weights(problem, log_ratio(), 0.9).value
    assert found == pytest.approx(by_loops(log_ratio(), data.reward, 1.0, ended=[True] * 4 + [False]))


def test_with_ratios_of_one_the_estimate_is_the_mean_return() -> None:
    problem = made_problem(made_dataset(LENGTHS, [True] * 5), gamma=GAMMA)
    found = estimate_by_weights(problem, np.zeros(problem.dataset.size), 0.9)
    returns = problem.dataset.returns_to_go(GAMMA)[problem.dataset.episode_starts]
    assert found.value == pytest.approx(returns.mean(), rel=1e-12)
    assert mean_dataset_return(problem) == pytest.approx(returns.mean(), rel=1e-12)
    assert found.numbers["effective_episodes"] == pytest.approx(5.0)
    assert found.numbers["mean_weight"] == pytest.approx(1.0)


def test_the_mean_return_of_the_dataset_with_truncated_episodes() -> None:
    problem = problem_of()
    assert mean_dataset_return(problem) == pytest.approx(
        by_loops(np.zeros(14), problem.dataset.reward, GAMMA), rel=1e-12
    )


def test_the_last_row_of_a_cut_episode_counts_without_a_next_state() -> None:
    """Four rows per episode, three transitions: the return of the dataset is that of four steps."""
    reward = np.random.default_rng(0).normal(size=20)
    ends = np.arange(20) % 4 == 3
    data = Dataset.from_arrays(
        {
            "observations": np.random.default_rng(1).normal(size=(20, 2)),
            "actions": np.random.default_rng(2).uniform(-1, 1, size=(20, 1)),
            "rewards": reward,
            "terminals": np.zeros(20, bool),
            "timeouts": ends,
        }
    )
    assert data.size == 15
    evaluated = return_to_evaluate(data, 0.99)
    assert tuple(evaluated) == (1.0, 4, True)
    problem = made_problem(data, horizon=evaluated.horizon)
    assert mean_dataset_return(problem) == pytest.approx(reward.sum() / 5, rel=1e-6)
    assert data.summary()["return_mean"] == pytest.approx(reward.sum() / 5, rel=1e-6)
    # Importance sampling: the weight of the step before.
    ratio = np.random.default_rng(1).normal(size=15)
    found = estimate_by_weights(problem, ratio, 0.9)
    all_rows = np.insert(ratio, np.arange(3, 16, 3), 0.0)
    expected = by_loops(all_rows, reward, 1.0, lengths=np.full(5, 4), ended=np.zeros(5, bool))
    assert found.value == pytest.approx(expected, rel=1e-5)
    assert found.numbers["truncated_weight"] == 0.0


@pytest.mark.parametrize("horizon", [1, 3, 4])
def test_steps_after_the_horizon_do_not_count(horizon) -> None:
    data, ratio = made_dataset(LENGTHS, ENDED), log_ratio()
    problem = made_problem(data, gamma=GAMMA, horizon=horizon)
    before = np.where(data.ages() < horizon, data.reward, 0.0)
    found = estimate_by_weights(problem, ratio, 0.9)
    assert found.value == pytest.approx(by_loops(ratio, before, GAMMA), rel=1e-10)
    assert found.numbers["truncated_weight"] == 0.0
    assert mean_dataset_return(problem) == pytest.approx(by_loops(np.zeros(14), before, GAMMA), rel=1e-10)


def test_a_horizon_beyond_the_dataset_leaves_its_return_unknown() -> None:
    """Two of five episodes were cut, none is longer than four: three steps of seven are unknown for those two."""
    data = made_dataset(LENGTHS, ENDED)
    problem = made_problem(data, horizon=7)
    assert estimate_by_weights(problem, log_ratio(), 0.9).numbers["truncated_weight"] == pytest.approx(0.4 * 3 / 7)
    assert np.isnan(mean_dataset_return(problem))
    complete = made_dataset(LENGTHS, [True] * 5)  # nothing follows a terminal state
    assert mean_dataset_return(made_problem(complete, horizon=7)) == pytest.approx(complete.episode_returns().mean())


def test_the_interval_is_a_bootstrap_over_episodes() -> None:
    problem, ratio = problem_of(), log_ratio()
    found = estimate_by_weights(problem, ratio, 0.8, seed=3)
    rng = np.random.default_rng(3)
    drawn = [by_loops(ratio, problem.dataset.reward, GAMMA, episodes=rng.integers(5, size=5)) for _ in range(40)]
    np.testing.assert_allclose([found.low, found.high], np.percentile(drawn, [10, 90]), rtol=1e-9)


def test_on_many_episodes_the_interval_is_the_normal_one(monkeypatch) -> None:
    monkeypatch.setattr(importance, "BOOTSTRAP_SAMPLES", 1000)
    monkeypatch.setattr(importance, "AT_ONCE", 100_000)
    problem = made_problem(made_dataset(np.full(400, 2), np.ones(400, bool)))
    found = estimate_by_weights(problem, np.zeros(800), 0.9)
    returns = problem.dataset.episode_returns()
    half = 1.645 * returns.std() / 20.0
    np.testing.assert_allclose(
        [found.low, found.high], [returns.mean() - half, returns.mean() + half], atol=0.15 * half
    )


def test_large_ratios_do_not_overflow() -> None:
    problem, ratio = made_problem(made_dataset([2] * 5, [True] * 5)), log_ratio()[:10]
    plain, moved = estimate_by_weights(problem, ratio, 0.9), estimate_by_weights(problem, ratio + 500.0, 0.9)
    assert (moved.value, moved.low, moved.high) == pytest.approx((plain.value, plain.low, plain.high), rel=1e-9)


def test_steps_that_no_resampled_episode_shows_are_left_out() -> None:
    """One long episode among short truncated ones: a third of the resamples do not have it."""
    problem = made_problem(made_dataset([5, 1, 1, 1], [False] * 4), gamma=0.5)
    found = estimate_by_weights(problem, np.zeros(8), 0.9, seed=2)
    rng = np.random.default_rng(2)
    lengths, ended = np.array([5, 1, 1, 1]), [False] * 4
    draws = [rng.integers(4, size=4) for _ in range(40)]
    assert any(0 not in draw for draw in draws)
    drawn = [by_loops(np.zeros(8), problem.dataset.reward, 0.5, lengths, ended, draw) for draw in draws]
    np.testing.assert_allclose([found.low, found.high], np.percentile(drawn, [5, 95]), rtol=1e-9)
    assert found.numbers["truncated_weight"] == pytest.approx(0.5**5)


def test_one_episode_with_all_the_weight_gives_no_interval() -> None:
    ratio = np.zeros(LENGTHS.sum())
    ratio[: LENGTHS[0]] = 1000.0
    found = estimate_by_weights(problem_of(), ratio, 0.9)
    assert np.isfinite(found.value)
    assert (found.low, found.high) == (-np.inf, np.inf)
    assert found.numbers["effective_episodes"] == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_nan_stays_nan(bad) -> None:
    ratio = np.full(LENGTHS.sum(), bad)
    found = estimate_by_weights(problem_of(), ratio, 0.9)
    assert np.isnan(found.value)
    assert (found.low, found.high) == (-np.inf, np.inf)
    assert np.isnan(found.numbers["effective_episodes"])


def test_the_effective_size_is_that_of_the_worst_relevant_step() -> None:
    ratio = log_ratio(scale=1.5)
    numbers, starts = [], np.cumsum(LENGTHS) - LENGTHS
    for t in range(4):
        weights = [
            np.exp(ratio[s : s + min(t + 1, n)].sum())
            for s, n, end in zip(starts, LENGTHS, ENDED, strict=True)
            if t < n or end
        ]
        numbers.append(sum(weights) ** 2 / sum(w**2 for w in weights))
    found = estimate_by_weights(problem_of(), ratio, 0.9).numbers
    assert found["effective_episodes"] == pytest.approx(min(numbers))
    assert found["mean_weight"] == pytest.approx(np.mean(weights))
    early = estimate_by_weights(problem_of(gamma=0.2), ratio, 0.9).numbers  # 0.2^2 is not relevant
    assert early["effective_episodes"] == pytest.approx(min(numbers[:2]))


@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=6),
    st.integers(0, 1000),
    st.floats(0.0, 3.0),
)
@settings(max_examples=60, deadline=None)
def test_weights_agree_with_a_loop_for_any_lengths(lengths, seed, scale) -> None:
    lengths, rng = np.array(lengths), np.random.default_rng(seed)
    ratio, truncated = rng.normal(scale=scale, size=lengths.sum()), rng.random(len(lengths)) < 0.4
    weights = cumulative_weights(ratio, lengths, truncated)
    starts = np.cumsum(lengths) - lengths
    for t in range(lengths.max()):
        true = np.array(
            [
                np.exp(ratio[s : s + min(t + 1, n)].sum()) if t < n or not c else 0.0
                for s, n, c in zip(starts, lengths, truncated, strict=True)
            ]
        )
        np.testing.assert_allclose(weights.rho[:, t] / weights.rho[:, t].sum(), true / true.sum(), rtol=1e-9)
        assert weights.log_mean[t] == pytest.approx(np.log(true[true > 0].mean()), abs=1e-9)


def test_values_by_episode_and_step() -> None:
    table = by_step(np.arange(1.0, 7.0), np.array([2, 1, 3]))
    assert table.tolist() == [[1, 2, 0], [3, 0, 0], [4, 5, 6]]


# Doubly robust: critics linear in the standardised state and the action, and a nearly deterministic policy


def critics(norm, weights, bias, members: int = 2) -> FittedQ:
    """The same critic several times."""
    assert norm.features == 2, "no grids here"
    stacked = np.repeat(np.array(weights, float)[None, :, None], members, 0)
    return FittedQ(linear(stacked, [[bias]] * members), np.ones((members, 0)))


def still(data):
    return gaussian(fit_normaliser(data, GAMMA), log_std=-14.0)


def test_doubly_robust_agrees_with_thomas_and_brunskill() -> None:
    """Their Eq. 10: sum_t gamma^t (w_t r_t - (w_t Q_t - w_{t-1} V_t)), weights 1/n before the first step."""
    data = made_dataset(LENGTHS, [True] * 5)
    problem, ratio = made_problem(data, still(data), GAMMA), log_ratio()
    weights, bias = np.array([0.5, -0.3, 0.8]), 0.2
    scale = float(problem.norm.reward_scale)
    z = (data.obs - problem.norm.obs_mean) / problem.norm.obs_std
    mean = np.clip(0.1 + z @ [0.1, -0.2], -1, 1)
    q = scale * (z @ weights[:2] + weights[2] * data.action[:, 0] + bias)
    v = scale * (z @ weights[:2] + weights[2] * mean + bias)
    # States follow each other here, as they must for this form: V(s_{t+1}) is the value at the next row.
    after = np.array(data.next_obs)
    starts = np.cumsum(LENGTHS) - LENGTHS
    for s, n in zip(starts, LENGTHS, strict=True):
        after[s : s + n - 1] = data.obs[s + 1 : s + n]
    data = made_dataset(LENGTHS, [True] * 5, next_obs=after)
    problem = made_problem(data, still(data), GAMMA)._replace(norm=problem.norm, policy_norm=problem.policy_norm)
    found = estimate_by_weights_and_critics(problem, ratio, critics(problem.norm, weights, bias), 0.9)
    total, before = 0.0, np.full(5, 0.2)
    for t in range(4):
        now = np.array([np.exp(ratio[s : s + min(t + 1, n)].sum()) for s, n in zip(starts, LENGTHS, strict=True)])
        now = now / now.sum()
        for e in range(5):
            if t < LENGTHS[e]:
                i = starts[e] + t
                total += GAMMA**t * (now[e] * data.reward[i] - (now[e] * q[i] - before[e] * v[i]))
        before = now
    assert found.value == pytest.approx(total, rel=1e-4)
    assert found.numbers["critics_alone"] == pytest.approx(v[starts].mean(), rel=1e-4)


def test_with_critics_of_zero_doubly_robust_is_importance_sampling() -> None:
    problem, ratio = problem_of(), log_ratio()
    plain = estimate_by_weights(problem, ratio, 0.9)
    found = estimate_by_weights_and_critics(problem, ratio, critics(problem.norm, [0.0, 0.0, 0.0], 0.0), 0.9)
    assert (found.value, found.low, found.high) == pytest.approx((plain.value, plain.low, plain.high), rel=1e-9)


def steps_left(lengths, ended):
    """Every step pays one: the problem, and the exact critic, which is the rest of the episode's `due` steps."""
    due = np.where(ended, lengths, 4)  # a truncated episode would have paid for four
    left = np.concatenate([d - np.arange(n, dtype=float) for d, n in zip(due, lengths, strict=True)])
    obs = np.stack([left, np.random.default_rng(0).normal(size=len(left))], axis=1)
    data = made_dataset(lengths, ended, obs=obs, next_obs=obs - np.array([1.0, 0.0]), reward=np.ones(len(left)))
    norm = fit_normaliser(data, 1.0)
    weights = np.zeros((1, norm.features + 1, 1))
    weights[0, 0] = norm.obs_std[0] / norm.reward_scale
    exact = FittedQ(linear(weights, [[norm.obs_mean[0] / norm.reward_scale]]), None)
    ratio = np.random.default_rng(2).normal(scale=2.0, size=len(left))
    return made_problem(data, gaussian(norm)), exact, ratio


@pytest.mark.parametrize(
    ("lengths", "ended"), [([4, 4, 4, 4, 4], [True] * 5), ([4, 2, 4, 1, 3], [True, False, True, False, False])]
)
def test_with_the_exact_critic_doubly_robust_has_no_variance(lengths, ended) -> None:
    problem, exact, ratio = steps_left(np.array(lengths), np.array(ended))
    found = estimate_by_weights_and_critics(problem, ratio, exact, 0.9)
    np.testing.assert_allclose([found.value, found.low, found.high], 4.0, atol=1e-4)
    wrong = estimate_by_weights_and_critics(
        problem._replace(gamma=0.9), ratio, exact, 0.9
    )  # this critic is no longer exact
    assert abs(wrong.value - 4.0) > 0.1


@pytest.mark.parametrize("horizon", [1, 3, 6])
def test_with_the_exact_critic_of_so_many_steps_doubly_robust_has_no_variance(horizon) -> None:
    """Every step pays one and nothing ends: Q_h is h. The dataset shows four steps, the critic the rest."""
    lengths = np.array([4, 2, 4, 1, 3])
    data = made_dataset(lengths, np.zeros(5, bool), reward=np.ones(14))
    problem = made_problem(data, horizon=horizon)
    share = jnp.arange(horizon + 1) / horizon
    inputs = problem.norm.features + 2  # action, steps left
    exact = FittedQ(linear(np.zeros((1, inputs, 1)), [[horizon / problem.norm.reward_scale]]), None, share)  # pyright: ignore
    found = estimate_by_weights_and_critics(problem, log_ratio(scale=2.0), exact, 0.9)
    np.testing.assert_allclose([found.value, found.low, found.high], horizon, atol=1e-4)


def test_the_remaining_variance_is_that_of_the_first_states() -> None:
    lengths = np.array([1, 2, 3, 4, 5])
    problem, exact, ratio = steps_left(lengths, np.ones(5, bool))
    found = estimate_by_weights_and_critics(problem, ratio, exact, 0.9, seed=4)
    rng = np.random.default_rng(4)
    drawn = [lengths[rng.integers(5, size=5)].mean() for _ in range(40)]
    np.testing.assert_allclose([found.value, found.low, found.high], [3.0, *np.percentile(drawn, [5, 95])], atol=1e-4)
