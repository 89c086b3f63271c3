"""`python -m benchmarks.beyond_memory --rows ...`: what it writes, trains and keeps. Nothing here looks at a clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import beyond_memory
from pspo.data import load_dataset

ROWS, GIB = 2000, 0.001  # less than the arrays take, more than one number per row does


@pytest.fixture
def _in_this_process(monkeypatch) -> None:
    """With the fastest algorithm, in small batches: JAX is imported already."""
    monkeypatch.setattr(beyond_memory, "ALGORITHMS", ("bc",))

    def work(gib: float, what: str, path: Path, *numbers: int) -> dict[str, Any]:
        monkeypatch.setenv("PSPO_MEMORY", str(gib))
        function = {"train": beyond_memory.train_within, "rates": beyond_memory.rates}[what]
        return json.loads(json.dumps(function(path, *numbers)))

    monkeypatch.setattr(beyond_memory, "_in_process", work)


@pytest.mark.usefixtures("_in_this_process")
def test_it_trains_from_the_file_and_keeps_what_it_measured(tmp_path: Path, capsys) -> None:
    beyond_memory.main(ROWS, GIB, steps=4, chunk=2, rounds=1, results=tmp_path)
    kept = json.loads((tmp_path / "beyond-memory.json").read_text())
    assert (kept["rows"], kept["columns"], kept["allowed_gib"]) == (ROWS, [17, 3], GIB)
    assert kept["file_bytes"] > ROWS * (4 * (2 * 17 + 3 + 1) + 2)
    assert kept["in_file"]
    assert kept["peak_bytes"] > 0
    (found,) = kept["rates"].values()
    assert found["same_bits"]
    each = found["iterations_per_second"]
    assert found["ratio"] == pytest.approx(each["file"] / each["memory"])
    for times in ("seconds_per_chunk", "processor_seconds_per_chunk"):
        assert {name: len(seconds) for name, seconds in found[times].items()} == {"memory": 1, "file": 1}
    assert f"{ROWS:,} transitions" in capsys.readouterr().out


def test_pieces_make_one_dataset(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(beyond_memory, "PIECE", 300)
    beyond_memory.write(tmp_path / "noise.hdf5", ROWS)
    data = load_dataset(tmp_path / "noise.hdf5")
    assert (data.size, data.obs_dim, data.action_dim, len(data.episode_starts)) == (ROWS, 17, 3, 2)
    np.testing.assert_array_equal(data.next_obs, data.obs + np.float32(0.1))
    np.testing.assert_array_equal(data.reward, data.obs[:, 0])
    assert data.action.std() > 0.5
