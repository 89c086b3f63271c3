"""A user's own table through the commands: checked, described, converted, trained on, resumed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import pspo as library
from pspo.cli.main import _parser, main
from pspo.cli.train import train_request
from pspo.core.errors import UserError
from pspo.experiments.jobs import Job
from pspo.report.run.contents import read_contents
from pspo.report.run.reproduce import command
from pspo.runs.dataset import own_dataset
from pspo.runs.directory import Run
from pspo.training import train as training
from pspo.training.monitor import SILENT
from tests.cli.command_line import TINY, settings

ROLES = ["--obs", "x*", "--action", "u", "--reward", "gain", "--episode", "id", "--terminal", "over"]


@pytest.fixture(scope="module")
def log() -> library.Dataset:
    return library.load_dataset("liquidation", size=3000)


@pytest.fixture(scope="module")
def table(log: library.Dataset, tmp_path_factory) -> Path:
    """The liquidation data as in a spreadsheet: other names, and no next states."""
    path = tmp_path_factory.mktemp("own") / "log.csv"
    columns = {f"x{d}": log.obs[:, d] for d in range(3)} | {"u": log.action[:, 0], "gain": log.reward}
    columns |= {"id": np.cumsum(np.append(0, log.episode_end[:-1])), "over": log.terminal}
    pyarrow.csv.write_csv(pa.table(columns), path)
    return path


@pytest.fixture
def columns() -> dict[str, str]:
    return {"obs": "x*", "action": "u", "reward": "gain", "episode": "id", "terminal": "over"}


@pytest.fixture
def no_training(monkeypatch) -> list[library.Dataset]:
    """Runs are started and resumed without training; the data that they would train on are collected."""
    seen = []

    def note(run: Run, module: object, config: object, data: library.Dataset, *_: object) -> Run:
        seen.append(data)
        return run

    monkeypatch.setattr(training, "_work", note)
    return seen


def test_resume_reads_the_data_with_the_columns_of_training(table: Path, tmp_path: Path, no_training, columns) -> None:
    run = library.train(table, out=tmp_path / "run", columns=columns, monitor=SILENT)
    assert run.read("config")["columns"] == {role: [pattern] for role, pattern in columns.items()}
    library.resume(run.path)
    assert no_training[0].hash == no_training[1].hash
    assert "--obs 'x*' --action u" in " ".join(command(read_contents(run.path)))


def test_resume_uses_the_task_of_training(table: Path, tmp_path: Path, no_training, columns) -> None:
    run = library.train(table, out=tmp_path / "run", columns=columns, task="liquidation")
    library.resume(run.path)
    assert [data.task for data in no_training] == ["liquidation", "liquidation"]
    assert no_training[0].hash == no_training[1].hash
    assert "--task liquidation" in " ".join(command(read_contents(run.path)))


def test_a_mapped_table_in_memory_is_resumed_from_memory(table: Path, tmp_path: Path, no_training, columns) -> None:
    frame = pyarrow.csv.read_csv(table)
    run = library.train(frame, out=tmp_path / "run", columns=columns)
    library.resume(run.path, frame)
    library.resume(run.path, library.load_dataset(frame, columns=columns))
    assert len({data.hash for data in no_training}) == 1
    assert len(no_training) == 3


def test_the_columns_of_the_command_line_reach_the_workers(table: Path) -> None:
    words = ["train", str(table), *ROLES, "--next-obs", "y1,y2", "--timeout", "cut", "--task", "hopper", "--seeds", "2"]
    request = train_request(_parser().parse_args(words), {})
    assert request.columns is not None
    assert request.columns["obs"] == ["x*"]
    assert request.columns["next_obs"] == ["y1", "y2"]
    assert request.task == "hopper"
    assert Job.from_json(Job("seed 0", request, Path("out")).to_json()).request == request


def test_check_and_info(table: Path, capsys) -> None:
    for check in (["check"], ["data", "check"]):
        assert main([*check, str(table), *ROLES]) == 0
        printed = capsys.readouterr().out
        assert "warning: next states that were missing" in printed
        assert "2999 transitions: 0 errors" in printed
    assert main(["data", "info", str(table), *ROLES, "--task", "liquidation"]) == 0
    printed = capsys.readouterr().out
    assert "transitions        2999" in printed
    assert "without_next_state" in printed
    assert "task               liquidation" in printed
    assert "note               next states that were missing" in printed


@pytest.mark.parametrize("suffix", [".npz", ".hdf5", ".parquet", ".csv"])
def test_convert_keeps_the_hash(table: Path, tmp_path: Path, capsys, columns, suffix: str) -> None:
    out = tmp_path / f"other{suffix}"
    assert main(["data", "convert", str(table), str(out), *ROLES]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{out}\n"
    assert "pspo: note: next states that were missing" in printed.err
    assert library.load_dataset(out).hash == library.load_dataset(table, columns=columns).hash


def test_convert_reports_what_a_csv_cannot_keep(tmp_path: Path, capsys) -> None:
    made = tmp_path / "made.parquet"
    assert main(["data", "make", "liquidation", "--size", "500", "--out", str(made)]) == 0
    assert main(["data", "convert", str(made), str(tmp_path / "out.csv")]) == 0
    assert "pspo: note: a CSV names no task: read it with --task liquidation.\n" in capsys.readouterr().err
    back = library.load_dataset(tmp_path / "out.csv", task="liquidation")
    assert back.hash == library.load_dataset("liquidation", size=500).hash


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "TABLE"], "no column is known to be the obs among 'x0', 'x1', 'x2', 'u'"),
        (["train", "TABLE", *ROLES[2:], "--obs", "y*"], "no column fits 'y*' (obs)"),
        (["train", "TABLE", *ROLES, "--task", "hoper"], "did you mean 'hopper'"),
        (["train", "liquidation", "--obs", "x"], "leave them out"),
        (["data", "convert", "TABLE", "OUT.xls", *ROLES], "ends in .npz"),
        (["data", "convert", "TABLE", "OUT/nowhere.npz", *ROLES], "cannot write"),
        (["data", "info", "minari:none-v0"], "minari download none-v0"),
        (["data", "info", "hopper-medum"], "did you mean 'hopper-medium"),
    ],
)
def test_a_wrong_column_or_file_is_named_and_nothing_is_written(
    words: list[str], message: str, table: Path, tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path.parent / "minari"))
    words = [word.replace("TABLE", str(table)) for word in words]
    assert main([*words, *(["--quiet"] if words[0] == "train" else [])]) == 2
    printed = capsys.readouterr().err.strip()
    assert message in printed
    assert printed.startswith("pspo: ")
    assert "\n" not in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_data_of_single_decisions_can_be_trained_on(tmp_path: Path) -> None:
    """Every transition is terminal and has no next state: there are only rewards to learn."""
    rng = np.random.default_rng(0)
    state, action = rng.normal(size=(400, 2)), rng.uniform(-1, 1, size=400)
    columns = {"obs_0": state[:, 0], "obs_1": state[:, 1], "action": action, "reward": -((action - 0.3) ** 2)}
    pyarrow.csv.write_csv(pa.table(columns | {"terminal": np.ones(400, bool)}), tmp_path / "bandit.csv")
    small = settings(steps=20, chunk=20)
    assert main(["train", str(tmp_path / "bandit.csv"), *TINY, *small, "--out", str(tmp_path / "run")]) == 0
    assert json.loads((tmp_path / "run" / "models.json").read_text())["termination"] == "always"


def test_check_says_of_one_row_what_train_says_and_no_folder_is_left(tmp_path: Path, capsys) -> None:
    table = tmp_path / "one.csv"
    table.write_text("obs_x,action,reward,terminal\n1,0.5,2,1\n")
    assert main(["check", str(table)]) == 2
    reason = "there is one transition, and one has to be held out: give at least two"
    assert reason in capsys.readouterr().out
    assert main(["train", str(table), "--out", str(tmp_path / "run")]) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_run_that_is_refused_while_it_prepares_leaves_nothing(
    table: Path, tmp_path: Path, columns, monkeypatch
) -> None:
    def refuse(run: Run, *_: object) -> None:
        run.write("models", {})
        raise library.UserError("no")

    monkeypatch.setattr(training, "_work", refuse)
    with pytest.raises(library.UserError, match="no"):
        training.train(table, "bc", preset="smoke", columns=columns, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_on_a_folder_remembers_time_map_and_holdout(table: Path, tmp_path: Path, no_training) -> None:
    """Files in pieces and unsorted, columns from the map beside them: all are read alike by later commands."""
    rows = pyarrow.csv.read_csv(table)
    rows = rows.append_column("t", pa.array(np.arange(rows.num_rows)))
    (tmp_path / "logs").mkdir()
    for number, part in enumerate(np.array_split(np.random.default_rng(0).permutation(rows.num_rows), 3)):
        pyarrow.csv.write_csv(rows.take(part), tmp_path / "logs" / f"{number}.csv")
    roles = "obs = 'x*'\naction = 'u'\nreward = 'gain'\nepisode = 'id'\nterminal = 'over'\ntime = 't'\n"
    (tmp_path / "logs.toml").write_text(f"[columns]\n{roles}")

    out = tmp_path / "run"
    run = library.train(tmp_path / "logs", holdout=0.3, out=out)
    assert run.read("config")["columns"]["time"] == ["t"]
    assert run.read("config")["holdout"] == {"fraction": 0.3, "by": "time"}
    (tmp_path / "logs.toml").unlink()  # the run knows by itself
    library.resume(out)
    training, again = no_training
    assert training.hash == again.hash == run.read("manifest")["data_hash"]
    held_out = own_dataset(run, "holdout")
    assert held_out.size + training.size == rows.num_rows - 1  # nothing follows the last row
    assert held_out.hash == run.read("manifest")["holdout_hash"]
    assert training.obs_names == ("x0", "x1", "x2")
    words = " ".join(command(read_contents(out)))
    assert "--time t" in words
    assert "--holdout 0.3 --holdout-by time" in words
    pyarrow.csv.write_csv(rows.slice(0, 100), tmp_path / "logs" / "0.csv")
    with pytest.raises(UserError, match="have changed since it was started"):
        library.resume(out)


def test_bounds_of_a_named_dataset_are_remembered(tmp_path: Path, no_training) -> None:
    run = library.train("liquidation", out=tmp_path / "run", columns={"action_low": -2, "action_high": 2})
    library.resume(run.path)
    assert [data.action_high.tolist() for data in no_training] == [[2.0], [2.0]]
    assert "--action-low -2 --action-high 2" in " ".join(command(read_contents(run.path)))
    with pytest.raises(UserError, match="2 numbers where the action has 1 columns"):
        library.load_dataset("liquidation", columns={"action_low": [-2, -1], "action_high": 2})


@pytest.mark.parametrize("given", ["log.csv", ".", "*.csv", "log.csv,more.csv"])
def test_convert_does_not_replace_what_it_reads(given: str, table: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    """Its numbers are rounded to float32, and its columns have other names."""
    content = table.read_bytes()
    for name in ("log.csv", "more.csv"):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "link.csv").hardlink_to(tmp_path / "more.csv")
    monkeypatch.chdir(tmp_path)
    for target in ("log.csv",) if given == "log.csv" else ("log.csv", "link.csv"):
        assert main(["data", "convert", given, target, *ROLES]) == 2
        assert f"'{target}' is what is to be converted, and would be lost" in capsys.readouterr().err
    assert (tmp_path / "log.csv").read_bytes() == (tmp_path / "more.csv").read_bytes() == content
