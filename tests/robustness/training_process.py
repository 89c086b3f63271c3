"""A real training process that runs long enough to be interrupted, and the files that must not depend on that."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LONG = {"steps": 4000, "chunk": 20, "evaluate_every": 2000, "evaluate_episodes": 100}
SETTINGS = [word for key, value in LONG.items() for word in ("--set", f"{key}={value}")]
TRAIN = ["train", "liquidation", "--algo", "bc", "--preset", "smoke", "--episodes", "200", "--quiet", *SETTINGS]


@contextmanager
def started(*words: object) -> Iterator[subprocess.Popen[str]]:
    """`pspo WORDS` as a process that does not outlive the test."""
    command = [sys.executable, "-m", "pspo", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 240
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until, "the condition never became true"
        time.sleep(0.02)


def saved(run: Path) -> list[Path]:
    return sorted(run.glob("checkpoints/[0-9]*.safetensors"))


def outcome(run: Path) -> dict[str, bytes]:
    """Every file whose bits must not depend on interruptions."""
    names = ("policy.safetensors", "metrics.jsonl", "metrics.csv", "config.json")
    return {name: (run / name).read_bytes() for name in names}
