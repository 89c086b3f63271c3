"""Threads and devices. Results depend on how many threads split a sum, so a run records them and resumes with them."""

from __future__ import annotations

import os
import sys


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_threads(count: int) -> None:
    """Limit XLA to `count` threads; it reads this once, so it must come before JAX is imported."""
    if "jax" not in sys.modules:
        os.environ["NPROC"] = str(count)


def threads() -> int:
    """Threads that XLA uses in this process."""
    return int(os.environ.get("NPROC") or cores())
