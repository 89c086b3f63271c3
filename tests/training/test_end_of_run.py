"""The end of a run on data without a simulator: the verdict and what it rests on, and what may change it later."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pspo
from pspo.cli.main import main
from pspo.core.files import read_json
from pspo.data import save_dataset
from pspo.evaluation.dataset_return import dataset_return
from pspo.evaluation.ope.estimate_run import estimate_return
from pspo.evaluation.problem import EvaluatedReturn, return_to_evaluate
from pspo.runs.dataset import own_dataset
from pspo.runs.directory import open_run
from pspo.training.monitor import Monitor
from pspo.training.train import resume, train
from tests.evaluation.ope.ope_cases import made_dataset

SMALL = {"steps": 20, "chunk": 10, "evaluate_every": 20, "model.steps": 20, "reference.steps": 20}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, list[str]]:
    """A run of PSPO on episodes that were cut at different lengths, a quarter of them held out; and its messages."""
    folder = tmp_path_factory.mktemp("end")
    lengths = np.random.default_rng(0).integers(2, 8, size=80)
    save_dataset(made_dataset(lengths, [False] * 80), folder / "log.npz")
    said: list[str] = []
    monitor = Monitor(message=said.append)
    train(folder / "log.npz", preset="smoke", out=folder / "run", settings=SMALL, holdout=0.25, monitor=monitor)
    return folder / "run", said


@pytest.fixture
def run(trained, tmp_path: Path) -> Path:
    """A copy to write into."""
    return Path(shutil.copytree(trained[0], tmp_path / "run"))


def test_the_verdict_rests_on_the_hold_out(trained) -> None:
    run, said = open_run(trained[0]), trained[1]
    held_out, gamma = own_dataset(run, "holdout"), run.read("config")["settings"]["gamma"]
    comparison = run.read("comparison")
    assert comparison["basis"] == "held-out data"
    evaluated = return_to_evaluate(held_out, gamma)
    assert comparison["quantity"] == evaluated.words
    assert comparison["dataset"]["value"] == pytest.approx(dataset_return(held_out, evaluated).value)
    assert comparison["dataset"]["value"] != pytest.approx(dataset_return(own_dataset(run), evaluated).value, rel=1e-3)
    assert any("the verdict rests on the held-out data" in line for line in said)
    assert not any("flatters" in reason for reason in comparison["reasons"])


def test_the_result_and_ope_agree_on_the_return_of_the_dataset(run: Path) -> None:
    """Each in its own quantity; the verdict is in that of `pspo ope`."""
    estimates = estimate_return(run, methods=["models"])
    estimates.write()
    of_ope = read_json(run / "ope.json")
    verdict = open_run(run).read("comparison")["dataset"]
    assert (verdict["value"], verdict["low"], verdict["high"]) == (
        *(of_ope[name] for name in ("dataset_return", "dataset_low", "dataset_high")),
    )
    result, data = open_run(run).result, own_dataset(open_run(run))
    quantity = EvaluatedReturn(1.0, result["model_steps"], True)
    assert result["dataset_return"] == pytest.approx(dataset_return(data, quantity).value)
    assert result["dataset_return"] > 1.3 * data.episode_returns().mean()  # short episodes were cut, not over


@pytest.mark.parametrize(
    "options", [{"horizon": 2}, {"gamma": 0.5}, {"confidence": 0.5}, {"methods": ["importance"]}, {"dataset": "other"}]
)
def test_only_an_estimate_by_default_with_models_changes_the_verdict(run: Path, options: dict[str, Any]) -> None:
    if "dataset" in options:
        options = {"dataset": made_dataset([4] * 30, [False] * 30, seed=1)}
    before = {name: (run / name).read_bytes() for name in ("comparison.json", "report.html")}
    chosen: dict[str, Any] = {"methods": ["models"], **options}
    estimates = estimate_return(run, **chosen)
    assert not estimates.decides_verdict
    estimates.write()
    assert {name: (run / name).read_bytes() for name in before} == before
    assert (run / "ope.json").exists()


def test_python_and_the_command_change_the_verdict_alike(run: Path, tmp_path: Path, capsys) -> None:
    other = shutil.copytree(run, tmp_path / "other")
    for path in (run, other):
        content = read_json(path / "comparison.json")
        (path / "comparison.json").write_text(json.dumps(content | {"headline": "old", "new_actions": 0.5}))
    estimate_return(run, methods=["models"]).write()
    assert main(["ope", str(other), "--methods", "models"]) == 0
    assert "verdict on the run is unchanged" not in capsys.readouterr().err
    first, second = (read_json(path / "comparison.json") for path in (run, other))
    assert first == second
    assert first["headline"] != "old"
    assert first["new_actions"] == 0.5
    assert first["headline"] in (run / "report.html").read_text()
    assert main(["ope", str(other), "--methods", "models", "--horizon", "2"]) == 0
    assert "verdict on the run is unchanged" in capsys.readouterr().err
    assert read_json(other / "comparison.json") == first


def test_a_finished_run_gets_its_missing_verdict(run: Path, tmp_path: Path, capsys) -> None:
    """Killed between result.json and comparison.json."""
    before = read_json(run / "comparison.json")
    for name in ("comparison.json", "report.html"):
        (run / name).unlink()
    assert main(["resume", str(run), "--quiet"]) == 0
    assert "comparison.json, report.html was missing and is written again" in " ".join(capsys.readouterr().out.split())
    assert read_json(run / "comparison.json") == before
    assert before["headline"] in (run / "report.html").read_text()


def test_without_its_data_a_finished_run_gets_the_rest(run: Path, tmp_path: Path) -> None:
    config = read_json(run / "config.json")
    (run / "config.json").write_text(json.dumps(config | {"dataset": str(tmp_path / "gone.npz")}))
    for name in ("comparison.json", "report.html"):
        (run / name).unlink()
    said: list[str] = []
    resume(run, monitor=Monitor(message=said.append))
    assert (run / "report.html").exists()
    assert not (run / "comparison.json").exists()
    assert any("there is no verdict on" in line and "gone.npz" in line for line in said)


def test_a_stopped_run_keeps_the_hold_out_for_its_verdict(run: Path) -> None:
    before = read_json(run / "comparison.json")
    for name in ("result.json", "comparison.json", "report.html", "policy.safetensors"):
        (run / name).unlink()
    resume(run)
    assert read_json(run / "comparison.json") == before


def test_of_other_algorithms_the_verdict_names_the_command(tmp_path: Path) -> None:
    data = made_dataset([4] * 40, [False] * 40)
    run = train(data, "bc", "smoke", out=tmp_path / "run", settings={"steps": 20}, holdout=0.25)
    comparison = run.read("comparison")
    assert (comparison["basis"], comparison["policy"]) == ("nothing", None)
    assert comparison["reasons"] == [
        f"Its return was not estimated yet: `pspo ope {run.path}` does that, from the held-out data."
    ]
    assert comparison["quantity"] == "sum of rewards over 4 steps"


def test_requests_leave_out_what_version_0_1_did_not_know() -> None:
    known = {"dataset", "algo", "preset", "seed", "settings", "columns", "task", "episodes"}
    assert pspo.TrainRequest("log.csv").as_dict().keys() == known
    asked = pspo.TrainRequest("log.csv", caution="low", holdout=0.2, holdout_by="time")
    assert asked.as_dict().keys() == known | {"caution", "holdout", "holdout_by"}
    for request in (asked, pspo.TrainRequest("log.csv", settings={"alpha": 0.1})):
        assert pspo.TrainRequest.from_dict(request.as_dict()) == request


def test_the_table_of_results_says_over_how_many_steps(trained, capsys) -> None:
    from pspo.report.terminal import result_table

    result_table(open_run(trained[0]).result)
    words = " ".join(capsys.readouterr().out.split())
    assert "horizon of both, in steps │ 7 │" in words
