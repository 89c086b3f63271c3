"""A small grid through the command line: BC on liquidation, long enough to be killed in its middle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SETTINGS = {"steps": 4000, "chunk": 20, "evaluate_every": 2000, "evaluate_episodes": 100}
GRID = ["experiment", "table2", "--preset", "smoke", "--methods", "bc", "--seeds", "2", "--episodes", "200", "--quiet"]
GRID += [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]


def start(out: Path, *more: object, grid: list[str] | None = None) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "pspo", *(grid or GRID), "--out", str(out), *map(str, more)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))


def finish(process: subprocess.Popen[str], timeout: float = 300) -> tuple[int, str, str]:
    said, complained = process.communicate(timeout=timeout)
    return process.returncode, said, complained


def wait_for(what: Callable[[], Any], process: subprocess.Popen[str]) -> Any:
    """What it gives once it is true; the grid must not end before."""
    until = time.monotonic() + 240
    while time.monotonic() < until:
        if found := what():
            return found
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    raise AssertionError("it never came to that")


def checkpointed(out: Path) -> list[Path]:
    """Runs in their middle: begun, saved once, not finished."""
    runs = [path.parents[1] for path in out.glob("runs/*/*/*/checkpoints/[0-9]*.safetensors")]
    return [run for run in dict.fromkeys(runs) if not (run / "result.json").exists()]


def outcome(out: Path) -> dict[str, Any]:
    """Scores and the bits of the policies, which must not depend on where and how often the grid was begun."""
    results = json.loads((out / "table2" / "results.json").read_text())
    scores = {record["seed"]: record["result"]["score"] for record in results["records"]}
    policies = {path.parent.name: path.read_bytes() for path in out.glob("runs/*/*/*/policy.safetensors")}
    return {"scores": scores, "policies": policies}
