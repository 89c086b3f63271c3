"""The dataset's own return: one number for `pspo ope`, the verdict on a run and its result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pspo.evaluation import dataset_return as module
from pspo.evaluation.dataset_return import dataset_return, whole_episodes
from pspo.evaluation.problem import EvaluatedReturn, return_to_evaluate
from tests.core.core_cases import small_dataset
from tests.evaluation.ope.ope_cases import made_dataset

PLAIN = EvaluatedReturn(1.0, 1000, False)


def ones(lengths, ended):
    return made_dataset(lengths, ended, reward=np.ones(sum(lengths)))


def test_short_cut_episodes_are_not_averaged_as_they_are() -> None:
    """Every step pays one, and nothing ends: ten steps pay ten, before the discount, however early logs were cut."""
    data = ones([5, 10, 3, 8, 10], [False] * 5)
    evaluated = return_to_evaluate(data, 0.99)
    assert tuple(evaluated) == (0.99, 10, True)
    found = dataset_return(data, evaluated)
    assert found.value == pytest.approx((0.99 ** np.arange(10)).sum())
    assert found.low < found.value < found.high
    assert dataset_return(data, whole_episodes(data)).value == pytest.approx(10.0)


def test_a_return_over_more_steps_than_the_dataset_shows_is_unknown() -> None:
    data = ones([5, 10, 3, 8, 10], [False] * 5)
    assert np.isnan(dataset_return(data, EvaluatedReturn(1.0, 30, True))).all()
    complete = ones([5, 10, 3, 8, 10], [True] * 5)  # nothing follows a terminal state
    assert dataset_return(complete, EvaluatedReturn(1.0, 30, True)).value == pytest.approx(7.2)


def test_of_complete_episodes_the_interval_is_that_of_a_mean() -> None:
    data = small_dataset(rows=50)  # ten episodes of five steps, cut alike
    by_hand = (data.reward.reshape(10, 5)[:, :3] * 0.5 ** np.arange(3)).astype(np.float64).sum(1)
    found = dataset_return(data, EvaluatedReturn(0.5, 3, True))
    assert found.value == pytest.approx(by_hand.mean(), rel=1e-6)
    half = 1.8331129 * by_hand.std(ddof=1) / 10**0.5  # the 95th percentile of Student's t with nine degrees of freedom
    assert found.high - found.value == pytest.approx(half, rel=0.1)
    assert found.value - found.low == pytest.approx(found.high - found.value)


def test_the_interval_is_a_bootstrap_over_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against loops over resampled episodes; some at a time give the same as all at once."""
    lengths, ended = np.array([3, 1, 4, 2, 4]), np.array([True, True, False, False, True])
    data, starts = made_dataset(lengths, ended), np.cumsum(lengths) - lengths
    found = dataset_return(data, PLAIN._replace(gamma=0.8))

    def mean(episodes: np.ndarray) -> float:
        total = 0.0
        for t in range(4):
            shown = [e for e in episodes if t < lengths[e] or ended[e]]
            gains = [float(data.reward[starts[e] + t]) if t < lengths[e] else 0.0 for e in shown]
            total += 0.8**t * float(np.mean(gains)) if shown else 0.0
        return total

    rng = np.random.default_rng(0)
    drawn = [mean(rng.integers(5, size=5)) for _ in range(module.RESAMPLES)]
    assert found.value == pytest.approx(mean(np.arange(5)), rel=1e-6)
    half = 2.1318468 * np.std(drawn) * (5 / 4) ** 0.5  # the 95th percentile of Student's t with four degrees of freedom
    assert found.high - found.value == pytest.approx(half, rel=1e-6)
    monkeypatch.setattr(module, "AT_ONCE", 35)
    assert dataset_return(data, PLAIN._replace(gamma=0.8)) == pytest.approx(found, rel=1e-12)


def test_one_episode_has_no_interval() -> None:
    assert dataset_return(ones([4], [True]), PLAIN) == (4.0, float("-inf"), float("inf"))


def test_an_episode_that_the_end_of_the_data_cuts_counts_as_far_as_it_goes() -> None:
    data = ones([4, 4, 2], [False] * 3)
    cut = replace(data, timeout=np.append(data.timeout[:-1], False))
    assert dataset_return(cut, whole_episodes(cut)).value == pytest.approx(4.0)
