"""`python -m benchmarks.own_files`: the table it makes, and what it keeps of the runs it starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import own_files
from pspo.data import load_dataset

pytest.importorskip("pyarrow", reason="needs the extra that reads Parquet")


@pytest.mark.parametrize("ending", own_files.FORMATS)
def test_the_table_is_the_dataset_without_next_states(ending: str, tmp_path: Path) -> None:
    own_files.write_table(tmp_path / f"log.{ending}")
    columns = {"obs": "time,inventory,price", "action": "sell"}
    found, log = load_dataset(tmp_path / f"log.{ending}", columns), load_dataset("liquidation")
    assert found.task is None
    last = np.zeros(log.size, bool)
    last[log.episode_starts + log.episode_lengths() - 1] = True
    kept = log.terminal | ~last  # where the dataset was cut off, what followed is unknown: such a row says nothing
    np.testing.assert_allclose(found.obs, log.obs[kept], rtol=1e-6)
    np.testing.assert_allclose(found.reward, log.reward[kept], rtol=1e-6)
    np.testing.assert_array_equal(found.terminal, log.terminal[kept])
    np.testing.assert_array_equal(found.next_known, ~last[kept])


def test_what_is_run_and_kept(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(own_files, "write_table", lambda path: None)
    started: list[list[str]] = []

    def run(command: list[str], **_) -> SimpleNamespace:
        started.append(command[3:])
        if "--out" in command:
            out = Path(command[command.index("--out") + 1])
            out.mkdir(parents=True)
            (out / "result.json").write_text(json.dumps({"dataset": "somewhere", "termination": "learned"}))
        return SimpleNamespace(stdout=json.dumps({"score_by_regret": 100.0 + len(started)}))

    monkeypatch.setattr(subprocess, "run", run)
    places = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    monkeypatch.setattr(sys, "argv", ["own_files", "csv", *places])
    own_files.main()
    assert [words[0] for words in started] == ["train", "evaluate"] * 2
    assert started[0][1:6] == [str(tmp_path / "runs" / "log.csv"), "--obs", "time,inventory,price", "--action", "sell"]
    assert "--task" not in started[0]  # nobody tells it what the data are
    assert started[1][1:4] == [str(tmp_path / "runs" / "csv-20"), "--task", "liquidation"]
    found = json.loads((tmp_path / "results" / "own-files-csv.json").read_text())
    assert found["seeds"] == [20, 21]
    assert found["score_by_regret"] == {"mean": 103.0, "each": [102.0, 104.0]}
    assert found["each"][0]["result"]["dataset"] == "log.csv"
    assert found["runs"].startswith("pspo train log.csv --obs time,inventory,price")
    assert "| csv | 103.00 | 102.00, 104.00 | learned |" in capsys.readouterr().out
