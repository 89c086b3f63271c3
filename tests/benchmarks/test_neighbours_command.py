"""`python -m benchmarks.neighbours`: what it searches, and what it keeps."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import neighbours
from pspo.data import load_dataset
from pspo.data.neighbours import neighbourhoods


def kept(words: list[str], results: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    monkeypatch.setattr(sys, "argv", ["neighbours", *words, "--results", str(results)])
    neighbours.main()
    (file,) = results.iterdir()
    return {"file": file.name} | json.loads(file.read_text())


def test_made_states_have_more_neighbours_in_a_larger_radius(monkeypatch, tmp_path: Path, capsys) -> None:
    found = kept(["--rows", "20000"], tmp_path / "results", monkeypatch)
    assert (found["file"], found["data"], found["rows"], found["columns"]) == ("neighbours.json", "made", 20_000, 17)
    assert found["command"] == "python -m benchmarks.neighbours --rows 20000"
    assert [one["epsilon"] for one in found["each"]] == [0.5, 1.0, 2.0]
    few, some, many = (one["others"] for one in found["each"])
    assert 0.0 <= few < some < many <= 49.0
    assert many > 5.0
    assert all(one["seconds"] > 0.0 for one in found["each"])
    assert f"| 2.0 | {many:.1f} |" in capsys.readouterr().out


def test_a_log_of_ones_own_is_searched_as_it_is(monkeypatch, tmp_path: Path) -> None:
    found = kept(["liquidation", "--rows", "500"], tmp_path / "results", monkeypatch)
    assert (found["file"], found["rows"], found["columns"]) == ("neighbours-liquidation.json", 500, 3)
    near, spacing = neighbourhoods(load_dataset("liquidation").obs[:500], 50, 1.0)
    assert (found["each"][1]["others"], found["each"][1]["spacing"]) == (near.others, spacing)


def test_made_states_wander_and_restart_with_each_episode() -> None:
    obs = neighbours.made_states(2500, 17).astype(np.float64)
    move = np.linalg.norm(np.diff(obs, axis=0), axis=1)
    jump = np.isin(np.arange(1, 2500), [1000, 2000])
    assert move[jump].min() > 2.0 * np.median(move[~jump])
