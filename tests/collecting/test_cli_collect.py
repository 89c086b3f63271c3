"""`pspo collect` as a user types it: a summary line, or one sentence and nothing written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pspo.cli.main import main
from pspo.collecting import collect as collecting
from tests.collecting.collecting_cases import policy_arrays

pytest.importorskip("mujoco", reason="needs the extra pspo[mujoco]")
pytest.importorskip("h5py", reason="needs h5py")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "p.npz", **policy_arrays())
    np.savez(tmp_path / "walker.npz", **policy_arrays() | {"w0": np.zeros((17, 5), np.float32)})
    return tmp_path


def test_the_summary_says_rows_episodes_return_score_and_path(folder: Path, capsys) -> None:
    words = ["collect", "hopper-tiny", "--policy", "p.npz", "--transitions", "200", "--seed", "3"]
    assert main([*words, "--out", "a.hdf5"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("200 transitions, ")
    assert " episodes, mean return " in said.out
    assert said.out.endswith("): a.hdf5\n")
    assert "collecting: 200/200" in said.err
    assert main([*words, "--quiet"]) == 0  # the name of the file defaults to that of the data
    said = capsys.readouterr()
    assert (said.err, said.out.endswith("): hopper-tiny.hdf5\n")) == ("", True)
    assert (folder / "hopper-tiny.hdf5").exists()


@pytest.mark.parametrize(
    ("words", "says"),
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
        (["hopper-x", "--policy", "p.npz", "--transitions", "9", "--set", "rate=1"], "are for a learner"),
        (["hopper-x", "--policy", "walker.npz", "--transitions", "9"], "walker.npz', 'w0' has shape (17, 5)"),
        (["walker2d-x", "--policy", "p.npz", "--transitions", "9"], "ask for (17, any)"),
        (["hopper-x", "--policy", "none.npz", "--transitions", "9"], "there is no file 'none.npz'"),
        (["hopper-medium", "--transitions", "9", "--steps", "10"], "--steps 10 is out of range"),
        (["hopper-medium", "--transitions", "9", "--set", "rat=1"], "did you mean 'rate'"),
        (["hopper-medium-replay", "--transitions", "9"], "leave --transitions out"),
    ],
)
def test_a_wrong_word_is_named_and_nothing_is_written(words, says, folder: Path, capsys) -> None:
    before = sorted(folder.iterdir())
    assert main(["collect", *words, "--quiet"]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert said.err.startswith("pspo: ")
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert sorted(folder.iterdir()) == before


def test_an_interrupted_collection_says_how_to_go_on(folder: Path, capsys, monkeypatch) -> None:
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(collecting, "collect_episodes", interrupted)
    assert main(["collect", "hopper-random", "--transitions", "9", "--quiet"]) == 130
    assert "the same command goes on" in capsys.readouterr().err
