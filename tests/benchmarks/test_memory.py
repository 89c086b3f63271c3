"""`python -m benchmarks.memory`: what it trains on, and what it keeps. Nothing is trained here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

from benchmarks import memory
from pspo.data import load_dataset


def test_it_trains_on_a_file_of_halfcheetahs_size(monkeypatch, tmp_path: Path, capsys) -> None:
    seen = []

    def run(command: list[str], check: bool, cwd: str) -> None:
        assert check
        assert command[:4] == [sys.executable, "-m", "pspo", "train"]
        data = load_dataset(Path(cwd) / command[4], task="halfcheetah")
        seen.append((data.size, data.obs_dim, data.action_dim, len(data.episode_starts)))

    monkeypatch.setattr(memory, "subprocess", SimpleNamespace(run=run))
    memory.main(3000, tmp_path)
    assert seen == [(3000, 17, 6, 3)]
    kept = json.loads((tmp_path / "memory.json").read_text())
    assert kept["command"].startswith("pspo train halfcheetah.hdf5 --task halfcheetah")
    assert (kept["rows"], kept["array_bytes"]) == (3000, 3000 * (4 * (2 * 17 + 6 + 1) + 2))
    assert kept["peak_bytes"] > 0
    assert "3,000 transitions" in capsys.readouterr().out
