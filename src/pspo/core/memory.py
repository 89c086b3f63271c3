"""How much memory this process may use: that of the machine, of its container (cgroups), of its own limit, or what the
user allows it; and how much it has used.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from pspo.core.errors import UserError

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
OWN_STATUS = Path("/proc/self/status")


def peak_memory() -> int:
    """The most bytes of memory that this process has held.

    Linux counts what a program's parent held when it was started into `ru_maxrss`, but not into VmHWM.
    """
    try:
        lines = OWN_STATUS.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def memory_limit() -> int:
    """In bytes, the lowest of all limits."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    own, _ = resource.getrlimit(resource.RLIMIT_AS)  # as `ulimit -v` sets it
    return min(machine, own if own != resource.RLIM_INFINITY else machine, *_group_limits(), *_allowed())


def _allowed() -> list[int]:
    """$PSPO_MEMORY, in GiB."""
    given = os.environ.get("PSPO_MEMORY", "").strip()
    if not given:
        return []
    try:
        allowed = float(given)
    except ValueError:
        allowed = 0.0
    if not 0 < allowed < float("inf"):
        raise UserError(f"the environment variable PSPO_MEMORY is '{given}': set it to a number of GiB, such as 8.")
    return [int(allowed * 2**30)]


def _group_limits() -> Iterator[int]:
    """Of the process's groups and of all groups around them; inside a container only the innermost may be visible."""
    for path in _limit_files():
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdigit():  # otherwise "max", which is none
            yield int(text)


def _limit_files() -> Iterator[Path]:
    try:
        lines = OWN_GROUPS.read_text().splitlines()
    except OSError:
        lines = []
    for line in [*lines, "0::/", "0:memory:/"]:
        _, controllers, group = line.split(":", 2) if line.count(":") >= 2 else ("", "none", "")
        if controllers == "":  # version 2
            folder, name = CONTROL_GROUPS, "memory.max"
        elif "memory" in controllers.split(","):  # version 1
            folder, name = CONTROL_GROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        inner = folder / group.strip("/")
        yield from (part / name for part in (inner, *inner.parents) if part.is_relative_to(folder))
