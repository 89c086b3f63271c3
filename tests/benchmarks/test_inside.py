"""`python -m benchmarks.inside`: models, critic and policy beside the simulator, on a tiny hopper run."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks.restore import restore

import pspo
from benchmarks import inside
from pspo.collecting import collect
from pspo.core.files import read_arrays
from pspo.core.progress import Reporter

pytest.importorskip("mujoco", reason="needs the extra pspo[mujoco]")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("inside")
    collect("hopper-random", folder / "hopper.hdf5", transitions=400, reporter=Reporter(message=lambda _: None))
    small = {"steps": 20, "evaluate_every": 20, "evaluate_episodes": 1, "kl_limit": 0.5, "improvement": "gradient"}
    done = pspo.train(folder / "hopper.hdf5", preset="smoke", out=folder / "run", settings=small, episodes=1)
    return done.path


def test_a_restored_run_is_the_one_that_was_saved(run) -> None:
    found = restore(run)
    assert int(found.state.step) == 20
    newest = sorted((run / "checkpoints").glob("*.safetensors"))[-1]
    assert any(np.array_equal(array, found.state.rollouts.obs) for array in read_arrays(newest)[0].values())


def test_a_missing_pool_is_refused(run, monkeypatch) -> None:
    monkeypatch.setattr(pspo.runs.directory.Run, "read", _other_pool(pspo.runs.directory.Run.read))
    with pytest.raises(SystemExit, match="does not hold the pool"):
        restore(run)


def _other_pool(read):
    def reading(self, name):
        found = read(self, name)
        return found | {"models": {"pool": "another"}} if name == "manifest" else found

    return reading


def test_the_lines_have_the_datasets_numbers(run, monkeypatch) -> None:
    monkeypatch.setattr(inside, "MODEL_EPISODES", 3)
    monkeypatch.setattr(inside, "EPISODES", 2)
    monkeypatch.setattr(inside, "HORIZON", 100)
    found = restore(run)
    lines = list(inside.describe(found))
    of_mu = next(line for line in lines if line.startswith("mu with its noise"))
    mean, length = found.data.episode_returns().mean(), found.data.episode_lengths().mean()
    assert of_mu.endswith(f"dataset {mean:.0f} in {length:.0f} steps")
    true = next(line for line in lines if line.startswith("policy by its mode"))
    raw = float(re.search(r"simulator (-?\d+) in", true)[1])
    played = inside.simulate(found, found.state.params.policy, noisy=False)
    assert raw == pytest.approx(np.mean([e.total for e in played]), abs=0.51)
    assert sum("steps left: critic" in line for line in lines) >= 1
    assert sum("KL(policy, mu) at" in line for line in lines) == 3
    errors = [float(re.search(r"error (\d+\.\d+)", line)[1]) for line in lines if "models on its own path" in line]
    assert errors
    assert min(errors) > 0
