"""Options for own tables from end to end: --ignore, --holdout, --sql, --propensity, and select --data."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import pspo as library
from pspo.cli.main import _parser, main
from pspo.cli.train import train_request
from pspo.evaluation.density import log_ratios
from pspo.evaluation.ope import estimate_run
from pspo.evaluation.ope.estimate_run import RunEstimates
from pspo.evaluation.ope.return_estimate import ReturnEstimate
from pspo.evaluation.problem import EvaluationProblem, make_problem, return_to_evaluate
from pspo.policies.policy import load_policy
from pspo.report.run.contents import read_contents
from pspo.report.run.reproduce import command
from pspo.runs.dataset import own_dataset
from pspo.runs.directory import Run
from pspo.training import train as training
from pspo.training.monitor import SILENT, Monitor
from pspo.training.request import TrainRequest
from tests.cli.command_line import TINY


@pytest.fixture
def no_training(monkeypatch) -> list[library.Dataset]:
    """Runs are started and resumed without training; the data that they would train on are collected."""
    seen = []

    def note(run: Run, module: object, config: object, data: library.Dataset, *_: object) -> Run:
        seen.append(data)
        return run

    monkeypatch.setattr(training, "_work", note)
    return seen


def several_stores() -> dict[str, np.ndarray]:
    """Three stores on the same 40 days, with what a reader is to ignore, and the density of each order."""
    random, days = np.random.default_rng(0), np.tile(np.arange(40), 3)
    order = random.normal(size=120).clip(-2.5, 2.5)
    return {
        "store": np.repeat(["a", "b", "c"], 40),
        "date": (np.datetime64("2024-01-01") + days).astype("datetime64[D]"),
        "obs_stock": random.normal(size=120),
        "obs_comment": np.array([f"note {row}" for row in range(120)]),
        "action": order,
        "reward": random.normal(size=120),
        "density": np.exp(-(order**2) / 2) / np.sqrt(2 * np.pi),
    }


STORES = ["--episode", "store", "--time", "date", "--ignore", "obs_c*,density"]


@pytest.fixture
def store_log(tmp_path: Path) -> Path:
    pyarrow.csv.write_csv(pa.table(several_stores()), tmp_path / "log.csv")
    return tmp_path / "log.csv"


def test_ignored_columns_are_left_out(store_log: Path, capsys) -> None:
    """As an option, and as an entry of the column map."""
    assert main(["data", "info", str(store_log), *STORES[:4]]) == 2
    assert "'obs_comment' has 120 different texts" in capsys.readouterr().err
    assert main(["data", "info", str(store_log), *STORES]) == 0
    printed = capsys.readouterr().out
    assert "obs_dim            1" in printed
    assert "not used" not in printed
    entries = "episode = 'store'\ntime = 'date'\nignore = ['obs_c*', 'density']\n"
    store_log.with_suffix(".toml").write_text(f"[columns]\n{entries}")
    assert library.load_dataset(store_log).obs_names == ("obs_stock",)
    assert main(["data", "info", str(store_log), "--ignore", "obs_x*"]) == 2
    assert "no column fits 'obs_x*' (ignore)" in capsys.readouterr().err


def requested(*words: object) -> TrainRequest:
    return train_request(_parser().parse_args(["train", *map(str, words)]), {})


def test_a_run_that_cut_all_stores_at_one_time_finds_its_split(store_log: Path, no_training) -> None:
    said: list[str] = []
    run = requested(store_log, *STORES, "--holdout", "0.25").train(
        store_log.parent / "run", Monitor(message=said.append)
    )
    line = "held out: the latest 30 of 117 transitions (from 'date' 2024-01-30 on); 3 episodes are cut there."
    assert said.count(line) == 1
    library.resume(run.path)
    training, again = no_training
    assert training.hash == again.hash
    assert run.read("config")["holdout"] == {"fraction": 0.25, "by": "time", "from_time": "2024-01-30"}
    held_out = own_dataset(run, "holdout")
    assert held_out.row_times is not None
    assert training.row_times is not None
    assert training.row_times.max() < np.datetime64("2024-01-30") == held_out.row_times.min()


def test_a_run_remembers_its_query(store_log: Path, no_training) -> None:
    pytest.importorskip("duckdb")
    query = "select *, obs_stock * 2 as obs_twice from data where store <> 'b'"
    run = requested(store_log, *STORES, "--sql", query).train(store_log.parent / "run", SILENT)
    library.resume(run.path)
    training, again = no_training
    assert training.hash == again.hash
    assert training.size == 78
    assert training.obs_names == ("obs_stock", "obs_twice")
    words = shlex.split(" ".join(command(read_contents(run.path))))
    assert words[words.index("--sql") + 1] == query


def ope_by_weights(run: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["ope", str(run), "--methods", "importance", "--gamma", "0.9", "--json", "--quiet"]) == 0
    (estimate,) = json.loads(capsys.readouterr().out)["estimates"]
    return estimate


@pytest.mark.slow
def test_propensities_reach_ope(store_log: Path, capsys) -> None:
    words = [str(store_log), *STORES[:4], "--ignore", "obs_c*", "--algo", "bc", *TINY]
    given, fitted = store_log.parent / "given", store_log.parent / "fitted"
    assert main(["train", *words, "--propensity", "density", "--out", str(given)]) == 0
    assert main(["train", *words, "--out", str(fitted)]) == 0
    capsys.readouterr()
    assert Run(given).read("manifest")["data_hash"] == Run(fitted).read("manifest")["data_hash"]
    assert own_dataset(Run(given)).propensity is not None
    one, other = ope_by_weights(given, capsys), ope_by_weights(fitted, capsys)
    assert "behaviour density" in " ".join(other["warnings"])
    assert "behaviour density" not in " ".join(one["warnings"])
    assert one["value"] != other["value"]


@pytest.mark.slow
def test_the_propensity_of_a_discrete_action_is_the_probability_of_its_label(tmp_path: Path, capsys) -> None:
    """Orders do nothing but earn, so the weighted mean of single decisions is the policy's own, whatever is logged."""
    rng, rows = np.random.default_rng(0), 4000
    probability = np.array([0.7, 0.2, 0.1])
    label = rng.choice(3, rows, p=probability)
    table = {"obs_x": rng.normal(size=rows), "action": np.array(["low", "mid", "top"])[label], "reward": label * 10.0}
    table |= {"terminal": np.ones(rows, bool), "chance": probability[label]}
    pyarrow.csv.write_csv(pa.table(table), tmp_path / "log.csv")
    out = tmp_path / "run"
    assert (
        main(["train", str(tmp_path / "log.csv"), "--algo", "bc", *TINY, "--propensity", "chance", "--out", str(out)])
        == 0
    )
    capsys.readouterr()
    data = own_dataset(Run(out))
    assert data.propensity is not None
    np.testing.assert_allclose(data.propensity, probability[data.action_codes], rtol=1e-6)
    problem = made_problem_of(out, data)
    log_policy = np.asarray(log_ratios(problem, None)) + np.log(table["chance"])
    by_label = np.array([np.exp(log_policy[label == code]).mean() for code in range(3)])
    assert by_label.sum() == pytest.approx(1.0, abs=0.02)  # probabilities, not densities
    found = ope_by_weights(out, capsys)
    assert found["value"] == pytest.approx(by_label @ [0.0, 10.0, 20.0], rel=0.1)
    assert found["low"] < found["value"] < found["high"]


