"""A clock that is set back by days or forward by years in the middle of a run changes nothing."""

from __future__ import annotations

import ast
import itertools
import json
import re
import time
from pathlib import Path

import pytest

import pspo
from pspo.cli.main import main
from tests.robustness.training_process import TRAIN, outcome

DAY = 86_400.0
JUMPS = (0.0, -3 * DAY, 4000 * DAY, -1.0, -4000 * DAY, 0.5)


def test_a_jumping_clock_changes_no_bit_of_a_run(whole: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    run, jumps, real = tmp_path / "run", itertools.cycle(JUMPS), time.time
    words = [word for word in TRAIN if word != "--quiet"]  # lines with speeds
    begun = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: real() + next(jumps))
        patch.setattr(time, "time_ns", lambda: int(1e9 * (real() + next(jumps))))
        assert main([*words, "--out", str(run)]) == 0
    took = time.monotonic() - begun
    assert outcome(run) == outcome(whole)
    timings = json.loads((run / "manifest.json").read_text())["timings"]
    assert set(timings) == {"prepare", "train", "evaluate"}
    assert all(0 <= seconds <= took for seconds in timings.values())
    assert 0 <= json.loads((run / "result.json").read_text())["seconds"] <= took + 0.1
    output = capsys.readouterr().err
    assert "training: 4000/4000" in output
    assert not re.search(r"-\d+/s", output)


FORBIDDEN = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("date", "today")}
SOURCES = sorted(Path(pspo.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("name", ["time", "datetime"])
def test_no_module_asks_for_the_time_of_day(name: str) -> None:
    """Seconds come from monotonic clocks; results contain no date."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in FORBIDDEN, f"{path.name}:{node.lineno}"
            if isinstance(node, ast.ImportFrom) and node.module == name:
                assert not {alias.name for alias in node.names} & {"time", "time_ns", "datetime", "date"}, path.name
