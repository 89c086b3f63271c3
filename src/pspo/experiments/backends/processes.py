"""Jobs as processes of this machine, each pinned to cores of its own and gone when its parent is.

python -m pspo.experiments.backends.processes PARENT CORES WORD ...      (what a worker is)
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import IO

from pspo.core.compute import cores
from pspo.experiments.jobs import Ended, Job

WATCH_SECONDS = 0.5
LAST_WORDS = 20_000  # characters of a worker's output that are looked at


@dataclass
class Worker:
    process: subprocess.Popen[bytes]
    cores: list[int]
    said: IO[bytes]


class Processes:
    """As many at once as cores allow; `at_once` says fewer or more."""

    def __init__(self, threads: int = 1, at_once: int | None = None) -> None:
        self.free = _core_numbers()
        self.at_once = at_once or max(1, cores() // threads)

    def room(self, running: int) -> bool:
        return running < self.at_once

    def start(self, job: Job) -> Worker:
        pinned = self.free[: job.threads] if len(self.free) >= job.threads else []  # more workers than cores: unpinned
        self.free = [core for core in self.free if core not in pinned]
        said = tempfile.TemporaryFile()  # noqa: SIM115 (closed when the worker has ended)
        listed = ",".join(map(str, pinned)) or "-"
        words = [sys.executable, "-m", "pspo.experiments.backends.processes", str(os.getpid()), listed, *job.words()]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said)
        return Worker(process, pinned, said)

    def ended(self, handle: Worker) -> Ended | None:
        code = handle.process.poll()
        if code is None:
            return None
        self._release(handle)
        return Ended(code, last_line(_read(handle.said)))

    def stop(self, handle: Worker) -> None:
        handle.process.terminate()
        try:
            handle.process.wait(10)
        except subprocess.TimeoutExpired:
            handle.process.kill()
            handle.process.wait()
        self._release(handle)
        handle.said.close()

    def _release(self, handle: Worker) -> None:
        self.free, handle.cores = sorted([*self.free, *handle.cores]), []


def _core_numbers() -> list[int]:
    """Cores to pin to; none where the system has no such thing."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _read(file: IO[bytes]) -> str:
    with file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - LAST_WORDS))
        return file.read().decode(errors="replace")


def last_line(said: str) -> str:
    """What a command says last is what is wrong."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1].removeprefix("pspo: ") if lines else ""


def _end_with(parent: int) -> None:
    """A grid that is killed leaves no worker behind: the next one would find its runs being written."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(1)


def main(words: list[str]) -> int:
    parent, pinned, command = int(words[0]), words[1], words[2:]
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if pinned != "-":
        os.sched_setaffinity(0, {int(core) for core in pinned.split(",")})
    from pspo.cli.main import main as pspo

    return pspo(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
