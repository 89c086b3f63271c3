"""Weighted importance sampling and doubly robust, against plain loops over episodes and steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.data.normalise import fit_normaliser
from pspo.evaluation.ope import importance
from pspo.evaluation.ope.fitted_q import FittedQ
from pspo.evaluation.ope.importance import (
    by_doubly_robust,
    by_importance,
    by_step,
    cumulative_weights,
    mean_logged_return,
)
from tests.evaluation.ope.ope_cases import gaussian, linear, made_log, made_subject

LENGTHS, ENDED = np.array([3, 1, 4, 2, 4]), np.array([True, True, False, False, True])
GAMMA = 0.8


@pytest.fixture(autouse=True)
def few_repetitions(monkeypatch) -> None:
    monkeypatch.setattr(importance, "REPETITIONS", 40)
    monkeypatch.setattr(importance, "AT_ONCE", 35)  # seven resamples of five episodes at a time


def log_ratio(seed: int = 1, spread: float = 0.7) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=spread, size=LENGTHS.sum())


def by_loops(
    ratio: np.ndarray, gain: np.ndarray, gamma: float, lengths=LENGTHS, ended=ENDED, episodes: np.ndarray | None = None
) -> float:
    """sum_t gamma^t sum_e rho_et gain_et / sum_e rho_et, over the episodes whose step t is known."""
    total, starts = 0.0, np.cumsum(lengths) - lengths
    for t in range(max(lengths)):
        above = below = 0.0
        for e in range(len(lengths)) if episodes is None else episodes:
            if t >= lengths[e] and not ended[e]:
                continue  # cut: nobody knows
            weight = np.exp(ratio[starts[e] : starts[e] + min(t + 1, lengths[e])].sum())
            above += weight * (gain[starts[e] + t] if t < lengths[e] else 0.0)
            below += weight
        total += gamma**t * above / below if below else 0.0
    return total


def subject_of(gamma: float = GAMMA, **changes):
    return made_subject(made_log(LENGTHS, ENDED, **changes), gamma=gamma)


def test_importance_sampling_agrees_with_loops_over_episodes_of_unequal_length() -> None:
    subject, ratio = subject_of(), log_ratio()
    found = by_importance(subject, ratio, 0.9)
    assert found.value == pytest.approx(by_loops(ratio, subject.data.reward, GAMMA), rel=1e-10)
    assert found.judges == "sampled"


def test_a_cut_episode_is_not_one_that_ended() -> None:
    ratio = log_ratio()
    data = made_log(LENGTHS, ENDED)
    cut = by_importance(made_subject(data), ratio, 0.9).value
    over = by_importance(made_subject(made_log(LENGTHS, np.ones(5, bool))), ratio, 0.9).value
    assert over == pytest.approx(by_loops(ratio, data.reward, 1.0, ended=np.ones(5, bool)))
    assert cut == pytest.approx(by_loops(ratio, data.reward, 1.0))
    assert abs(cut - over) > 0.05


def test_the_last_episode_of_a_log_is_cut_where_the_log_stops() -> None:
    """No flag says so: neither terminal nor time-out."""
    data = made_log(LENGTHS, [True] * 5)
    terminal = np.array(data.terminal)
    terminal[-1] = False
    subject = made_subject(made_log(LENGTHS, [True] * 5, terminal=terminal, timeout=np.zeros(len(terminal), bool)))
    assert subject.cut.tolist() == [False] * 4 + [True]
    found = by_importance(subject, log_ratio(), 0.9).value
    assert found == pytest.approx(by_loops(log_ratio(), data.reward, 1.0, ended=[True] * 4 + [False]))


def test_with_ratios_of_one_the_estimate_is_exactly_the_mean_return() -> None:
    subject = made_subject(made_log(LENGTHS, [True] * 5), gamma=GAMMA)
    found = by_importance(subject, np.zeros(subject.data.size), 0.9)
    returns = subject.data.returns_to_go(GAMMA)[subject.data.episode_starts]
    assert found.value == pytest.approx(returns.mean(), rel=1e-12)
    assert mean_logged_return(subject) == pytest.approx(returns.mean(), rel=1e-12)
    assert found.numbers["effective_episodes"] == pytest.approx(5.0)
    assert found.numbers["mean_weight"] == pytest.approx(1.0)


def test_the_logged_mean_leaves_out_what_was_cut_and_not_the_episode() -> None:
    subject = subject_of()
    assert mean_logged_return(subject) == pytest.approx(by_loops(np.zeros(14), subject.data.reward, GAMMA), rel=1e-12)


def test_the_interval_is_that_of_resampled_episodes() -> None:
    subject, ratio = subject_of(), log_ratio()
    found = by_importance(subject, ratio, 0.8, seed=3)
    rng = np.random.default_rng(3)
    drawn = [by_loops(ratio, subject.data.reward, GAMMA, episodes=rng.integers(5, size=5)) for _ in range(40)]
    np.testing.assert_allclose([found.low, found.high], np.percentile(drawn, [10, 90]), rtol=1e-9)


def test_on_many_episodes_the_interval_is_the_usual_one(monkeypatch) -> None:
    monkeypatch.setattr(importance, "REPETITIONS", 1000)
    monkeypatch.setattr(importance, "AT_ONCE", 100_000)
    subject = made_subject(made_log(np.full(400, 2), np.ones(400, bool)))
    found = by_importance(subject, np.zeros(800), 0.9)
    returns = subject.data.episode_returns()
    half = 1.645 * returns.std() / 20.0
    np.testing.assert_allclose(
        [found.low, found.high], [returns.mean() - half, returns.mean() + half], atol=0.15 * half
    )


def test_ratios_that_overflow_are_only_compared_with_each_other() -> None:
    subject, ratio = made_subject(made_log([2] * 5, [True] * 5)), log_ratio()[:10]
    plain, moved = by_importance(subject, ratio, 0.9), by_importance(subject, ratio + 500.0, 0.9)
    assert (moved.value, moved.low, moved.high) == pytest.approx((plain.value, plain.low, plain.high), rel=1e-9)


def test_a_step_that_no_resampled_episode_tells_of_is_left_out_and_leaves_an_interval() -> None:
    """One long episode among short ones that were cut: a third of the resamples do not have it."""
    subject = made_subject(made_log([5, 1, 1, 1], [False] * 4), gamma=0.5)
    found = by_importance(subject, np.zeros(8), 0.9, seed=2)
    rng = np.random.default_rng(2)
    lengths, ended = np.array([5, 1, 1, 1]), [False] * 4
    draws = [rng.integers(4, size=4) for _ in range(40)]
    assert any(0 not in draw for draw in draws)
    drawn = [by_loops(np.zeros(8), subject.data.reward, 0.5, lengths, ended, draw) for draw in draws]
    np.testing.assert_allclose([found.low, found.high], np.percentile(drawn, [5, 95]), rtol=1e-9)
    assert found.numbers["weight_of_the_rest"] == pytest.approx(0.5**5)


def test_one_episode_with_all_the_weight_leaves_no_interval() -> None:
    ratio = np.zeros(LENGTHS.sum())
    ratio[: LENGTHS[0]] = 1000.0
    found = by_importance(subject_of(), ratio, 0.9)
    assert np.isfinite(found.value)
    assert (found.low, found.high) == (-np.inf, np.inf)
    assert found.numbers["effective_episodes"] == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_what_is_not_a_number_is_not_hidden(bad) -> None:
    ratio = np.full(LENGTHS.sum(), bad)
    found = by_importance(subject_of(), ratio, 0.9)
    assert np.isnan(found.value)
    assert (found.low, found.high) == (-np.inf, np.inf)
    assert np.isnan(found.numbers["effective_episodes"])


def test_the_effective_number_is_the_worst_of_the_steps_that_count() -> None:
    ratio = log_ratio(spread=1.5)
    numbers, starts = [], np.cumsum(LENGTHS) - LENGTHS
    for t in range(4):
        weights = [
            np.exp(ratio[s : s + min(t + 1, n)].sum())
            for s, n, end in zip(starts, LENGTHS, ENDED, strict=True)
            if t < n or end
        ]
        numbers.append(sum(weights) ** 2 / sum(w**2 for w in weights))
    found = by_importance(subject_of(), ratio, 0.9).numbers
    assert found["effective_episodes"] == pytest.approx(min(numbers))
    assert found["mean_weight"] == pytest.approx(np.mean(weights))
    early = by_importance(subject_of(gamma=0.2), ratio, 0.9).numbers  # 0.2^2 is below what counts
    assert early["effective_episodes"] == pytest.approx(min(numbers[:2]))


@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=6),
    st.integers(0, 1000),
    st.floats(0.0, 3.0),
)
@settings(max_examples=60, deadline=None)
def test_weights_are_those_of_a_loop_for_any_lengths(lengths, seed, spread) -> None:
    lengths, rng = np.array(lengths), np.random.default_rng(seed)
    ratio, cut = rng.normal(scale=spread, size=lengths.sum()), rng.random(len(lengths)) < 0.4
    weights = cumulative_weights(ratio, lengths, cut)
    starts = np.cumsum(lengths) - lengths
    for t in range(lengths.max()):
        true = np.array(
            [
                np.exp(ratio[s : s + min(t + 1, n)].sum()) if t < n or not c else 0.0
                for s, n, c in zip(starts, lengths, cut, strict=True)
            ]
        )
        np.testing.assert_allclose(weights.rho[:, t] / weights.rho[:, t].sum(), true / true.sum(), rtol=1e-9)
        assert weights.log_mean[t] == pytest.approx(np.log(true[true > 0].mean()), abs=1e-9)


def test_rows_are_laid_out_by_episode_and_step() -> None:
    table = by_step(np.arange(1.0, 7.0), np.array([2, 1, 3]))
    assert table.tolist() == [[1, 2, 0], [3, 0, 0], [4, 5, 6]]


# Doubly robust: critics that are linear in the standardised state and the action, and a policy with hardly any noise


def critics(norm, weights, bias, members: int = 2) -> FittedQ:
    """The same critic several times."""
    assert norm.features == 2, "no grids here"
    return FittedQ(linear(np.repeat(np.array(weights, float)[None, :, None], members, 0), [[bias]] * members), None)


def still(data):
    return gaussian(fit_normaliser(data, GAMMA), log_std=-14.0)


def test_doubly_robust_agrees_with_thomas_and_brunskills_form() -> None:
    """Their Eq. 10: sum_t gamma^t (w_t r_t - (w_t Q_t - w_{t-1} V_t)), weights 1/n before the first step."""
    data = made_log(LENGTHS, [True] * 5)
    subject, ratio = made_subject(data, still(data), GAMMA), log_ratio()
    weights, bias = np.array([0.5, -0.3, 0.8]), 0.2
    scale = float(subject.norm.reward_scale)
    z = (data.obs - subject.norm.obs_mean) / subject.norm.obs_std
    mean = np.clip(0.1 + z @ [0.1, -0.2], -1, 1)
    q = scale * (z @ weights[:2] + weights[2] * data.action[:, 0] + bias)
    v = scale * (z @ weights[:2] + weights[2] * mean + bias)
    # States follow each other here, as they must for this form: V(s_{t+1}) is the value at the next row.
    after = np.array(data.next_obs)
    starts = np.cumsum(LENGTHS) - LENGTHS
    for s, n in zip(starts, LENGTHS, strict=True):
        after[s : s + n - 1] = data.obs[s + 1 : s + n]
    data = made_log(LENGTHS, [True] * 5, next_obs=after)
    subject = made_subject(data, still(data), GAMMA)._replace(norm=subject.norm, policy_norm=subject.policy_norm)
    found = by_doubly_robust(subject, ratio, critics(subject.norm, weights, bias), 0.9)
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


def test_with_a_critic_of_nothing_doubly_robust_is_importance_sampling() -> None:
    subject, ratio = subject_of(), log_ratio()
    plain = by_importance(subject, ratio, 0.9)
    found = by_doubly_robust(subject, ratio, critics(subject.norm, [0.0, 0.0, 0.0], 0.0), 0.9)
    assert (found.value, found.low, found.high) == pytest.approx((plain.value, plain.low, plain.high), rel=1e-9)


def steps_left(lengths, ended):
    """Every step pays one: the subject, and the exact critic, which is what is left of the episode's `due` steps."""
    due = np.where(ended, lengths, 4)  # a cut episode would have paid for four
    left = np.concatenate([d - np.arange(n, dtype=float) for d, n in zip(due, lengths, strict=True)])
    obs = np.stack([left, np.random.default_rng(0).normal(size=len(left))], axis=1)
    data = made_log(lengths, ended, obs=obs, next_obs=obs - np.array([1.0, 0.0]), reward=np.ones(len(left)))
    norm = fit_normaliser(data, 1.0)
    weights = np.zeros((1, norm.features + 1, 1))
    weights[0, 0] = norm.obs_std[0] / norm.reward_scale
    exact = FittedQ(linear(weights, [[norm.obs_mean[0] / norm.reward_scale]]), None)
    ratio = np.random.default_rng(2).normal(scale=2.0, size=len(left))
    return made_subject(data, gaussian(norm)), exact, ratio


