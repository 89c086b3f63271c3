"""The command `pspo collect`: it prints a summary, or one sentence and writes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pspo.cli.main import main
from pspo.collecting import collection
from tests.collecting.collecting_cases import policy_arrays

pytest.importorskip("mujoco", reason="needs the extra pspo[mujoco]")
pytest.importorskip("h5py", reason="needs h5py")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "p.npz", **policy_arrays())
    np.savez(tmp_path / "walker.npz", **policy_arrays() | {"w0": np.zeros((17, 5), np.float32)})
    return tmp_path


def test_the_summary_has_size_episodes_return_score_and_path(folder: Path, capsys) -> None:
    words = ["collect", "hopper-tiny", "--policy", "p.npz", "--transitions", "200", "--seed", "3"]
    assert main([*words, "--out", "a.hdf5"]) == 0
    output = capsys.readouterr()
    assert output.out.startswith("200 transitions, ")
    assert " episodes, mean return " in output.out
    assert output.out.endswith("): a.hdf5\n")
    assert "collecting: 200/200" in output.err
    assert main([*words, "--quiet"]) == 0  # by default the file has the name of the data
    output = capsys.readouterr()
    assert (output.err, output.out.endswith("): hopper-tiny.hdf5\n")) == ("", True)
    assert (folder / "hopper-tiny.hdf5").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hoper-random", "--transitions", "9"], "did you mean 'hopper'"),
        (["liquidation-random", "--transitions", "9"], "unknown task to collect on 'liquidation'"),
        (["hopper", "--transitions", "9"], "'hopper' has no label"),
        (["hopper-meduim", "--transitions", "9"], "without --policy, unknown label 'meduim': did you mean 'medium'?"),
        (["hopper-random"], "give --transitions N"),
        (["hopper-medium"], "give --transitions N"),
        (["hopper-random", "--transitions", "0"], "--transitions 0 is out of range"),
        (["hopper-x", "--policy", "p.npz", "--policy", "p.npz", "--transitions", "1"], "from 2 to"),
        (["hopper-random", "--transitions", "9", "--seed", "-1"], "--seed -1 is out of range"),
        (["hopper-random", "--transitions", "9", "--threads", "0"], "--threads 0 is out of range"),
        (["hopper-random", "--transitions", "9", "--out", "a.npz"], "ends in .hdf5"),
        (["hopper-random", "--transitions", "9", "--out", "no/a.hdf5"], "the folder 'no' does not exist"),
        (["hopper-random", "--transitions", "9", "--steps", "5"], "--steps and --set are for a learner"),
        (["hopper-x", "--policy", "p.npz", "--transitions", "9", "--set", "lr=1"], "are for a learner"),
        (["hopper-x", "--policy", "walker.npz", "--transitions", "9"], "walker.npz', 'w0' has shape (17, 5)"),
        (["walker2d-x", "--policy", "p.npz", "--transitions", "9"], "need (17, any)"),
        (["hopper-x", "--policy", "none.npz", "--transitions", "9"], "there is no file 'none.npz'"),
        (["hopper-medium", "--transitions", "9", "--steps", "10"], "--steps 10 is out of range"),
        (["hopper-medium", "--transitions", "9", "--set", "batches=1"], "did you mean 'batch'"),
        (["hopper-medium-replay", "--transitions", "9"], "leave --transitions out"),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_is_written(words, message, folder: Path, capsys) -> None:
    before = sorted(folder.iterdir())
    assert main(["collect", *words, "--quiet"]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.err.startswith("pspo: ")
    assert output.err.count("\n") == 1
    assert output.out == ""
    assert sorted(folder.iterdir()) == before


def test_an_interrupted_collection_says_how_to_resume(folder: Path, capsys, monkeypatch) -> None:
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(collection, "collect_episodes", interrupted)
    assert main(["collect", "hopper-random", "--transitions", "9", "--quiet"]) == 130
    assert "run the same command again" in capsys.readouterr().err
