"""Four seeds on this machine: a vmap over seeds, or processes? `python -m benchmarks.seeds`.

Prints iterations per second, summed over seeds, of the liquidation laptop preset's compiled chunk, and
writes benchmarks/results/seeds.json. `pspo train --seeds` does what is fastest here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

OUT = Path("benchmarks/results/seeds.json")
LENGTH = 200
SEEDS = 4


def chunk_seconds(seeds: int) -> float:
    """Seconds of one chunk of `LENGTH` iterations of `seeds` seeds under vmap; the second of two."""
    import jax
    import jax.numpy as jnp

    from benchmarks.cases import liquidation
    from pspo.algorithms.pspo import algorithm as pspo
    from pspo.training.loop import compile_chunk

    case = liquidation()
    chunk = compile_chunk(pspo, case.config, case.setup)
    state = case.state
    if seeds > 1:
        state = jax.tree.map(lambda leaf: jnp.stack([leaf] * seeds), state)
        state = state._replace(key=jax.random.split(jax.random.PRNGKey(0), seeds))
        single = chunk
        chunk = jax.jit(jax.vmap(lambda s, a, r: single(s, a, r, length=LENGTH), in_axes=(0, None, None)))
        call = lambda s: chunk(s, case.setup.arrays, case.device_data)[0]  # noqa: E731
    else:
        call = lambda s: chunk(s, case.setup.arrays, case.device_data, length=LENGTH)[0]  # noqa: E731
    state = jax.block_until_ready(call(state))
    started = time.perf_counter()
    jax.block_until_ready(call(state))
    return time.perf_counter() - started


def measure(processes: int, threads: int, seeds: int) -> float:
    """Iterations per second of all processes together; they start together and do equal work."""
    command = [sys.executable, "-m", "benchmarks.seeds", str(seeds)]
    environment = os.environ | {"NPROC": str(threads)}
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    seconds = [float(process.communicate()[0]) for process in started]
    return sum(seeds * LENGTH / s for s in seconds)


def main() -> None:
    speeds = {
        f"one process, 2 threads, vmap over {SEEDS} seeds": measure(1, 2, SEEDS),
        "one process, 2 threads, one seed after the other": measure(1, 2, 1),
        "two processes, 1 thread each, one seed each": measure(2, 1, 1),
        f"two processes, 1 thread each, vmap over {SEEDS // 2} seeds": measure(2, 1, SEEDS // 2),
    }
    OUT.write_text(
        json.dumps({"command": "python -m benchmarks.seeds", "iterations_per_second": speeds}, indent=2) + "\n"
    )
    for name, speed in speeds.items():
        print(f"{speed:8.1f} iterations/s  {name}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(chunk_seconds(int(sys.argv[1])))
    else:
        main()
