"""Statistics of a comparison, against plain loops and by their properties."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.core.errors import UserError
from pspo.report.statistics import (
    Interval,
    average,
    bootstrap_interval,
    interquartile_mean,
    mean_and_std,
    paired_t_test,
    performance_profile,
    probability_of_improvement,
)

# Few distinct values, so that ties are common.
score = st.integers(-20, 20).map(lambda n: n / 4)
task = st.lists(score, min_size=1, max_size=6).map(np.array)
tasks = st.lists(task, min_size=1, max_size=5)
pairs = st.lists(st.tuples(task, task), min_size=1, max_size=5)
quick = settings(max_examples=60, deadline=None)

UNEQUAL = [np.array([1.0, 4.0, 2.5]), np.array([7.0]), np.array([3.0, 3.0, 9.0, -2.0, 0.5])]
MANY = list(np.random.default_rng(0).normal(size=(7, 5)))


# Against loops


def test_mean_and_std_are_those_of_a_sample() -> None:
    values = [3.0, 5.0, 10.0]
    square = sum((v - 6.0) ** 2 for v in values)
    assert mean_and_std(values) == pytest.approx((6.0, math.sqrt(square / 2)))


def test_one_value_has_no_standard_deviation() -> None:
    assert mean_and_std([4.5]) == (4.5, None)


@given(tasks)
@quick
def test_average_counts_each_task_once(scores) -> None:
    expected = sum(sum(runs) / len(runs) for runs in scores) / len(scores)
    assert average(scores) == pytest.approx(expected)


@given(tasks)
@quick
def test_interquartile_mean_leaves_out_a_quarter_at_either_end(scores) -> None:
    everything = sorted(value for runs in scores for value in runs)
    cut = len(everything) // 4
    kept = everything[cut : len(everything) - cut]
    assert interquartile_mean(scores) == pytest.approx(sum(kept) / len(kept))


@given(pairs)
@quick
def test_improvement_counts_pairs_and_halves_of_ties(paired) -> None:
    x, y = zip(*paired, strict=True)
    expected = 0.0
    for mine, other in paired:
        won = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a in mine for b in other)
        expected += won / (len(mine) * len(other)) / len(paired)
    assert probability_of_improvement(x, y, repetitions=1).probability == pytest.approx(expected)


@given(tasks, st.lists(score, min_size=1, max_size=6))
@quick
def test_profile_is_the_mean_share_above_each_threshold(scores, thresholds) -> None:
    share = performance_profile(scores, thresholds, repetitions=1).share
    for threshold, found in zip(thresholds, share, strict=True):
        expected = sum(sum(v > threshold for v in runs) / len(runs) for runs in scores) / len(scores)
        assert found == pytest.approx(expected)


def test_paired_t_test_is_student_s_over_the_tasks_means() -> None:
    x = [np.array([5.0, 7.0]), np.array([4.0]), np.array([9.0, 8.0, 7.0]), np.array([2.0])]
    y = [np.array([5.5]), np.array([1.0, 2.0]), np.array([7.5, 7.5]), np.array([2.5])]
    differences = [6.0 - 5.5, 4.0 - 1.5, 8.0 - 7.5, 2.0 - 2.5]
    mean = sum(differences) / 4
    spread = math.sqrt(sum((d - mean) ** 2 for d in differences) / 3)
    t = mean / (spread / 2)
    tail = np.linspace(t, 2000, 2_000_001)  # the density of Student's t with 3 degrees of freedom, summed up
    density = 2 / (math.pi * math.sqrt(3)) / (1 + tail**2 / 3) ** 2
    assert paired_t_test(x, y) == pytest.approx((t, np.trapezoid(density, tail), 3), rel=1e-5)


@pytest.mark.parametrize("statistic", [average, interquartile_mean])
def test_resamples_taken_all_at_once_are_those_taken_one_by_one(statistic) -> None:
    scores = [np.array([1.0, 4.0, 2.5]), np.array([7.0, 6.0]), np.array([3.0, 3.0, 9.0, -2.0, 0.5])]
    one_by_one = bootstrap_interval(lambda drawn: statistic(drawn), scores, repetitions=200, seed=3)
    assert bootstrap_interval(statistic, scores, repetitions=200, seed=3) == pytest.approx(one_by_one)


def test_runs_are_resampled_within_their_task_and_independently() -> None:
    """Two tasks of three runs: all 27 x 27 outcomes are equally likely, and no run changes its task."""
    seen: list[Any] = []

    def remember(drawn) -> float:
        seen.append(np.concatenate(drawn))
        return 0.0

    repetitions = 20_000
    bootstrap_interval(remember, [np.arange(3), 3 + np.arange(3)], repetitions=repetitions)
    drawn = np.array(seen)
    assert drawn.shape == (repetitions, 6)
    assert set(drawn[:, :3].flat) == {0, 1, 2}
    assert set(drawn[:, 3:].flat) == {3, 4, 5}
    cells = ((drawn % 3) * 3 ** np.arange(6)).sum(axis=1).astype(int)
    counts = np.bincount(cells, minlength=729)
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_interval_of_two_runs_is_that_of_their_four_resamples() -> None:
    """(a, a), (a, b), (b, a), (b, b): means a, (a + b) / 2 twice, b. A quarter of them lies at either end."""
    scores = [np.array([0.0, 1.0])]
    assert bootstrap_interval(average, scores, confidence=0.6) == (0.0, 1.0)  # a fifth at either end
    assert bootstrap_interval(average, scores, confidence=0.4) == (0.5, 0.5)  # three tenths


def test_interval_of_a_mean_narrows_as_theory_says() -> None:
    """The bootstrap's standard error of a mean is the sample's divided by the root of n."""
    values = np.random.default_rng(0).normal(10, 2, 400)
    found = bootstrap_interval(average, [values], repetitions=4000)
    assert found is not None
    half = 1.959964 * values.std() / math.sqrt(400)
    assert found == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)


def test_intervals_depend_on_the_seed_alone() -> None:
    first = bootstrap_interval(average, MANY, seed=5)
    assert first == bootstrap_interval(average, MANY, seed=5)
    assert first != bootstrap_interval(average, MANY, seed=6)
    assert probability_of_improvement(MANY, MANY, seed=5) == probability_of_improvement(MANY, MANY, seed=5)


def test_both_sides_of_an_improvement_are_resampled_independently() -> None:
    """Resampled alike, a method would beat itself with probability one half in every repetition."""
    found = probability_of_improvement(MANY, MANY)
    assert found.probability == 0.5
    assert found.interval is not None
    assert found.interval.low < 0.45
    assert found.interval.high > 0.55


def test_a_single_run_on_any_task_leaves_no_interval() -> None:
    many = [np.arange(4.0)] * 3
    assert bootstrap_interval(average, UNEQUAL) is None
    assert performance_profile(UNEQUAL, [1.0]).band is None
    assert probability_of_improvement(UNEQUAL, many).interval is None
    assert probability_of_improvement(many, UNEQUAL).interval is None
    assert probability_of_improvement(many, many).interval is not None


# What must hold


@given(tasks)
@quick
def test_aggregates_lie_between_the_extremes(scores) -> None:
    everything = np.concatenate(scores)
    for found in (interquartile_mean(scores), average(scores)):
        assert everything.min() - 1e-12 <= found <= everything.max() + 1e-12


@given(tasks, st.randoms(use_true_random=False))
@quick
def test_neither_the_order_of_runs_nor_of_tasks_matters(scores, random) -> None:
    shuffled = [np.array(random.sample(list(runs), len(runs))) for runs in random.sample(scores, len(scores))]
    assert interquartile_mean(shuffled) == pytest.approx(interquartile_mean(scores))
    assert average(shuffled) == pytest.approx(average(scores))
    levels = np.linspace(-5, 5, 5)
    shares = [performance_profile(s, levels, repetitions=1).share for s in (shuffled, scores)]
    np.testing.assert_allclose(*shares)


@given(pairs)
@quick
def test_improvements_of_either_over_the_other_sum_to_one(paired) -> None:
    x, y = zip(*paired, strict=True)
    there, back = probability_of_improvement(x, y, repetitions=1), probability_of_improvement(y, x, repetitions=1)
    assert there.probability + back.probability == pytest.approx(1.0)
    assert 0 <= there.probability <= 1


@given(tasks)
@quick
def test_a_profile_falls_from_one_to_nothing(scores) -> None:
    profile = performance_profile(scores, np.linspace(-6, 5, 23), repetitions=50)
    for curve in (profile.share, *(() if profile.band is None else profile.band)):
        assert curve[0] == 1.0
        assert curve[-1] == 0.0
        assert (np.diff(curve) <= 1e-12).all()


@given(tasks)
@quick
def test_a_higher_confidence_gives_a_wider_interval_around_it(scores) -> None:
    wide, narrow = (bootstrap_interval(average, scores, confidence, repetitions=200) for confidence in (0.95, 0.5))
    assert (wide is None) == (narrow is None) == (min(map(len, scores)) == 1)
    if wide is not None and narrow is not None:
        assert wide.low <= narrow.low <= narrow.high <= wide.high


@given(st.lists(st.tuples(score, st.lists(score, min_size=1, max_size=3)), min_size=1, max_size=4))
@quick
def test_the_interval_of_symmetric_scores_holds_the_estimate(centres) -> None:
    scores = [np.array([centre + sign * d for d in offsets for sign in (-1, 1)]) for centre, offsets in centres]
    for statistic in (average, interquartile_mean):
        found = bootstrap_interval(statistic, scores, repetitions=500)
        assert isinstance(found, Interval)
        if statistic is average or len(scores) == 1:  # several tasks pooled need not be symmetric
            assert found.low - 1e-9 <= statistic(scores) <= found.high + 1e-9


@given(pairs)
@quick
def test_t_changes_its_sign_with_the_sides(paired) -> None:
    x, y = zip(*paired, strict=True)
    differences = {round(mine.mean() - other.mean(), 9) for mine, other in paired}
    if len(differences) == 1:
        with pytest.raises(UserError):
            paired_t_test(x, y)
    else:
        there, back = paired_t_test(x, y), paired_t_test(y, x)
        assert there.t == pytest.approx(-back.t)
        assert there.p + back.p == pytest.approx(1.0)


# Bad input

BAD = {
    "nan": ([np.ones(2), np.array([1.0, math.nan])], "task 2 of 2.*nan.*value 2 of 2"),
    "infinite": ([np.array([math.inf]), np.ones(3)], "task 1 of 2.*inf"),
    "missing": ([np.array([1.0, None])], "task 1 of 1.*nan"),
    "no task": ([], "no task"),
    "no run": ([np.ones(2), np.array([])], "task 2 of 2.*at least one"),
    "words": ([np.array(["good"])], "task 1 of 1.*not numbers"),
    "matrix": (np.ones((4, 3)), r"list\(matrix\.T\)"),
    "matrices": ([np.ones((4, 3))], "task 1 of 1.*shape"),
    "mapping": ({"hopper": np.ones(3)}, "list of arrays"),
}


@pytest.mark.parametrize(("scores", "sentence"), BAD.values(), ids=BAD)
@pytest.mark.parametrize(
    "function",
    [
        average,
        interquartile_mean,
        lambda scores: bootstrap_interval(average, scores),
        lambda scores: performance_profile(scores, [0.0]),
        lambda scores: probability_of_improvement([np.ones(2), np.ones(2)], scores),
        lambda scores: paired_t_test(scores, [np.ones(2), np.zeros(2)]),
    ],
    ids=["average", "iqm", "interval", "profile", "improvement", "t-test"],
)
def test_scores_that_cannot_be_aggregated_are_refused(function, scores, sentence) -> None:
    with pytest.raises(UserError, match=sentence):
        function(scores)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: mean_and_std([]), "at least one"),
        (lambda: mean_and_std([1.0, math.nan]), "nan.*value 2 of 2"),
        (lambda: performance_profile([np.ones(2)], [math.nan]), "thresholds hold nan"),
        (lambda: performance_profile([np.ones(2)], []), "thresholds"),
        (lambda: probability_of_improvement([np.ones(2)], [np.ones(2)] * 2), "1 tasks.*second 2"),
        (lambda: paired_t_test([np.ones(2)] * 2, [np.ones(2), np.array([math.nan])]), "second scores of task 2"),
        (lambda: paired_t_test([np.ones(2)], [np.zeros(2)]), "two tasks"),
        (lambda: paired_t_test([np.array([0.1]), np.array([0.3])], [np.zeros(1), np.array([0.2])]), "same on every"),
        (lambda: bootstrap_interval(average, [np.ones(2)], confidence=1.0), "between 0 and 1"),
        (lambda: bootstrap_interval(average, [np.ones(2)], repetitions=0), "one repetition"),
    ],
)
def test_other_bad_input_is_refused(call, sentence) -> None:
    with pytest.raises(UserError, match=sentence):
        call()


def test_statistics_do_not_import_jax() -> None:
    code = "import sys, pspo.report.statistics; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
