"""What `--dry-run` reports: measured steps, scaled by the configuration's numbers, and nothing left behind."""

from __future__ import annotations

import os

import pytest

from pspo.algorithms import bc, mopo
from pspo.algorithms.pspo import algorithm as pspo
from pspo.algorithms.registry import preset
from pspo.core.config import build
from pspo.data import load_dataset
from pspo.training.cost import ITERATIONS, MORE_ITERATIONS, MOST_MEMBERS, SAMPLE_SIZE, Shape, estimate_cost


def config(**changed):
    return build(
        pspo.Config, preset("pspo", "smoke", None), {name.replace("__", "."): v for name, v in changed.items()}
    )


@pytest.fixture(scope="module")
def small():
    return estimate_cost(pspo, config(steps=120, model__steps=600), Shape(1000, 11, 3))


def test_every_phase_has_its_own_number_of_steps(small):
    steps = {"dynamics pool": 600, "reference policy": 60, "training": 120}
    assert {phase.name: phase.steps for phase in small.phases} == steps
    assert all(phase.step_seconds > 0 for phase in small.phases)
    assert small.seconds == pytest.approx(sum(phase.steps * phase.step_seconds for phase in small.phases))


def test_rollouts_count_once_a_chunk(monkeypatch):
    """Rollouts alone take 8 seconds, with 4 iterations 10, with 64 iterations 40: the longer chunk tells more."""
    times = iter((8.0, 10.0, 40.0))
    monkeypatch.setattr("pspo.training.cost._seconds", lambda *_: next(times))
    values = preset("mopo", "smoke", None) | {"chunk": 400}
    training = estimate_cost(mopo, build(mopo.Config, values), Shape(500, 3, 1)).phases[-1]
    assert training.step_seconds == pytest.approx((40.0 - 8.0) / MORE_ITERATIONS + 8.0 / 400)


def test_short_rollouts_need_no_longer_chunk(monkeypatch):
    times = iter((0.5, 10.0))
    monkeypatch.setattr("pspo.training.cost._seconds", lambda *_: next(times))
    values = preset("mopo", "smoke", None) | {"chunk": 400}
    training = estimate_cost(mopo, build(mopo.Config, values), Shape(500, 3, 1)).phases[-1]
    assert training.step_seconds == pytest.approx((10.0 - 0.5) / ITERATIONS + 0.5 / 400)


@pytest.mark.slow
def test_large_pools_and_data_count_in_memory(small, monkeypatch):
    monkeypatch.setattr(
        "pspo.training.cost._time_iteration", lambda *_: (1.0, 0.0)
    )  # which takes the longest and adds no bytes
    shape = Shape(1_000_000, 17, 6)
    large = estimate_cost(pspo, config(model__pool=10 * MOST_MEMBERS), shape)
    bootstraps = 4 * 10 * MOST_MEMBERS * shape.size
    transitions = 4 * (2 * 17 + 6 + 1) * shape.size
    assert large.bytes - small.bytes > bootstraps + 2 * transitions
    assert large.bytes - small.bytes < 4 * 2**30


def test_a_dry_run_on_real_data_leaves_the_cache_as_it_was(monkeypatch, tmp_path):
    monkeypatch.setenv("PSPO_CACHE", str(tmp_path))  # other tests write into the shared one meanwhile
    data = load_dataset("liquidation", size=SAMPLE_SIZE + 500)
    found = estimate_cost(bc, build(bc.Config, preset("bc", "smoke", "liquidation")), data)
    assert [phase.name for phase in found.phases] == ["training"]  # nothing is fitted before
    assert os.environ["PSPO_CACHE"] == str(tmp_path)
    assert list(tmp_path.glob("*.safetensors")) == []
