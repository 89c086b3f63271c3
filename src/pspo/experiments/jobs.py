"""Many runs on few workers: which job starts when, which is retried, which has failed.

A backend only starts a job and reports when it has ended; the scheduling is here, once for processes and for Ray.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from pspo.core.compute import use_threads
from pspo.core.errors import EXPECTED, exit_code_and_message
from pspo.core.progress import silent
from pspo.core.terminal import show_note
from pspo.runs.directory import Run, begun
from pspo.training.request import TrainRequest

POLL_SECONDS = 0.5
MAX_TRIES = 3  # of a job whose worker is killed; a job that reports an error is not retried


@dataclass(frozen=True)
class Job:
    """One run: trained from the start, or resumed where there is something to resume."""

    name: str
    request: TrainRequest
    run: Path
    threads: int = 1
    trackers: tuple[str, ...] = ()
    """Names of trackers; workers cannot share one."""
    models: str = ""
    """Jobs with the same text here use the same dynamics models: one fits them, and the others start after that."""

    @property
    def finished(self) -> bool:
        return Run(self.run).finished

    def to_json(self) -> str:
        """As a worker receives it."""
        values = {name: getattr(self, name) for name in ("name", "threads", "trackers", "models")}
        return json.dumps(values | {"request": self.request.as_dict(), "run": str(self.run)})

    @classmethod
    def from_json(cls, text: str) -> Job:
        values = json.loads(text)
        request, run = TrainRequest.from_dict(values.pop("request")), Path(values.pop("run"))
        return cls(request=request, run=run, **values | {"trackers": tuple(values["trackers"])})


@dataclass(frozen=True)
class JobOutcome:
    """How a worker ended: its exit code, and where it failed one sentence that says why."""

    code: int
    message: str = ""

    @property
    def killed(self) -> bool:
        """By a signal, or together with its machine: not an error of the job."""
        return self.code < 0


class RunsFailed(Exception):
    """Some of several runs failed. The others are finished, unless failures were to stop them."""

    def __init__(self, failures: dict[str, str], results: Any = None) -> None:
        self.failures = failures
        """What went wrong, by the name of the run."""
        self.results = results
        """Of the runs that finished: what the function would have returned. None where there are none."""
        name, why = next(iter(failures.items()))
        count = f"{len(failures)} runs failed, first" if len(failures) > 1 else "one run failed,"
        super().__init__(f"{count} {name}: {why}")


def execute(job: Job) -> JobOutcome:
    """Train or resume a job in this process. Errors of the user, the data or the disk end in the outcome."""
    use_threads(job.threads)
    try:
        from pspo.training.monitor import Monitor
        from pspo.training.trackers import named_trackers
        from pspo.training.train import resume

        monitor = Monitor(silent, show_note, named_trackers(job.trackers))
        if begun(job.run):
            resume(job.run, monitor=monitor)
        else:
            job.request.train(job.run, monitor)
    except EXPECTED as problem:
        return JobOutcome(*exit_code_and_message(problem))
    except KeyboardInterrupt:
        return JobOutcome(130, "it was interrupted")
    return JobOutcome(0)


class Backend(Protocol):
    """Where jobs run. Entering it connects or starts what it needs; leaving it releases that."""

    remote: bool
    """Whether workers may run in another folder or on another machine: paths must then be absolute."""
    shares_cache: bool
    """Whether what one worker fits is there for all others."""

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None, /
    ) -> None: ...

    def has_room(self, running: int) -> bool:
        """Whether another job may be started while so many are running."""
        ...

    def check(self, jobs: Sequence[Job]) -> None:
        """Refuse jobs that cannot work here, before any of them starts."""
        ...

    def start(self, job: Job) -> Any: ...

    def poll(self, handle: Any) -> JobOutcome | None:
        """None while it is running."""
        ...

    def stop(self, handle: Any) -> None: ...


@dataclass(frozen=True)
class JobListener:
    """Callbacks while jobs run; each may be left out."""

    running: Callable[[Job], None] = lambda job: None
    """At every poll, for every running job."""
    ended: Callable[[Job, str], None] = lambda job, failure: None
    """When a job has ended, with a sentence if it failed."""
    retried: Callable[[Job, str], None] = lambda job, why: None
    """When a job's worker was killed and the job is started again."""


@dataclass
class _Running:
    job: Job
    handle: Any
    tries: int = 1


def run_jobs(
    jobs: Sequence[Job], backend: Backend, listener: JobListener | None = None, stop_at_failure: bool = False
) -> dict[str, str]:
    """Run all jobs, also when some fail, unless `stop_at_failure`; returns what went wrong, by name."""
    listener = listener or JobListener()
    waiting = [job for job in jobs if not job.finished]
    running: list[_Running] = []
    failures = _write_missing(jobs)
    backend.check(waiting)
    try:
        while waiting or running:
            while backend.has_room(len(running)) and (job := _next(waiting, _fitting(running, backend))):
                waiting.remove(job)
                running.append(_Running(job, backend.start(job)))
            time.sleep(POLL_SECONDS)
            for work in list(running):
                listener.running(work.job)
                if (outcome := backend.poll(work.handle)) is None:
                    continue
                if outcome.killed and not work.job.finished and work.tries < MAX_TRIES:
                    listener.retried(work.job, outcome.message)
                    work.handle, work.tries = backend.start(work.job), work.tries + 1
                    continue
                running.remove(work)
                failure = _failure(work.job, outcome)
                if failure:
                    failures[work.job.name] = failure
                    waiting = [] if stop_at_failure else waiting
                listener.ended(work.job, failure)
    finally:
        for work in running:  # only after an interrupt or an error of the backend itself
            backend.stop(work.handle)
    return failures


def _write_missing(jobs: Sequence[Job]) -> dict[str, str]:
    """Of finished runs that were killed before their last files; returns what went wrong, by name."""
    failures = {}
    for job in jobs:
        try:
            write_missing_report(job)
        except EXPECTED as problem:
            failures[job.name] = exit_code_and_message(problem)[1]
    return failures


def write_missing_report(job: Job) -> None:
    """Of a finished run that has none."""
    if (run := Run(job.run)).complete and not (run.path / "report.html").exists():
        from pspo.training.train import write_missing

        write_missing(run)


def _fitting(running: Sequence[_Running], backend: Backend) -> list[Job]:
    """The jobs whose models are worth waiting for."""
    return [work.job for work in running] if backend.shares_cache else []


def _next(waiting: Sequence[Job], running: Sequence[Job]) -> Job | None:
    """The first job whose models no running job is still fitting: it would occupy a core only to wait for them."""
    fitting = {job.models for job in running if job.models and not (job.run / "models.json").exists()}
    return next((job for job in waiting if job.models not in fitting), None)


def _failure(job: Job, outcome: JobOutcome) -> str:
    if job.finished and outcome.code == 0:
        return ""
    return outcome.message or f"its worker ended with exit code {outcome.code} and no message"
