"""Training from a file that is larger than the memory allowed: `python -m benchmarks.beyond_memory`.

A file of noise with 20,000,000 transitions of 17 + 3 columns is written in pieces. One process trains TD3+BC on it with
PSPO_MEMORY=4 and reports its peak. Another one holds the same data in memory as well, and times chunks of iterations on
both in turn, by the clock and by the processor time of all threads: on a busy machine the first depends on its other
programs. Speed and memory depend on sizes alone. Writes benchmarks/results/beyond-memory.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.claims import RESULTS, keep

if TYPE_CHECKING:
    from pspo.data.dataset import Dataset

ROWS, OBS, ACTIONS, EPISODE = 20_000_000, 17, 3, 1000
GIB_ALLOWED = 4.0
STEPS, CHUNK, ROUNDS = 1000, 250, 5
ALGORITHMS = ("td3bc", "bc")
PIECE = 1 << 18  # rows written at once


def write(path: Path, rows: int) -> int:
    """A dataset in D4RL's layout, as anybody would write one that is larger than the memory; returns its bytes."""
    import h5py

    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        shapes: dict[str, tuple[int, ...]] = {
            "observations": (rows, OBS),
            "next_observations": (rows, OBS),
            "actions": (rows, ACTIONS),
        }
        arrays = {
            name: file.create_dataset(name, shape, "f4") for name, shape in (shapes | {"rewards": (rows,)}).items()
        }
        flags = {name: file.create_dataset(name, (rows,), "?") for name in ("terminals", "timeouts")}
        for start in range(0, rows, PIECE):
            part = slice(start, min(start + PIECE, rows))
            obs = rng.standard_normal((part.stop - start, OBS), dtype=np.float32)
            arrays["observations"][part] = obs
            arrays["next_observations"][part] = obs + np.float32(0.1)
            arrays["actions"][part] = rng.uniform(-1.0, 1.0, (len(obs), ACTIONS)).astype(np.float32)
            arrays["rewards"][part] = obs[:, 0]
            flags["timeouts"][part] = np.arange(start, part.stop) % EPISODE == EPISODE - 1
        file.attrs["action_low"], file.attrs["action_high"] = -np.ones(ACTIONS), np.ones(ACTIONS)
    return path.stat().st_size


def train_within(path: Path, steps: int, chunk: int) -> dict[str, Any]:
    """The peak of this process, which trains on the file."""
    from pspo.core.memory import peak_memory
    from pspo.data import load_dataset
    from pspo.training.train import train

    settings = {"steps": steps, "chunk": min(chunk, steps), "evaluate_every": steps}
    run = train(path, ALGORITHMS[0], settings=settings, out=path.parent / "run")
    in_file = load_dataset(path).mapped_file is not None
    return {"peak_bytes": peak_memory(), "in_file": in_file, "seconds": run.read("manifest")["timings"]}


def rates(path: Path, chunk: int, rounds: int) -> dict[str, Any]:
    """By algorithm, iterations per second on both."""
    from pspo.data import load_dataset

    in_file = load_dataset(path)
    del os.environ["PSPO_MEMORY"]
    in_memory = load_dataset(path)
    assert in_file.mapped_file is not None
    assert in_memory.mapped_file is None
    return {algo: _rates_of(algo, in_memory, in_file, chunk, rounds) for algo in ALGORITHMS}


