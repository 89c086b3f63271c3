"""A small grid through the command line: BC on liquidation, long enough to be killed while it runs."""

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
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()  # or it would run beside the tests that follow
        raise
    return process.returncode, output, errors


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[str]) -> Any:
    """The first true value of `condition`; the grid must not end before."""
    until = time.monotonic() + 240
    while time.monotonic() < until:
        if value := condition():
            return value
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    raise AssertionError("the condition never became true")


def checkpointed(out: Path) -> list[Path]:
    """Runs that have a checkpoint and are not finished."""
    runs = [path.parents[1] for path in out.glob("runs/*/*/*/checkpoints/[0-9]*.safetensors")]
    return [run for run in dict.fromkeys(runs) if not (run / "result.json").exists()]


def outcome(out: Path) -> dict[str, Any]:
    """Scores and the bits of the policies, which must not depend on where and how often the grid was started."""
    results = json.loads((out / "table2" / "results.json").read_text())
    scores = {record["seed"]: record["result"]["score"] for record in results["records"]}
    policies = {path.parent.name: path.read_bytes() for path in out.glob("runs/*/*/*/policy.safetensors")}
    return {"scores": scores, "policies": policies}
