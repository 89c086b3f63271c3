"""`python -m benchmarks.runaway`: its variants, and a run of each on made-up data."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks import runaway
from pspo.training.cost import Shape, random_dataset

SMALL = {"steps": "40", "chunk": "20", "starts": "50", "cloning_steps": "5", "width": "16", "candidates": "3"}
SMALL |= {"model.pool": "5", "model.width": "16", "model.steps": "20", "model.evaluate_every": "10"}


def test_long_rollouts_make_as_many_transitions_from_fewer_states():
    usual, longer = (runaway.configuration("1r2r", name, "hopper-medium", {}) for name in ("preset", "long-rollouts"))
    assert (usual.rollout_horizon, longer.rollout_horizon) == (5, runaway.LONG)
    assert usual.starts * usual.rollout_horizon == longer.starts * longer.rollout_horizon
    assert dataclasses.replace(longer, rollout_horizon=5, starts=usual.starts) == usual


@pytest.mark.parametrize("variant", ["preset", "free-rewards"])
def test_a_run_says_how_q_grows_along_rollouts(monkeypatch, variant):
    monkeypatch.setattr(runaway, "EVERY", 20)
    monkeypatch.setattr(runaway, "STARTS", 30)
    monkeypatch.setattr(runaway, "EPISODES", 1)
    noise = random_dataset(Shape(400, 11, 3), episode=50)
    data = dataclasses.replace(noise, name="hopper-medium", task="hopper")
    result = runaway.measure(data, "1r2r", variant, 0, SMALL)
    assert [row["step"] for row in result["curve"]] == [20, 40]
    assert result["q_by_step"][0]["alive"] == 1.0
    margin = 0.05 * (noise.reward.max() - noise.reward.min())
    assert result["largest_value"] == pytest.approx(100.0 * (noise.reward.max() + margin), rel=1e-3)
    assert "| step of a rollout |" in runaway.table(variant, result)
