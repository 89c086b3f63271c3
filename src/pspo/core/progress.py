"""Progress on the terminal: a bar per stage with speed and remaining time, or plain lines for logs and pipes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pspo.core.terminal import console, printable, show

Progress = Callable[[str, int, int, dict[str, float]], None]
"""Called as (stage, done, total, numbers to show)."""


def silent(stage: str, done: int, total: int, numbers: dict[str, float]) -> None:
    """No display."""


@dataclass(frozen=True)
class Reporter:
    """How a long task reports to the person who waits for it."""

    progress: Progress = silent
    message: Callable[[str], None] = show
    """Called with a sentence to show."""


NO_REPORT = Reporter(message=lambda text: None)
"""No display and no messages."""


def _numbers(numbers: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())


class Lines:
    """For logs and pipes: about one line per stage and ten seconds."""

    def __init__(self) -> None:
        self.started: dict[str, tuple[float, int]] = {}
        self.last: dict[str, float] = {}

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, stage: str, done: int, total: int, numbers: dict[str, float]) -> None:
        now = time.monotonic()
        started, first = self.started.setdefault(stage, (now, done))
        if done >= total or now - self.last.get(stage, -1e9) > 10:
            self.last[stage] = now
            rate = f"{(done - first) / (now - started):.0f}/s  " if now > started and done > first else ""
            show(f"{stage}: {done}/{total}  {rate}{_numbers(numbers)}", error=True)


class Bars:
    """For terminals."""

    def __init__(self) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.progress = Progress(
            TextColumn("{task.description:16}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=console(stderr=True),
        )
        self.tasks: dict[str, tuple[Any, float, int]] = {}

    def __enter__(self) -> Bars:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def __call__(self, stage: str, done: int, total: int, numbers: dict[str, float]) -> None:
        if stage not in self.tasks:
            task = self.progress.add_task(printable(stage), total=total, completed=done, rate="", numbers="")
            self.tasks[stage] = (task, time.monotonic(), done)
        task, started, first = self.tasks[stage]
        seconds = time.monotonic() - started
        rate = f"{(done - first) / seconds:.0f}/s" if seconds > 0.5 and done > first else ""
        self.progress.update(task, completed=done, rate=rate, numbers=_numbers(numbers))


def for_terminal() -> Bars | Lines:
    """Bars if stderr is a terminal, else lines."""
    return Bars() if sys.stderr is not None and sys.stderr.isatty() else Lines()
