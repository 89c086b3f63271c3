"""Timing on a busy machine: every measurement is made between two matrix products, and their ratio is kept.

Other load slows both about equally, so the ratio is stable where the seconds are not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Work = Callable[[], Any]


class Effort(NamedTuple):
    """How long to measure."""

    rounds: int
    work_seconds: float  # of each measurement: the work is repeated to take about this long
    matrix_seconds: float  # of the matrix products on either side
    matrix_sizes: tuple[int, ...]


FULL = Effort(rounds=5, work_seconds=0.2, matrix_seconds=0.1, matrix_sizes=(1024, 1536, 2048))
QUICK = Effort(rounds=2, work_seconds=0.01, matrix_seconds=0.01, matrix_sizes=(128, 256))


class Samples(NamedTuple):
    """One number per round: seconds per call of the work, and the machine's GFLOP/s around it."""

    seconds: np.ndarray
    machine: np.ndarray

    def gflops(self, flops: float) -> np.ndarray:
        return flops / self.seconds / 1e9

    def fraction(self, flops: float) -> np.ndarray:
        """Of the speed of the matrix products that were timed around it."""
        return self.gflops(flops) / self.machine


def summary(values: np.ndarray) -> dict[str, float]:
    """The median, and the lower and upper quartile."""
    low, median, high = (float(v) for v in np.percentile(values, (25, 50, 75)))
    return {"median": median, "low": low, "high": high}


class Machine:
    """The reference: float32 matrix products of the size that runs fastest here."""

    def __init__(self, effort: Effort) -> None:
        self.effort = effort
        self.rates = {n: max(self._rate(n) for _ in range(5)) for n in effort.matrix_sizes}
        self.size = max(self.rates, key=lambda n: self.rates[n])

    def _rate(self, n: int) -> float:
        """GFLOP/s of an n x n product, repeated for about `effort.matrix_seconds`."""
        a = jnp.full((n, n), 0.5, jnp.float32)
        product = lambda: jnp.matmul(a, a)  # noqa: E731
        once = _seconds(product, 1)  # also compiles it
        once = min(once, _seconds(product, 1))
        return 2 * n**3 / _seconds(product, _repeats(once, self.effort.matrix_seconds)) / 1e9

    def rate(self) -> float:
        return self._rate(self.size)

    def measure(self, works: Mapping[str, Work], per_call: int = 1) -> dict[str, Samples]:
        """All works in turn, round after round; one call of a work does `per_call` units, and seconds are per unit."""
        repeats = {}
        for name, work in works.items():
            _seconds(work, 1)  # compiles
            repeats[name] = _repeats(_seconds(work, 1), self.effort.work_seconds)
        seconds: dict[str, list[float]] = {name: [] for name in works}
        machine: dict[str, list[float]] = {name: [] for name in works}
        before = self.rate()
        for _ in range(self.effort.rounds):
            for name, work in works.items():
                seconds[name].append(_seconds(work, repeats[name]) / per_call)
                after = self.rate()
                machine[name].append(0.5 * (before + after))
                before = after
        return {name: Samples(np.array(seconds[name]), np.array(machine[name])) for name in works}


def _repeats(once: float, wanted: float) -> int:
    return max(1, round(wanted / once))


def _seconds(work: Work, repeats: int) -> float:
    """Per call, until the last result is ready: calls run in order."""
    started = time.perf_counter()
    result = None
    for _ in range(repeats):
        result = work()
    jax.block_until_ready(result)
    return (time.perf_counter() - started) / repeats