@pytest.mark.parametrize(
    ("lengths", "ended"), [([4, 4, 4, 4, 4], [True] * 5), ([4, 2, 4, 1, 3], [True, False, True, False, False])]
)
def test_with_the_exact_critic_doubly_robust_has_no_variance_whatever_the_ratios(lengths, ended) -> None:
    subject, exact, ratio = steps_left(np.array(lengths), np.array(ended))
    found = by_doubly_robust(subject, ratio, exact, 0.9)
    np.testing.assert_allclose([found.value, found.low, found.high], 4.0, atol=1e-4)
    wrong = by_doubly_robust(subject._replace(gamma=0.9), ratio, exact, 0.9)  # this critic is no longer exact
    assert abs(wrong.value - 4.0) > 0.1


def test_what_is_left_of_the_spread_is_that_of_the_first_states() -> None:
    lengths = np.array([1, 2, 3, 4, 5])
    subject, exact, ratio = steps_left(lengths, np.ones(5, bool))
    found = by_doubly_robust(subject, ratio, exact, 0.9, seed=4)
    rng = np.random.default_rng(4)
    drawn = [lengths[rng.integers(5, size=5)].mean() for _ in range(40)]
    np.testing.assert_allclose([found.value, found.low, found.high], [3.0, *np.percentile(drawn, [5, 95])], atol=1e-4)