def made_problem_of(run: Path, data: library.Dataset) -> EvaluationProblem:
    return make_problem(load_policy(run), data, return_to_evaluate(data, 0.9), 0.9)


@pytest.mark.slow
def test_select_on_one_dataset_compares_runs_that_were_trained_on_others(store_log: Path, capsys) -> None:
    """The same file read with other columns is other data; evaluated on one file, the returns compare."""
    folder, words = store_log.parent, [str(store_log), *STORES[:4], "--algo", "bc", *TINY]
    assert main(["train", *words, "--ignore", "obs_c*", "--out", str(folder / "one")]) == 0
    assert (
        main(
            [
                "train",
                *words,
                "--ignore",
                "reward",
                "--reward",
                "density",
                "--obs",
                "obs_stock",
                "--out",
                str(folder / "two"),
            ]
        )
        == 0
    )
    assert main(["train", *words, "--obs", "obs_stock,density", "--out", str(folder / "more")]) == 0
    capsys.readouterr()
    select = ["select", "--by", "fitted-q", "--gamma", "0.9", "--quiet", "--json", str(folder / "one")]
    assert main([*select, str(folder / "more")]) == 2
    assert "would be evaluated on different data" in capsys.readouterr().err
    assert main([*select, str(folder / "more"), "--data", str(store_log)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["order"]) == 2
    assert len({estimates["dataset_return"] for estimates in found["estimates"]}) == 1
    assert main([*select, str(folder / "two"), "--data", str(store_log)]) == 2
    assert "the runs read different rewards or episodes in the data" in capsys.readouterr().err


def test_select_with_data_asks_only_whether_the_returns_compare(
    store_log: Path, no_training, capsys, monkeypatch
) -> None:
    """The same, without models: the estimates are made up."""
    runs = [str(store_log.parent / name) for name in ("one", "two")]
    for path, ignored in zip(runs, ("obs_c*,density", "obs_c*"), strict=True):
        obs = ["--obs", "obs_stock"] if ignored == "obs_c*" else ["--obs", "obs_stock,date"]
        requested(store_log, *STORES[:4], *obs, "--algo", "bc").train(path, SILENT)
        Run(path).write("result", {})
    returns = {runs[0]: 2.0, runs[1]: 2.0}

    def estimate(run: str, data: str | None, **_: Any) -> RunEstimates:
        found = ReturnEstimate("fitted Q", len(run), 0.0, 1.0, "mode", {}, [])
        return RunEstimates(Path(run), str(data), 0.9, 0.9, 40, [found], {}, returns[run], None)

    monkeypatch.setattr(estimate_run, "estimate_return", estimate)
    select = ["select", *runs, "--by", "fitted-q", "--quiet", "--json"]
    assert main(select) == 2
    assert (
        "different data, so their returns do not compare: name one dataset for all with --data"
        in capsys.readouterr().err
    )
    assert main([*select, "--data", str(store_log)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["data"] for one in found["estimates"]] == [str(store_log)] * 2
    returns[runs[1]] = 3.0
    assert main([*select, "--data", str(store_log)]) == 2
    assert f"whose own return is 2 for {runs[0]} and 3 for {runs[1]}" in capsys.readouterr().err
