"""What is seen of jobs at work: a line or a bar for each, by the last line of its metrics."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pspo.core.errors import UserError
from pspo.core.progress import Progress
from pspo.experiments.jobs import Job, Watch
from pspo.runs.directory import Run


def watching(show: Progress, keep: Callable[[str, str], Any] = lambda name, failure: None) -> Watch:
    """`keep` is called with a job's name when it has ended, and with why where it failed."""

    seen: dict[str, int] = {}

    def working(job: Job) -> None:
        """Only what is new: a log is no place for the same line twice."""
        if (found := progress_of(job)) and seen.get(job.name) != found[0]:
            seen[job.name] = found[0]
            show(job.name, *found)

    def ended(job: Job, failure: str) -> None:
        working(job)
        keep(job.name, failure)

    def again(job: Job, why: str) -> None:
        print(f"pspo: the worker of {job.name} died{f' ({why})' if why else ''}; taking it up again.", file=sys.stderr)

    return Watch(working, ended, again)


def progress_of(job: Job) -> tuple[int, int, dict[str, float]] | None:
    """Iterations done and wanted, and the last score. A line being written right now is left for the next look."""
    run = Run(job.run)
    try:
        rows = run.metrics()
        total = run.read("config")["settings"]["steps"]
    except (ValueError, UserError):
        return None
    if not rows:
        return None
    scored = [row["score"] for row in rows if "score" in row]
    return rows[-1]["step"], total, {"score": scored[-1]} if scored else {}
