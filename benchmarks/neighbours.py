"""How long EPQ searches for neighbours, and how many it finds: `python -m benchmarks.neighbours [LOG]`.

LOG is whatever `pspo train` takes. Without one, 1,000,000 states of HalfCheetah's width are made: a few
slow causes mixed into 17 columns, as in locomotion data; among states of plain noise a tree is no faster than comparing
all. The number of neighbours of a task depends on its data. Writes
benchmarks/results/neighbours.json, or neighbours-LOG.json.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.claims import RESULTS, keep
from pspo.algorithms.epq.algorithm import Config
from pspo.data import load_dataset
from pspo.data.neighbours import neighbourhoods
from pspo.envs.task import get_task

ROWS = 1_000_000
RADII = (0.5, 1.0, 2.0)  # epsilon: all that EPQ's authors use
CAUSES, EPISODE = 6, 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", nargs="?", metavar="LOG")
    parser.add_argument("--rows", type=int, help=f"only the first so many states of LOG; without LOG, default {ROWS:,}")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.log:
        obs, name = load_dataset(options.log).obs[: options.rows], Path(options.log).stem
    else:
        obs, name = made_states(options.rows or ROWS, get_task("halfcheetah").obs_dim), ""
    each = [measure(obs, epsilon) for epsilon in RADII]
    words = ["python", "-m", "benchmarks.neighbours", *([Path(options.log).name] if options.log else [])]
    words += ["--rows", str(options.rows)] if options.rows else []
    result = {"command": shlex.join(words), "data": name or "made", "rows": len(obs), "columns": obs.shape[1]}
    keep(
        result | {"cores": os.cpu_count(), "each": each}, options.results, "-".join(filter(None, ("neighbours", name)))
    )
    print(table(each))


def made_states(rows: int, columns: int) -> np.ndarray:
    """Causes that wander by themselves within each episode, mixed into all columns with a little noise."""
    rng = np.random.default_rng(0)
    cause = rng.standard_normal((rows, CAUSES), dtype=np.float32)
    step = np.arange(rows) % EPISODE
    for t in range(1, min(EPISODE, rows)):
        here = np.flatnonzero(step == t)
        cause[here] = 0.95 * cause[here - 1] + 0.3 * cause[here]
    mixed = cause @ rng.standard_normal((CAUSES, columns), dtype=np.float32)
    return mixed + 0.1 * rng.standard_normal((rows, columns), dtype=np.float32)


def measure(obs: np.ndarray, epsilon: float) -> dict[str, Any]:
    """One search, as `pspo train` does it, on all cores."""

    def report(done: int) -> None:
        print(f"epsilon {epsilon}: {done:,} of {2 * len(obs):,} rows", end="\r", file=sys.stderr, flush=True)

    began = time.perf_counter()
    near, spacing = neighbourhoods(obs, Config.neighbours, epsilon, report)
    seconds = time.perf_counter() - began
    return {"epsilon": epsilon, "seconds": seconds, "spacing": spacing, "others": near.others}


def table(each: list[dict[str, Any]]) -> str:
    lines = ["| epsilon | other states in a neighbourhood, mean | seconds |", "|---|---|---|"]
    lines += [f"| {one['epsilon']} | {one['others']:.1f} | {one['seconds']:.0f} |" for one in each]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
