"""Runs written by version 0.1, before settings, metrics and state fields were renamed, can still be used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import pspo
from pspo.algorithms import get_algorithm
from pspo.core.config import keys
from pspo.core.renamed import METRICS
from pspo.report.run.contents import read_contents
from pspo.report.run.reproduce import changed_settings
from pspo.runs.directory import open_run
from tests.report.reading import Page

FIXTURES = Path(__file__).parents[1] / "fixtures"
FINISHED, STOPPED = FIXTURES / "run-of-0.1-finished", FIXTURES / "run-of-0.1-stopped"
# Set for tests, and not when the fixtures were written.
ALTERS_BITS = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "NPROC", "XLA_FLAGS")

# Settings of PSPO that version 0.1 did not have: their defaults are what it did.
ADDED_SINCE = {
    "mode_rollouts",
    "model.layer_norm",
    "reference.advantage_temperature",
    "value_rollouts",
    "kl_limit_rise",
}


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FINISHED, tmp_path / "finished"))


def test_a_stopped_run_resumes_to_the_same_policy(tmp_path: Path) -> None:
    path = shutil.copytree(STOPPED, tmp_path / "stopped")
    environment = {name: value for name, value in os.environ.items() if name not in ALTERS_BITS}
    code = "import sys, pspo; pspo.resume(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, path], env=environment, capture_output=True, text=True)
    if "cannot be rebuilt exactly on this machine" in done.stderr:
        pytest.skip("this machine rounds differently from the one that wrote the fixture: its models differ")
    assert done.returncode == 0, done.stderr
    resumed, expected = (load_file(folder / "policy.safetensors") for folder in (path, FINISHED))
    assert resumed.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(resumed[name], array, err_msg=name)
    assert open_run(path).result["model_return"] == open_run(FINISHED).result["model_return"]
    assert [row["step"] for row in open_run(path).metrics()] == [20, 40, 60]


def test_a_finished_run_opens_under_the_new_names(finished: Path) -> None:
    run = open_run(finished)
    settings = run.read("config")["settings"]
    assert keys(get_algorithm("pspo").Config).keys() - settings.keys() == ADDED_SINCE
    assert settings.keys() <= keys(get_algorithm("pspo").Config).keys()
    assert (settings["policy_tau"], settings["lambda_init"], settings["model.lr"]) == (0.02, 0.02, 0.001)
    assert changed_settings(read_contents(finished)) == {}
    names = {name for row in [run.result, *run.metrics()] for name in row}
    assert not names & METRICS.keys()
    assert {"model_return", "kl_target_policy", "target_policy_score", "f_scale"} <= names


def test_a_finished_run_is_evaluated(finished: Path) -> None:
    result = pspo.evaluate(finished, episodes=50).as_dict()
    assert result["episodes"] == 50
    assert result["score"] == pytest.approx(0.0, abs=1.0)  # this smoke policy sells nothing


def test_a_finished_run_is_exported(finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    exported = pspo.OnnxPolicy.load(pspo.export_policy(finished, tmp_path / "policy.onnx"))
    states = np.array([[0, 100, 1.0], [10, 50, 2.0]], np.float32)
    np.testing.assert_allclose(exported(states), pspo.load_policy(finished)(states), atol=1e-5)
    assert exported.contract["input"]["columns"][2]["name"] == "price"


def test_a_finished_run_is_reported(finished: Path, capsys) -> None:
    from pspo.cli.main import main

    assert main(["report", str(finished)]) == 0
    assert str(finished / "report.html") in capsys.readouterr().out
    page = Page((finished / "report.html").read_text())
    assert "the model-estimated return is a score of 62.54" in page.text
    assert "KL(π ‖ π′) to the target policy" in page.text
    settings = open_run(finished).read("config")["settings"]
    assert f"All {len(settings)} settings are those of the preset “smoke”" in page.text
    assert "pspo train liquidation --algo pspo --preset smoke --seed 3 --threads 2" in page.text


def test_metrics_are_rewound_and_tabled_under_the_new_names(finished: Path) -> None:
    run = open_run(finished)
    run.rewind_metrics(40)
    run.write_metrics_table()
    head, *rows = (finished / "metrics.csv").read_text().splitlines()
    assert "kl_target_policy" in head.split(",")
    assert len(rows) == 2