def _rates_of(algo: str, in_memory: Dataset, in_file: Dataset, chunk: int, rounds: int) -> dict[str, Any]:
    """From the median of chunks in turn; the machine may be busy with something else now and then."""
    import jax

    from pspo.algorithms import get_algorithm, preset
    from pspo.core.config import build
    from pspo.core.progress import silent
    from pspo.data.batches import device_dataset
    from pspo.data.file_batches import FileBatches
    from pspo.training.loop import compile_chunk, compile_chunk_from_file

    algorithm = get_algorithm(algo)
    settings = {"chunk": chunk, "steps": chunk * (rounds + 2)}  # longer than timed: every chunk has a next one to read
    config: Any = build(algorithm.Config, preset(algo, "laptop", None) | settings)
    setup, _ = algorithm.prepare(config, in_memory, 0, silent)
    data, batches = device_dataset(in_memory, setup.norm, config.gamma), FileBatches(in_file, setup.norm)
    state = jax.jit(lambda data, key: algorithm.init(config, setup, data, key))(data, jax.random.PRNGKey(0))
    whole, rows = compile_chunk(algorithm, config, setup), compile_chunk_from_file(algorithm, config, setup)
    programs = {"memory": partial(whole, data=data), "file": partial(rows, data=batches)}
    states, times_of = dict.fromkeys(programs, state), {name: [] for name in programs}
    for _ in range(rounds + 1):
        for name, program in programs.items():
            before = time.perf_counter(), time.process_time()
            states[name], _ = jax.block_until_ready(program(states[name], (), length=chunk))
            times_of[name].append([time.perf_counter() - before[0], time.process_time() - before[1]])
    timed = {name: np.array(times[1:]).T for name, times in times_of.items()}  # the first ones were compiled
    wall, processor = ({name: float(np.median(times[which])) for name, times in timed.items()} for which in (0, 1))
    leaves = (jax.tree.leaves(states[name]) for name in programs)
    return {
        "same_bits": all(np.array_equal(*both) for both in zip(*leaves, strict=True)),  # in the last state
        "iterations_per_second": {name: chunk / seconds for name, seconds in wall.items()},
        "ratio": wall["memory"] / wall["file"],
        "ratio_of_processor_time": processor["memory"] / processor["file"],
        "seconds_per_chunk": {name: times[0].tolist() for name, times in timed.items()},
        "processor_seconds_per_chunk": {name: times[1].tolist() for name, times in timed.items()},
    }


def _in_process(gib: float, *words: object) -> dict[str, Any]:
    """What this module prints as JSON, in its own process."""
    environment = os.environ | {"PSPO_MEMORY": str(gib), "NPROC": os.environ.get("NPROC", "1")}
    command = [sys.executable, "-m", "benchmarks.beyond_memory", *map(str, words)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    return json.loads(output.splitlines()[-1])


def main(rows: int, gib: float, steps: int, chunk: int, rounds: int, results: Path = RESULTS) -> None:
    with tempfile.TemporaryDirectory(prefix="pspo-beyond-memory-") as folder:
        path = Path(folder) / "noise.hdf5"
        size = write(path, rows)
        trained = _in_process(gib, "train", path, steps, chunk)
        timed = _in_process(gib, "rates", path, chunk, rounds)
    result = {
        "rows": rows,
        "columns": [OBS, ACTIONS],
        "file_bytes": size,
        "allowed_gib": gib,
        **trained,
        "rates": timed,
    }
    keep(result, results, "beyond-memory")
    print(f"{rows:,} transitions, {size / 2**30:.2f} GiB: {trained['peak_bytes'] / 2**30:.2f} GiB at the peak")
    for algo, measured in timed.items():
        print(
            f"{algo}: {measured['ratio']:.0%} of the iterations per second in memory, "
            f"{measured['ratio_of_processor_time']:.0%} by processor time"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        print(json.dumps(train_within(Path(sys.argv[2]), *map(int, sys.argv[3:]))))
    elif sys.argv[1:2] == ["rates"]:
        print(json.dumps(rates(Path(sys.argv[2]), *map(int, sys.argv[3:]))))
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--rows", type=int, default=ROWS)
        parser.add_argument("--gib", type=float, default=GIB_ALLOWED, help="memory allowed (default: %(default)s)")
        parser.add_argument("--steps", type=int, default=STEPS)
        parser.add_argument("--chunk", type=int, default=CHUNK)
        parser.add_argument("--rounds", type=int, default=ROUNDS)
        main(**vars(parser.parse_args()))
