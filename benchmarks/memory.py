"""Peak memory of training on 1,000,000 transitions of HalfCheetah's size: `python -m benchmarks.memory`.

The file holds noise: memory depends on sizes alone. `pspo train` runs on it with the preset laptop, few steps and all
of its parts: reading, models, mu, rollouts, evaluations, report. Writes benchmarks/results/memory.json.
"""

from __future__ import annotations

import resource
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.claims import RESULTS, keep
from pspo.data.save import save_dataset
from pspo.envs.task import get_task
from pspo.training.cost import Shape, random_dataset

ROWS = 1_000_000
FEW = ["steps=1000", "evaluate_every=500", "model.steps=200", "model.evaluate_every=100", "reference.steps=200"]


def main(rows: int = ROWS, results: Path = RESULTS) -> None:
    task = get_task("halfcheetah")
    data = random_dataset(Shape(rows, task.obs_dim, task.action_dim), episode=1000)
    arrays = sum(getattr(data, name).nbytes for name in ("obs", "action", "reward", "next_obs", "terminal", "timeout"))
    with tempfile.TemporaryDirectory(prefix="pspo-memory-") as folder:
        file = Path(folder) / "halfcheetah.hdf5"
        save_dataset(data, file)
        del data
        words = ["train", file.name, "--task", "halfcheetah", "--episodes", "4"]
        words += [word for setting in FEW for word in ("--set", setting)]
        subprocess.run([sys.executable, "-m", "pspo", *words, "--out", "run"], check=True, cwd=folder)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    result = {"command": shlex.join(["pspo", *words]), "rows": rows, "array_bytes": arrays, "peak_bytes": peak}
    keep(result, results, "memory")
    print(f"{rows:,} transitions, {arrays / 2**30:.2f} GiB of arrays: {peak / 2**30:.2f} GiB at the peak")


if __name__ == "__main__":
    main()
