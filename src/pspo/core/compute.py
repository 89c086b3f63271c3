"""Threads and compiled programs.

Results depend on how many threads split a sum, so a run records them and resumes with them. Compiled
programs are kept between runs: the second run of a preset starts in seconds.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from pathlib import Path

from pspo.core.errors import UserError
from pspo.core.files import cache_folder


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_threads(wanted: int) -> int:
    """The value of --threads, if it is possible."""
    if wanted < 1:
        raise UserError(f"--threads {wanted} is out of range: at least one is needed.")
    return wanted


def use_threads(count: int) -> None:
    """Limit XLA to `count` threads; it reads this once, so it must come before JAX is imported."""
    if "jax" not in sys.modules:
        os.environ["NPROC"] = str(count)


def threads() -> int:
    """Threads that XLA uses in this process."""
    return int(os.environ.get("NPROC") or cores())


def keep_compiled_programs() -> None:
    """Let JAX keep compiled programs in our cache folder, in one subfolder per kind of processor."""
    import warnings

    import jax

    # If they cannot be written or read, programs are compiled again: that costs time and changes nothing.
    warnings.filterwarnings("ignore", message="Error (writing|reading) persistent compilation cache")
    if jax.config.values.get("jax_compilation_cache_dir") is None:  # otherwise the user has chosen a folder
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / f"programs-{_processor()}"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def _processor() -> str:
    """A short name of the instruction set: a program compiled for another one must not be run here."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        features = platform.processor()
    return hashlib.sha256(f"{platform.machine()} {features}".encode()).hexdigest()[:12]
