"""Many runs by few workers: what starts when, what is tried again, what is reported.

A backend only starts a job and says when it has ended; the rest is here, once for processes and for Ray.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pspo.runs.directory import Run

POLL_SECONDS = 0.5
TRIES = 3  # of a job whose worker dies under it; one that says what is wrong with it is not tried again


@dataclass(frozen=True)
class Job:
    """One run, to be trained or gone on with."""

    name: str
    run: Path
    train: list[str]
    """Words of `pspo train`, without the place to write to."""
    threads: int = 1
    options: tuple[str, ...] = ()
    """Words for whichever command takes it on."""
    models: str = ""
    """Jobs with the same name here stand on the same models: one fits them while the others wait for their turn."""

    def words(self) -> list[str]:
        """Of the command that takes it to its end from where it stands."""
        return ["resume", str(self.run), *self._how()] if started(self.run) else self._anew()

    def _anew(self) -> list[str]:
        return [*self.train, "--out", str(self.run), *self._how()]

    def _how(self) -> list[str]:
        return ["--threads", str(self.threads), "--quiet", *self.options]

    @property
    def finished(self) -> bool:
        return Run(self.run).finished


def started(run: Path) -> bool:
    """Whether there is something to resume. What a kill left of the very first files is swept away."""
    if not (run / "config.json").exists():
        return False
    if (run / "manifest.json").exists():
        return True
    shutil.rmtree(run)
    return False


@dataclass(frozen=True)
class Ended:
    """How a worker ended: exit code, and the last it said."""

    code: int
    said: str = ""

    @property
    def died(self) -> bool:
        """By a signal, or with its machine: nothing that the job itself has decided."""
        return self.code < 0


class Backend(Protocol):
    def room(self, running: int) -> bool:
        """Whether another job may be handed over."""
        ...

    def start(self, job: Job) -> Any: ...

    def ended(self, handle: Any) -> Ended | None:
        """None while it works."""
        ...

    def stop(self, handle: Any) -> None: ...


@dataclass
class _Running:
    job: Job
    handle: Any
    tries: int = 1


@dataclass(frozen=True)
class Watch:
    """What a user is told while jobs run; every one may be left out."""

    working: Callable[[Job], None] = lambda job: None
    """Called at every look for every job at work."""
    ended: Callable[[Job, str], None] = lambda job, failure: None
    """Called when a job has come to its end, with a sentence where it failed."""
    again: Callable[[Job, str], None] = lambda job, why: None
    """Called when a job's worker died and it is taken up once more."""


def run_jobs(
    jobs: Sequence[Job], backend: Backend, watch: Watch | None = None, stop_at_failure: bool = False
) -> dict[str, str]:
    """All jobs to their end, also when some fail, unless told otherwise; returns what went wrong, by name."""
    watch = watch or Watch()
    waiting = [job for job in jobs if not job.finished]
    running: list[_Running] = []
    failed: dict[str, str] = {}
    try:
        while waiting or running:
            while backend.room(len(running)) and (job := _next(waiting, [r.job for r in running])):
                waiting.remove(job)
                running.append(_Running(job, backend.start(job)))
            time.sleep(POLL_SECONDS)
            for work in list(running):
                watch.working(work.job)
                if (end := backend.ended(work.handle)) is None:
                    continue
                if end.died and not work.job.finished and work.tries < TRIES:
                    watch.again(work.job, end.said)
                    work.handle, work.tries = backend.start(work.job), work.tries + 1
                    continue
                running.remove(work)
                failure = _failure(work.job, end)
                if failure:
                    failed[work.job.name] = failure
                    waiting = [] if stop_at_failure else waiting
                watch.ended(work.job, failure)
    finally:
        for work in running:  # left only by an interrupt or an error of the backend itself
            backend.stop(work.handle)
    return failed


def _next(waiting: Sequence[Job], running: Sequence[Job]) -> Job | None:
    """The first job whose models nobody is fitting at this moment: it would only wait for them, and hold a core."""
    fitting = {job.models for job in running if job.models and not (job.run / "models.json").exists()}
    return next((job for job in waiting if job.models not in fitting), None)


def _failure(job: Job, end: Ended) -> str:
    if job.finished and end.code == 0:
        return ""
    return end.said or f"its worker ended with exit code {end.code} and said nothing"
