"""How often `pspo check` warns of wrong order and outliers: `python -m benchmarks.check_alarms [DATA-FILE ...]`.

False alarms on liquidation, on the given files (such as MuJoCo datasets), on logs of independent rows and of slow and
fast processes, and on heavy tails; and how often it finds rows that are shuffled within episodes, and one value out of
a hundred times the range. Writes benchmarks/results/check-alarms.json.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.claims import RESULTS, keep
from pspo.data import Dataset, check, load_dataset
from pspo.data.outliers import outliers

REPEATS = 100
CODES = ("wrong-order", "missing-rows", "doubled-rows", "outlier-action", "outlier-reward")
TAILS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda random, n: random.normal(size=n),
    "exponential": lambda random, n: random.exponential(size=n),
    "lognormal, sigma 1": lambda random, n: random.lognormal(size=n),
    "Student's t, 4 degrees": lambda random, n: random.standard_t(4, size=n),
    "Student's t, 3 degrees": lambda random, n: random.standard_t(3, size=n),
    "Student's t, 2 degrees": lambda random, n: random.standard_t(2, size=n),
}


def alarms(dataset: Dataset) -> list[str]:
    return sorted({finding.code for finding in check(dataset) if finding.code in CODES})


def process(seed: int, memory: float, shuffled: bool = False) -> Dataset:
    """Episodes of an autoregressive process, of random number and length; memory 0 is a contextual bandit."""
    random = np.random.default_rng(seed)
    lengths = random.integers(8, 60, size=int(random.integers(30, 400)))
    columns, rows = int(random.integers(1, 8)), int(lengths.sum())
    starts = np.cumsum(lengths) - lengths
    first = np.isin(np.arange(rows), starts)
    obs = random.normal(size=(rows, columns))
    for row in range(1, rows):
        if memory and not first[row]:
            obs[row] = memory * obs[row - 1] + np.sqrt(1 - memory**2) * obs[row]
    if shuffled:
        obs = obs[np.lexsort((random.random(rows), np.repeat(np.arange(len(lengths)), lengths)))]
    ends = np.zeros(rows, bool)
    ends[starts + lengths - 1] = True
    action = random.uniform(-1, 1, (rows, 1))
    arrays = {"observations": obs, "actions": action, "rewards": obs[:, 0] + action[:, 0]}
    return Dataset.from_arrays(arrays | {"terminals": np.zeros(rows), "timeouts": ends})


def rate(make: Callable[[int], Dataset], repeats: int) -> dict[str, float]:
    raised = [alarms(make(seed)) for seed in range(repeats)]
    return {code: sum(code in codes for codes in raised) / repeats for code in CODES if any(code in f for f in raised)}


def main(files: list[str], results: Path = RESULTS, repeats: int = REPEATS) -> dict[str, Any]:
    shares: dict[str, Any] = {
        "repeats": repeats,
        "datasets": {Path(file).stem: alarms(load_dataset(file)) for file in files},
        "liquidation": rate(lambda seed: load_dataset("liquidation", seed=seed), max(1, repeats // 5)),
        "independent rows": rate(lambda seed: process(seed, 0.0), repeats),
        "processes": {m: rate(lambda seed, m=m: process(seed, m), repeats) for m in (0.3, 0.7, 0.95)},
        "shuffled processes": {m: rate(lambda seed, m=m: process(seed, m, True), repeats) for m in (0.3, 0.7, 0.95)},
        "tails": {
            name: float(np.mean([outliers(draw(np.random.default_rng(s), 10_000)) is not None for s in range(1000)]))
            for name, draw in TAILS.items()
        },
    }
    keep(shares | {"command": "python -m benchmarks.check_alarms DATA-FILE ..."}, results, "check-alarms")
    for name, value in shares.items():
        print(f"{name}: {value}")
    return shares


if __name__ == "__main__":
    main(sys.argv[1:])
