"""`python -m benchmarks.inference --quick` runs and keeps what it says. Nothing here looks at a clock."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import inference


def test_every_way_is_timed_and_set_beside_the_paper(tmp_path: Path, capsys) -> None:
    out = tmp_path / "deeper" / "inference.json"
    inference.main(["--quick", "--out", str(out)])
    found = json.loads(out.read_text())
    assert found["paper_milliseconds"] == 3.038
    assert {"onnx", "onnxruntime"} == found["libraries"].keys()
    (case,) = found["cases"].values()
    assert (case["obs"], case["actions"], case["layers"][0][1]) == (3, 1, 16)
    assert case["ways"].keys() == inference.WAYS.keys()
    for cost in case["ways"].values():
        each = cost["microseconds"]
        assert 0.0 < each["low"] <= each["median"] <= each["high"]
        assert cost["times_under_the_paper"] == pytest.approx(3038.0 / each["median"])
    assert "| liquidation smoke | onnxruntime |" in capsys.readouterr().out


def test_ways_take_turns() -> None:
    calls = []
    works = {name: lambda name=name: calls.append(name) for name in "ab"}
    found = inference.time_in_turns(works, rounds=3, calls=2)
    assert "".join(calls) == "aabb" + 3 * "aabb"  # once to warm up
    assert {name: each.shape for name, each in found.items()} == {"a": (3,), "b": (3,)}
    assert all(np.all(each > 0) for each in found.values())
