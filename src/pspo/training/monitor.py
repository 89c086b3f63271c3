"""What a run reports while it works: progress, messages and metrics, as one object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pspo.core.progress import Progress, silent
from pspo.core.terminal import show
from pspo.training.trackers import Tracker, no_tracker


@dataclass(frozen=True)
class Monitor:
    progress: Progress = silent
    """Called as (stage, done, total, numbers to show)."""
    message: Callable[[str], None] = show
    """Called with a sentence for the user."""
    tracker: Callable[[Path], Tracker] = no_tracker
    """Called once with the run's folder; returns what receives every row of metrics."""


def no_message(text: str) -> None:
    """For callers that want no messages."""


SILENT = Monitor(message=no_message)
