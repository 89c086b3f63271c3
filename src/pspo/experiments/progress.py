"""The progress of running jobs: a line or a bar for each, from the last row of its metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pspo.core.errors import UserError
from pspo.experiments.jobs import Job, JobListener
from pspo.runs.directory import Run
from pspo.training.monitor import Monitor


def show_progress(monitor: Monitor, on_end: Callable[[str, str], Any] = lambda name, failure: None) -> JobListener:
    """A listener that reports to `monitor`; `on_end` gets the name of every ended job, and why if it failed."""

    last_step: dict[str, int] = {}

    def running(job: Job) -> None:
        """Only new rows: a log should not repeat the same line."""
        if (now := progress_of(job)) and last_step.get(job.name) != now[0]:
            last_step[job.name] = now[0]
            monitor.progress(job.name, *now)

    def ended(job: Job, failure: str) -> None:
        running(job)
        on_end(job.name, failure)

    def retried(job: Job, why: str) -> None:
        monitor.message(f"the worker of {job.name} was killed{f' ({why})' if why else ''}; resuming the run.")

    return JobListener(running, ended, retried)


def progress_of(job: Job) -> tuple[int, int, dict[str, float]] | None:
    """Iterations done and wanted, and the latest score. None where nothing, or half a line, has been written yet, or
    where it was edited: `resume` and `report` say what is wrong with it."""
    run = Run(job.run)
    try:
        rows = run.metrics()
        total = run.read("config")["settings"]["steps"]
    except (ValueError, KeyError, UserError):
        return None
    if not rows:
        return None
    scored = [row["score"] for row in rows if "score" in row]
    return rows[-1]["step"], total, {"score": scored[-1]} if scored else {}
