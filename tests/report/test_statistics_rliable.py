"""Statistics of a comparison, against rliable: the same estimates, and the same intervals from the same resamples."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pspo.report.statistics import (
    Interval,
    average,
    bootstrap_interval,
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
)

LEVELS = np.linspace(-1, 5, 13)


def matrix(seed: int, runs: int = 5, count: int = 7) -> np.ndarray:
    """Scores (runs, tasks) with a level of its own per task, rounded so that some tie."""
    rng = np.random.default_rng(seed)
    return np.round(rng.normal(rng.uniform(0, 3, count), 1, (runs, count)), 1)


@pytest.fixture(scope="module")
def rliable() -> Any:
    """rliable's `library` and `metrics`, as one namespace.

    rliable 1.2.0 wants arch below 8, and arch 7.2 cannot be imported beside pandas 3: its `arch.univariate` uses a
    decorator of pandas, `deprecate_kwarg`, which has another signature there. Only arch's bootstrap is needed, and that
    works; so `arch` is entered here as a package whose own `__init__` is not run.
    """
    found = importlib.util.find_spec("arch")
    assert found is not None
    assert found.submodule_search_locations is not None
    package = ModuleType("arch")
    package.__path__ = list(found.submodule_search_locations)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "arch", package)
        from rliable import library, metrics
    both = ModuleType("rliable_parts")
    both.__dict__.update(vars(library) | vars(metrics))
    return both


@pytest.mark.parametrize("seed", range(5))
def test_estimates_are_rliable_s(rliable, seed) -> None:
    x, y = matrix(seed), matrix(seed + 100, runs=4)
    assert interquartile_mean(list(x.T)) == pytest.approx(rliable.aggregate_iqm(x))
    assert average(list(x.T)) == pytest.approx(rliable.aggregate_mean(x))
    found = probability_of_improvement(list(x.T), list(y.T), repetitions=1).probability
    assert found == pytest.approx(rliable.probability_of_improvement(x, y))
    shares = performance_profile(list(x.T), LEVELS, repetitions=1).share
    np.testing.assert_allclose(shares, rliable.score_distributions(x, LEVELS))


def resamples(shape: tuple[int, int], repetitions: int, seed: int) -> list[np.ndarray]:
    """Which runs our bootstrap draws, (runs, tasks) for each repetition: what it makes of the runs' own numbers."""
    drawn: list[np.ndarray] = []
    runs, count = shape
    bootstrap_interval(
        lambda scores: float(drawn.append(np.stack(scores, axis=1).astype(int)) or 0),
        [np.arange(runs)] * count,
        repetitions=repetitions,
        seed=seed,
    )
    return drawn


def test_intervals_from_the_same_resamples_are_rliable_s(rliable, monkeypatch) -> None:
    """Our indices in rliable's bootstrap: the same interval to the last digits, and the same band of the profile."""
    x, repetitions = matrix(1), 150
    queue: list[np.ndarray] = []
    monkeypatch.setattr(
        rliable.StratifiedBootstrap, "update_indices", lambda self: (queue.pop(0), *self._strata_indices)
    )
    for ours, theirs in ((interquartile_mean, rliable.aggregate_iqm), (average, rliable.aggregate_mean)):
        queue[:] = resamples(x.shape, repetitions, seed=7)
        wanted = {"x": x}, lambda scores, theirs=theirs: np.array([theirs(scores)])
        _, intervals = rliable.get_interval_estimates(*wanted, reps=repetitions, confidence_interval_size=0.9)
        found = bootstrap_interval(ours, list(x.T), 0.9, repetitions, seed=7)
        assert not queue
        assert found == pytest.approx(intervals["x"][:, 0])
    queue[:] = resamples(x.shape, repetitions, seed=7)
    _, bands = rliable.create_performance_profile({"x": x}, LEVELS, reps=repetitions)
    band = performance_profile(list(x.T), LEVELS, repetitions=repetitions, seed=7).band
    assert band is not None
    np.testing.assert_allclose(band, bands["x"], atol=1e-12)


@pytest.fixture
def global_seed():
    """rliable draws from NumPy's global state, whatever `random_state` it is given."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    yield
    np.random.set_state(before)  # noqa: NPY002


@pytest.mark.usefixtures("global_seed")
def test_intervals_agree_with_rliable_s_own_random_numbers(rliable) -> None:
    """Two independent bootstraps: each end has a Monte-Carlo error of about a fiftieth of the interval."""
    x, y = matrix(2), matrix(102, runs=4)
    _, intervals = rliable.get_interval_estimates({"x": x}, lambda s: np.array([rliable.aggregate_iqm(s)]), reps=3000)
    found = bootstrap_interval(interquartile_mean, list(x.T), repetitions=3000)
    close(found, intervals["x"][:, 0])
    _, intervals = rliable.get_interval_estimates(
        {"pair": [x, y]}, lambda a, b: np.array([rliable.probability_of_improvement(a, b)]), reps=300
    )
    found = probability_of_improvement(list(x.T), list(y.T)).interval
    close(found, intervals["pair"][:, 0], share=0.12)


def close(found: Interval | None, expected: np.ndarray, share: float = 0.06) -> None:
    width = expected[1] - expected[0]
    assert width > 0
    assert found == pytest.approx(expected, abs=share * width)
