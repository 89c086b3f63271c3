"""Threads, devices and compiled programs.

Results depend on how many threads split a sum, so a run records them and resumes with them. Compiled
programs are kept between runs: the second run of a preset starts in seconds.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import sys
from pathlib import Path

from pspo.core.errors import UserError
from pspo.core.files import cache_folder


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


MOST_THREADS = 1024  # each takes memory, whether it has a core or not


def require_threads(wanted: int) -> int:
    """The value of --threads, if it is possible."""
    if not 1 <= wanted <= MOST_THREADS:
        raise UserError(f"--threads {wanted} is out of range: it must lie between 1 and {MOST_THREADS}.")
    return wanted


def threads_of_environment(default: int) -> int:
    """$NPROC, which XLA reads too."""
    given = os.environ.get("NPROC", "").strip()
    if given and not (given.isdecimal() and 1 <= int(given) <= MOST_THREADS):
        raise UserError(f"the environment variable NPROC is '{given}': set it to a number from 1 to {MOST_THREADS}.")
    return int(given or default)


def use_threads(count: int) -> None:
    """Limit XLA to `count` threads; it reads this once, so it must come before JAX is imported."""
    if "jax" not in sys.modules:
        os.environ["NPROC"] = str(count)


def threads() -> int:
    """Threads that XLA uses in this process."""
    return threads_of_environment(cores())


DEVICES = ("auto", "cpu", "gpu")
GPU_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")


def use_device(name: str) -> None:
    """Let JAX compute there; "auto" is JAX's own choice, a GPU where it finds one. Before JAX is used."""
    if name == "auto":
        return
    if name == "gpu" and not any(importlib.util.find_spec(plugin) for plugin in GPU_PLUGINS):
        raise UserError("JAX for GPUs is not installed: pip install 'pspo[cuda12]', or --device cpu.")
    os.environ["JAX_PLATFORMS"] = {"cpu": "cpu", "gpu": "cuda"}[name]
    if name == "gpu":
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several seeds share one GPU


def require_device() -> None:
    """Raise UserError if the chosen device cannot be used."""
    import jax

    try:
        jax.devices()
    except RuntimeError as problem:
        reason = " ".join(str(problem).split())[:200]
        raise UserError(f"JAX cannot use the device ({reason}): check the driver, or choose --device cpu.") from None


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
