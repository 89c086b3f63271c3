"""Bad input through the command line: one sentence, exit code 2, nothing half-written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pspo.cli.main import main
from pspo.experiments import ExperimentRequest, train_seeds
from pspo.training.request import TrainRequest
from pspo.training.train import train
from tests.cli.command_line import TINY, pspo
from tests.refusals import message_of, one_sentence


def rows(n: int = 200, **changes) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = {
        "observations": rng.normal(size=(n, 2)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (n, 1)).astype(np.float32),
        "rewards": rng.normal(size=n).astype(np.float32),
        "next_observations": rng.normal(size=(n, 2)).astype(np.float32),
        "terminals": np.arange(n) % 10 == 9,
    }
    return arrays | changes


def with_nan(n: int = 200) -> np.ndarray:
    reward = np.zeros(n, np.float32)
    reward[17] = np.nan
    return reward


@pytest.mark.parametrize(
    "words",
    [
        ["train", "liquidation", "--preset", "smoke"],
        ["train", "liquidation", "--preset", "smoke", "--seeds", "2"],
        ["data", "make", "liquidation", "--size", "50"],
        ["collect", "hopper-random", "--transitions", "50"],
        ["experiment", "table2", "--preset", "smoke", "--dry-run"],
        ["report", "."],
        ["inspect", ".", "--row", "0"],
    ],
)
def test_an_empty_path_is_refused(words, tmp_path: Path, capsys, monkeypatch) -> None:
    """As from a shell's unset variable: it counted as not given, and files went to the default place."""
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--out", ""]) == 2
    one_sentence(capsys.readouterr().err, "the path to write to is empty")
    assert not list(tmp_path.iterdir())


def test_an_empty_path_is_refused_from_python(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    request = TrainRequest("liquidation", "bc", "smoke")
    message_of(train, "liquidation", "bc", "smoke", out="", naming="the path to write to is empty")
    message_of(train_seeds, request, seeds=1, out=" ", naming="the path to write to is empty")
    message_of(ExperimentRequest, "table2", out="", naming="the path to write to is empty")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["liquidatoin"], "did you mean 'liquidation'"),
        (["liquidation", "--algo", "psop"], "did you mean 'pspo'"),
        (["liquidation", "--preset", "labtop"], "did you mean 'laptop'"),
        (["liquidation", "--set", "bata=1"], "did you mean 'beta'"),
        (["liquidation", "--set", "modle.width=8"], "did you mean 'model.width'"),
        (["liquidation", "--set", "gamma=1.5"], "gamma=1.5 is out of range"),
        (["liquidation", "--set", "gamma=nan"], "gamma=nan is not a number"),
        (["liquidation", "--set", "steps=ten"], "steps=ten is not a whole number"),
        (["liquidation", "--set", "posterior=magic"], "not one of consistency, uniform"),
        (["liquidation", "--set", "beta"], "--set takes key=value"),
        (["liquidation", "--task", ""], "the name of the task is empty"),
        (["liquidation", "--seed", "-1"], "seed=-1 is out of range"),
        (["liquidation", "--seeds", "0"], "--seeds 0 is out of range"),
        (["liquidation", "--seeds", "99999999999"], "--seeds 99999999999 is out of range: at most 10000"),
        (["liquidation", "--seeds", "2", "--seed", "2147483647"], "seed=2147483648 is out of range"),
        (["liquidation", "--episodes", "0"], "episodes=0 is out of range"),
        (["liquidation", "--episodes", "0", "--seeds", "2"], "episodes=0 is out of range"),
        (["liquidation", "--episodes", "-1", "--dry-run"], "episodes=-1 is out of range"),
        (["liquidation", "--threads", "0"], "--threads 0 is out of range"),
        (["no-such-file.npz"], "no-such-file.npz"),
    ],
)
def test_a_wrong_option_is_named_and_nothing_is_written(words, message, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *words, "--out", str(tmp_path / "run"), "--quiet"]) == 2
    assert message in one_sentence(capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (rows(rewards=with_nan()), "17"),
        (rows(actions=np.zeros((150, 1), np.float32)), "150"),
        (rows(actions=np.full((200, 1), np.inf, np.float32)), "action"),
    ],
)
def test_bad_data_are_refused(arrays, message, tmp_path: Path, capsys) -> None:
    np.savez(tmp_path / "log.npz", **arrays)
    assert main(["train", str(tmp_path / "log.npz"), "--out", str(tmp_path / "run"), "--quiet"]) == 2
    assert message in one_sentence(capsys.readouterr().err)
    assert not (tmp_path / "run").exists()
    assert main(["check", str(tmp_path / "log.npz")]) == 2


def test_an_output_directory_that_cannot_be_created_is_named(capsys) -> None:
    assert main(["train", "liquidation", *TINY, "--out", "/proc/nowhere/run"]) == 2
    assert "/proc/nowhere/run" in one_sentence(capsys.readouterr().err)


def test_an_output_directory_in_use_is_left_alone(tmp_path: Path, capsys) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["train", "liquidation", *TINY, "--out", str(tmp_path)]) == 2
    assert "exists already" in one_sentence(capsys.readouterr().err)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.slow  # tests/robustness fills disks for less
def test_a_run_stopped_by_a_full_disk_resumes_to_the_same_policy(tmp_path: Path) -> None:
    """Writes fail during the run; once there is room again, the run is resumed."""
    run, limit = tmp_path / "run", 10_000  # bytes per file: too few for a checkpoint of these networks
    quick = ["liquidation", "--algo", "bc", *TINY]  # the same files as any other algorithm, and quickly
    words = ["train", *quick, "--out", run]
    pspo("train", *quick, "--out", tmp_path / "warm")  # programs are cached
    code = f"import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
    code += "from pspo.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *map(str, words)]
    full = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert full.returncode == 2, full.stderr
    assert "cannot" in one_sentence(full.stderr)
    assert not list(run.rglob(".*")), "no temporary file is left"
    assert not (run / "result.json").exists()
    done = pspo("resume", run, "--quiet")
    assert done.returncode == 0, done.stderr
    assert (run / "policy.safetensors").read_bytes() == (tmp_path / "warm" / "policy.safetensors").read_bytes()


@pytest.mark.parametrize("command", ["resume", "evaluate", "report"])
def test_a_directory_that_is_not_a_run_is_refused(command: str, tmp_path: Path, capsys) -> None:
    assert main([command, str(tmp_path)]) == 2
    one_sentence(capsys.readouterr().err)


@pytest.mark.parametrize("seeds", [[], ["--seeds", "2"]])
def test_the_old_name_of_a_setting_is_one_warning_without_a_file_name(seeds, tmp_path: Path, capsys) -> None:
    settings = ["--set", "critic_rate=1e-3", "--set", "steps=none"]
    assert main(["train", "liquidation", "--algo", "td3bc", *settings, *seeds, "--out", str(tmp_path / "run")]) == 2
    warning, error = capsys.readouterr().err.splitlines()
    assert warning == "pspo: warning: critic_rate is now called critic_lr; the old name works until version 0.3."
    assert error == "pspo: error: steps=none is not a whole number."
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_command_exits_with_2(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["trian"])
    assert stop.value.code == 2
    message = one_sentence(capsys.readouterr().err)
    assert "invalid choice: 'trian'" in message
    assert message.endswith("`pspo --help` shows the options.")


def test_a_mistake_in_the_options_looks_like_any_other_error(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "liquidation", "--seed", "one"])
    assert stop.value.code == 2
    error = "pspo: error: argument --seed: invalid int value: 'one': `pspo train --help` shows the options.\n"
    assert capsys.readouterr().err == error
