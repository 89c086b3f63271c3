"""Jobs as processes on this machine, each pinned to its own cores. Workers end when their parent does.

python -m pspo.experiments.backends.processes PARENT CORES JOB      (a worker; JOB is JSON, and so is what it prints)
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from pspo.core.compute import cores
from pspo.experiments.jobs import Job, JobOutcome, execute

PARENT_CHECK_SECONDS = 0.5
TAIL = 20_000  # bytes of a worker's output that are read


@dataclass
class Worker:
    process: subprocess.Popen[bytes]
    cores: list[int]
    report: IO[bytes]
    errors: IO[bytes]


class ProcessBackend:
    """As many jobs at once as cores allow, or `at_once`."""

    remote = False
    shares_cache = True

    def __init__(self, threads: int = 1, at_once: int | None = None) -> None:
        self.free = _core_numbers()
        self.at_once = at_once or max(1, cores() // threads)

    def __enter__(self) -> ProcessBackend:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def has_room(self, running: int) -> bool:
        return running < self.at_once

    def check(self, jobs: Sequence[Job]) -> None:
        """Workers see what this process sees."""

    def start(self, job: Job) -> Worker:
        pinned = self.free[: job.threads] if len(self.free) >= job.threads else []  # more workers than cores: unpinned
        self.free = [core for core in self.free if core not in pinned]
        listed = ",".join(map(str, pinned)) or "-"
        words = [sys.executable, "-m", "pspo.experiments.backends.processes", str(os.getpid()), listed, job.to_json()]
        report, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (closed when it has ended)
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=report, stderr=errors)
        return Worker(process, pinned, report, errors)

    def poll(self, handle: Worker) -> JobOutcome | None:
        code = handle.process.poll()
        if code is None:
            return None
        self._release(handle)
        return _outcome(code, _tail(handle.report), _tail(handle.errors))

    def stop(self, handle: Worker) -> None:
        handle.process.terminate()
        try:
            handle.process.wait(10)
        except subprocess.TimeoutExpired:
            handle.process.kill()
            handle.process.wait()
        self._release(handle)
        handle.report.close()
        handle.errors.close()

    def _release(self, handle: Worker) -> None:
        self.free, handle.cores = sorted([*self.free, *handle.cores]), []


def _core_numbers() -> list[int]:
    """Cores to pin workers to; none where the system cannot pin."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _tail(file: IO[bytes]) -> str:
    with file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - TAIL))
        return file.read().decode(errors="replace")


def _outcome(code: int, report: str, errors: str) -> JobOutcome:
    """What a worker reported; of one that crashed or was killed, its exit code and the last line of its errors."""
    with contextlib.suppress(ValueError, TypeError):
        outcome = JobOutcome(**json.loads(last_line(report)))
        if outcome.code == code:
            return outcome
    return JobOutcome(code, last_line(errors))


def last_line(text: str) -> str:
    """Of a traceback this is the error itself."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _exit_with(parent: int) -> None:
    """End this process when its parent has: a repeated command must not find its runs being written."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_SECONDS)
    os._exit(1)


def main(words: list[str]) -> int:
    """A worker: run one job, print the outcome as JSON, return its exit code."""
    parent, pinned, job = int(words[0]), words[1], Job.from_json(words[2])
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()
    if pinned != "-":
        os.sched_setaffinity(0, {int(core) for core in pinned.split(",")})
    with contextlib.redirect_stdout(sys.stderr):
        outcome = execute(job)
    print(json.dumps(dataclasses.asdict(outcome)), flush=True)
    return outcome.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
