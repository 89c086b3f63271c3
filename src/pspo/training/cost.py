"""Time and memory that a run would take on this machine, from a few steps of each phase on data of the right shape.

Nothing is computed by formula: every phase runs for some steps with the run's networks and batches, with a temporary
cache, and is scaled up by the number of steps, which is an upper bound where a fit may stop early.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pspo.algorithms.contract import Algorithm
from pspo.core.memory import peak_memory
from pspo.core.progress import silent
from pspo.data.batches import device_dataset
from pspo.data.dataset import Dataset
from pspo.data.readers.file_checks import PEAK
from pspo.data.readers.mapped_hdf5 import MAPPED_SHARE
from pspo.dynamics.fit import ModelConfig

SAMPLE_SIZE = 5000
FIT_STEPS, ITERATIONS = 4, 4  # enough for slow steps; short ones are repeated
MORE_ITERATIONS = 64  # where rollouts at the start of a chunk take longer than a few iterations
SHORT_SECONDS = 0.5
MOST_MEMBERS = 10  # larger pools are timed with this many: their cost is proportional
FITTED = {"dynamics pool": "model", "any-step model": "model", "reference policy": "reference", "behaviour VAE": "vae"}
"""What is fitted before training, by its name in the progress display, and the group of settings that it has."""


class Shape(NamedTuple):
    """Shape of a dataset, which may be known before it is downloaded."""

    size: int
    obs_dim: int
    action_dim: int


class Phase(NamedTuple):
    name: str
    steps: int
    step_seconds: float

    @property
    def seconds(self) -> float:
        return self.steps * self.step_seconds


class IterationCost(NamedTuple):
    """Seconds of one core, which other load on the machine does not change."""

    iteration_seconds: float
    start_seconds: float
    """Once, before the first iteration: new networks, and behaviour cloning where an algorithm begins with it."""


class CostEstimate(NamedTuple):
    phases: list[Phase]
    bytes: int

    @property
    def seconds(self) -> float:
        return sum(phase.seconds for phase in self.phases)


def estimate_cost(algorithm: Algorithm, config: Any, data: Dataset | Shape) -> CostEstimate:
    """Time per phase and peak memory of a run with this configuration on data of this shape."""
    shape = Shape(data.size, data.obs_dim, data.action_dim) if isinstance(data, Dataset) else data
    sample, clock = _sample(data), _Clock()
    with temporary_cache():
        setup, _ = algorithm.prepare(_shortened(config), sample, 0, clock)
        iteration = _time_iteration(algorithm, config, setup, sample)[0]
    phases = []
    for name, part in FITTED.items():
        if name in clock.step_seconds:
            group = getattr(config, part)
            scale = max(1.0, _members(group) / MOST_MEMBERS)
            phases.append(Phase(name, group.steps, clock.step_seconds[name] * scale))
    phases.append(Phase("training", config.steps, iteration))
    in_file = isinstance(data, Dataset) and data.mapped_file is not None
    return CostEstimate(phases, _memory(config, shape, setup, in_file))


def iteration_cost(algorithm: Algorithm, config: Any, data: Dataset | Shape) -> IterationCost:
    """What training costs once everything is fitted, in seconds of one core."""
    sample = _sample(data)
    with temporary_cache():
        setup, _ = algorithm.prepare(_shortened(config), sample, 0, silent)
        return IterationCost(*_time_iteration(algorithm, config, setup, sample, time.process_time))


def _sample(data: Dataset | Shape) -> Dataset:
    """The first transitions: in most datasets they have the same columns and grids."""
    if isinstance(data, Shape):
        return random_dataset(data._replace(size=min(data.size, SAMPLE_SIZE)))
    count = min(data.size, SAMPLE_SIZE)
    parts = ("obs", "action", "reward", "next_obs", "terminal", "timeout", "next_known")
    first = {name: np.array(getattr(data, name)[:count]) for name in parts}
    absent = dict.fromkeys(("propensity", "last_reward", "source_rows", "row_times"))
    return dataclasses.replace(data, **first, **absent)


def random_dataset(shape: Shape, episode: int = 500) -> Dataset:
    """Noise of the right shape: no column is a grid, no transition is terminal, a time-out every `episode` steps."""
    rng = np.random.default_rng(0)
    size, obs_dim, action_dim = shape
    obs = rng.standard_normal((size, obs_dim), dtype=np.float32)
    return Dataset(
        obs=obs,
        action=rng.uniform(-1.0, 1.0, (size, action_dim)).astype(np.float32),
        reward=rng.standard_normal(size, dtype=np.float32),
        next_obs=obs + 0.1 * rng.standard_normal((size, obs_dim), dtype=np.float32),
        terminal=np.zeros(size, bool),
        timeout=np.arange(size) % episode == episode - 1,
        action_low=np.full(action_dim, -1.0, np.float32),
        action_high=np.ones(action_dim, np.float32),
        name="random",
    )


@contextlib.contextmanager
def temporary_cache() -> Iterator[None]:
    """What a few steps have fitted must never be loaded by a real run."""
    before = os.environ.get("PSPO_CACHE")
    with tempfile.TemporaryDirectory(prefix="pspo-estimate-") as folder:
        os.environ["PSPO_CACHE"] = folder
        try:
            yield
        finally:
            os.environ.pop("PSPO_CACHE")
            if before is not None:
                os.environ["PSPO_CACHE"] = before


def _shortened(config: Any) -> Any:
    """The same networks and batches, but few steps: one block to compile, one to time."""
    changed: dict[str, Any] = {}
    for part in FITTED.values():
        if group := getattr(config, part, None):
            short: dict[str, Any] = {"steps": 2 * FIT_STEPS, "evaluate_every": FIT_STEPS}
            if isinstance(group, ModelConfig):
                short["pool"] = min(group.pool, MOST_MEMBERS)
            changed[part] = dataclasses.replace(group, **short)
    return dataclasses.replace(config, **changed)


def _members(group: Any) -> int:
    """Models of a pool; 0 for settings of anything else that is fitted."""
    return group.pool if isinstance(group, ModelConfig) else 0


class _Clock:
    """A progress display that records the time of each phase."""

    def __init__(self) -> None:
        self.step_seconds: dict[str, float] = {}
        self._last: dict[str, tuple[int, float]] = {}

    def __call__(self, phase: str, step: int, *_: Any) -> None:
        now = time.perf_counter()
        if phase in self._last:
            before, then = self._last[phase]
            self.step_seconds[phase] = (now - then) / max(step - before, 1)
        self._last[phase] = (step, now)


def _time_iteration(
    algorithm: Algorithm, config: Any, setup: Any, sample: Dataset, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float]:
    """Seconds of an iteration with its share of what a chunk begins with, and of the first state."""
    from pspo.training.loop import compile_chunk

    device_data = device_dataset(sample, setup.norm, config.gamma)
    started = clock()
    state = jax.block_until_ready(
        jax.jit(lambda device_data, key: algorithm.init(config, setup, device_data, key))(
            device_data, jax.random.PRNGKey(0)
        )
    )
    start = clock() - started
    state = _after_a_chunk(state, config.chunk)
    chunk = compile_chunk(algorithm, config, setup)

    def whole_chunk(length: int) -> float:
        return _seconds(lambda: chunk(state, setup.arrays, device_data, length=length), clock)

    # The beginning of a chunk, such as rollouts, happens once per chunk, and the run has longer chunks than this one.
    begin = jax.jit(
        lambda arrays, device_data, state: algorithm.begin_chunk(
            config, setup._replace(arrays=arrays), device_data, state
        )
    )
    beginning, iterations = _seconds(lambda: begin(setup.arrays, device_data, state), clock), ITERATIONS
    whole = whole_chunk(iterations)
    if beginning > whole / 4:  # the difference of two long times would be noise
        iterations = MORE_ITERATIONS
        whole = whole_chunk(iterations)
    beginning = min(beginning, whole)
    return (whole - beginning) / iterations + beginning / config.chunk, start


def _after_a_chunk(state: Any, chunk: int) -> Any:
    """The first state as if a chunk were over: some work at the start of chunks begins with the second one (RAMBO)."""
    return state._replace(step=jnp.full_like(state.step, chunk)) if hasattr(state, "_replace") else state


def _seconds(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of one call, once it is compiled; short ones are repeated."""
    jax.block_until_ready(work())
    started, done = clock(), 0
    while done == 0 or clock() - started < SHORT_SECONDS:
        jax.block_until_ready(work())
        done += 1
    return (clock() - started) / done


def _memory(config: Any, shape: Shape, setup: Any, in_file: bool) -> int:
    """The peak of this process, plus what the whole dataset and the whole pool add to it."""
    if in_file:
        return int(peak_memory() + PEAK * MAPPED_SHARE * shape.size)
    transition = 4 * (2 * shape.obs_dim + shape.action_dim + 1) + 2
    # On the host, on the device, and once more as a model's inputs and targets while the pool is fitted.
    data = 3 * transition * shape.size
    pool = _members(getattr(config, "model", None))
    bootstraps = 4 * pool * shape.size
    member = sum(leaf.nbytes for leaf in jax.tree.leaves(setup.arrays) if hasattr(leaf, "nbytes"))
    extra_members = 5 * member * max(0, pool - MOST_MEMBERS) // MOST_MEMBERS  # parameters, gradients, Adam, the best
    return int(peak_memory() + data + bootstraps + extra_members)
