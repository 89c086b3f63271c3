"""`pspo train ... --dry-run` describes a run and starts nothing."""

from __future__ import annotations

import pytest

from pspo.training import dry_run
from pspo.training.cost import CostEstimate
from tests.cli.command_line import pspo


@pytest.mark.slow  # compiles what tests of the estimate compile as well
def test_a_dry_run_states_data_steps_time_and_memory_and_writes_nothing(tmp_path):
    done = pspo("train", "liquidation", "--preset", "smoke", "--dry-run", "--seeds", "4", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "would train pspo on liquidation, preset smoke"
    about = {line[:17].strip(): line[17:] for line in lines[1:]}
    assert about["data"] == "100,000 transitions, 3 + 1 columns"
    assert about["dynamics pool"].startswith("4 networks of 2 x 16 units, at most 60 steps of ")
    assert about["training"].startswith("2 x 16 units, 60 steps of ")
    assert about["termination"] == "the known rule of liquidation"
    assert about["memory"].endswith("GiB")
    assert about["in all"].startswith("at most ")
    assert about["seeds"].startswith("4:")
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_does_not_download_data(tmp_path):
    nowhere = {"PSPO_D4RL_URL": "http://127.0.0.1:1", "PSPO_CACHE": str(tmp_path / "cache")}
    words = ["walker2d-medium-replay", "--algo", "bc", "--preset", "smoke", "--dry-run"]
    done = pspo("train", *words, cwd=tmp_path, env=nowhere)
    assert done.returncode == 0, done.stderr
    assert "about 302,000 transitions, 17 + 6 columns, not here yet" in done.stdout
    assert "http://127.0.0.1:1/walker2d_medium_replay-v2.hdf5" in done.stdout
    assert not (tmp_path / "cache" / "d4rl").exists()


def test_an_unknown_dataset_is_one_sentence(tmp_path):
    done = pspo("train", "hoper-medium-v2", "--dry-run", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "hopper-medium-v2" in done.stderr


def test_a_dry_run_knows_caution_and_hold_out(tmp_path):
    nowhere = {"PSPO_D4RL_URL": "http://127.0.0.1:1", "PSPO_CACHE": str(tmp_path / "cache")}
    words = ["train", "walker2d-medium-replay", "--preset", "smoke", "--dry-run"]
    done = pspo(*words, "--algo", "bc", "--caution", "high", cwd=tmp_path, env=nowhere)
    assert done.returncode == 2
    assert "'bc' has no setting for caution=high" in done.stderr
    done = pspo(*words, "--algo", "bc", "--holdout", "1.5", cwd=tmp_path, env=nowhere)
    assert done.returncode == 2
    assert "the hold-out fraction is 1.5" in done.stderr


@pytest.mark.parametrize("source", ["liquidation", "walker2d-medium-replay"])
def test_held_out_rows_and_caution_are_in_the_lines(source, monkeypatch, tmp_path):
    monkeypatch.setenv("PSPO_CACHE", str(tmp_path))
    sizes = []

    def noted(algorithm, config, data):
        sizes.append((data.size, config.conservatism))
        return CostEstimate([], 0)

    monkeypatch.setattr(dry_run, "estimate_cost", noted)
    for options in ({}, {"caution": "high", "holdout": 0.2}):
        lines = dry_run.describe(source, "cql", preset_name="smoke", settings={}, **options)
    (whole, normal), (rest, high) = sizes
    assert high == pytest.approx(3 * normal)
    assert rest == pytest.approx(0.8 * whole, rel=0.01)
    assert lines[1].startswith("caution high: conservatism=")
    assert lines[3].startswith("held out: ")
