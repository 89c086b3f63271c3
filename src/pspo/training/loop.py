"""The one training loop: compiled chunks of an algorithm's pure update.

    init or checkpoint -> [begin_chunk, updates -> metrics -> evaluation -> checkpoint] ...

Only the state changes, keys are derived from it, and evaluation never feeds back: a run that is killed and resumed
computes the same as one that was not, bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from pspo.algorithms import get_diagnostics
from pspo.algorithms.contract import Algorithm, Diagnostics
from pspo.core import checkpoint
from pspo.core.errors import Diverged, UserError
from pspo.data.batches import DeviceDataset
from pspo.data.dataset import Dataset
from pspo.data.file_batches import FileBatches, take_rows
from pspo.envs.task import Task, get_task
from pspo.evaluation.simulator import actor_by_mode, evaluate_network
from pspo.runs.directory import Run
from pspo.training.monitor import Monitor
from pspo.training.trackers import Tracker

EVALUATION_SEED = 10_000  # of the evaluations during training
FOLLOWS_NO_STEPS = (
    "the algorithm's update changes the key of its state, or its step by other than one, so that batches cannot be "
    "drawn from a file ahead of it: leave FROM_FILE out of the module, or give it enough memory for the data."
)


@dataclass(frozen=True)
class Session:
    """What stays the same during the loop."""

    run: Run
    algorithm: Algorithm
    config: Any
    setup: Any
    data: Dataset
    device_data: DeviceDataset | FileBatches

    @property
    def task(self) -> Task | None:
        return get_task(self.data.task) if self.data.task else None

    @property
    def diagnostics(self) -> Diagnostics | None:
        return get_diagnostics(self.run.read("config")["algo"])


def compile_chunk(algorithm: Algorithm, config: Any, setup: Any) -> Callable[..., tuple[Any, dict[str, jax.Array]]]:
    """`length` iterations as one program. Fixed arrays and data are arguments, so that they are not constants of it."""

    @partial(jax.jit, static_argnames="length")
    def chunk(state: Any, arrays: Any, data: DeviceDataset, length: int) -> tuple[Any, dict[str, jax.Array]]:
        fixed = setup._replace(arrays=arrays)
        state, context, of_chunk = algorithm.begin_chunk(config, fixed, data, state)

        def body(state: Any, _: None) -> tuple[Any, dict[str, jax.Array]]:
            k_draw, k_update = _keys(state.key, state.step)
            batch = algorithm.draw(config, data, k_draw)
            return algorithm.update(config, fixed, context, state, batch, k_update)

        state, metrics = jax.lax.scan(body, state, None, length=length)
        return state, _summaries(metrics) | of_chunk

    return chunk


def compile_chunk_from_file(
    algorithm: Algorithm, config: Any, setup: Any
) -> Callable[..., tuple[Any, dict[str, jax.Array]]]:
    """The same iterations where the transitions stay in their file: all batches of a chunk are drawn, with the same
    keys, and read before its first iteration. Those of the next chunk are read while the device works on this one."""

    @jax.jit
    def begin(state: Any, arrays: Any, columns: DeviceDataset) -> tuple[Any, Any, dict[str, jax.Array]]:
        return algorithm.begin_chunk(config, setup._replace(arrays=arrays), columns, state)

    @partial(jax.jit, static_argnames="length")
    def draws(key: jax.Array, step: jax.Array, columns: DeviceDataset, length: int) -> Any:
        def draw(step: jax.Array) -> Any:
            return algorithm.draw(config, columns, _keys(key, step)[0])

        return jax.vmap(draw)(step + jax.numpy.arange(length, dtype=step.dtype))

    @jax.jit
    def updates(state: Any, context: Any, arrays: Any, picked: Any, parts: Any) -> tuple[Any, dict[str, jax.Array]]:
        fixed = setup._replace(arrays=arrays)

        def body(state: Any, picked: Any) -> tuple[Any, dict[str, jax.Array]]:
            batch = take_rows(jax.lax.optimization_barrier(picked), parts)
            return algorithm.update(config, fixed, context, state, batch, _keys(state.key, state.step)[1])

        state, metrics = jax.lax.scan(body, state, picked)
        return state, _summaries(metrics)

    ahead: dict[tuple[Any, ...], Any] = {}  # batches that are read already, by all that decides them

    def chunk(state: Any, arrays: Any, data: FileBatches, length: int) -> tuple[Any, dict[str, jax.Array]]:
        state, context, of_chunk = begin(state, arrays, data.columns)
        key, step, end = state.key, state.step, state.step + length
        origin, rest = (data, np.asarray(key).tobytes()), min(config.chunk, config.steps - int(end))
        read = ahead.pop((*origin, int(step), length), None)
        ahead.clear()  # of another state, such as one with another key
        if read is None:
            read = data.read(draws(key, step, data.columns, length=length))
        # Drawn before the updates begin: a device does one thing after the other.
        drawn = draws(key, end, data.columns, length=rest) if rest > 0 else None
        state, metrics = updates(state, context, arrays, *read)
        if drawn is not None:
            ahead[*origin, int(end), rest] = data.read(drawn)
        if int(state.step) != int(end) or not np.array_equal(state.key, key):
            raise UserError(FOLLOWS_NO_STEPS)
        return state, metrics | of_chunk

    return chunk


def _keys(key: jax.Array, step: jax.Array) -> jax.Array:
    """Of the draw and of the update of an iteration."""
    return jax.random.split(jax.random.fold_in(key, step))


def _summaries(metrics: dict[str, jax.Array]) -> dict[str, jax.Array]:
    return {name: _summary(name)(values) for name, values in metrics.items()}


def _summary(name: str) -> Callable[[jax.Array], jax.Array]:
    """Mean over a chunk; minimum and maximum for metrics that are minima and maxima."""
    return jax.numpy.min if name.endswith("_min") else jax.numpy.max if name.endswith("_max") else jax.numpy.mean


def run_loop(session: Session, clock: Clock, monitor: Monitor, tracker: Tracker) -> Any:
    """All remaining iterations; returns the final state."""
    run, config, setup = session.run, session.config, session.setup
    step, state = _start(session, monitor)
    saved, pause = time.monotonic(), checkpoint.pause_after(0.0)
    run.rewind_metrics(step)
    in_file = isinstance(session.device_data, FileBatches)
    chunk = (compile_chunk_from_file if in_file else compile_chunk)(session.algorithm, config, setup)
    evaluate = _evaluator(session)
    while step < config.steps:
        length = min(config.chunk, config.steps - step)
        state, metrics = chunk(state, setup.arrays, session.device_data, length=length)
        before, step = step, step + length
        row = {"step": step} | {name: float(value) for name, value in metrics.items()}
        if step // config.evaluate_every > before // config.evaluate_every or step == config.steps:
            row |= evaluate(state)
        _refuse_nan(row)
        run.append_metrics(row)
        tracker.log(row)
        if step == config.steps or time.monotonic() - saved > pause:
            begun = time.monotonic()
            checkpoint.save(run.checkpoints, step, state)
            clock.tick()
            saved = time.monotonic()
            pause = checkpoint.pause_after(saved - begun)
        shown = {name.replace("_", " "): row[name] for name in ("score", *session.algorithm.HEADLINE) if name in row}
        monitor.progress("training", step, config.steps, shown)
    return state


def _start(session: Session, monitor: Monitor) -> tuple[int, Any]:
    """The newest checkpoint, or a new state where there is none: `init` alone may take thousands of steps."""
    config, setup, algorithm = session.config, session.setup, session.algorithm
    init = jax.jit(lambda data, key: algorithm.init(config, setup, data, key))
    data = session.device_data
    key = jax.random.PRNGKey(session.run.read("config")["seed"])
    arguments = (data.columns if isinstance(data, FileBatches) else data), key
    shapes = jax.eval_shape(init, *arguments)  # enough to read a state
    if newest := checkpoint.load_newest(session.run.checkpoints, shapes, monitor.message):
        monitor.message(f"resuming at iteration {newest[0]}")
        return newest
    return 0, init(*arguments)


def _evaluator(session: Session) -> Callable[[Any], dict[str, float]]:
    """Evaluation during training: the true score where there is a simulator, and the model-estimated return."""
    config, setup, task, diagnostics = session.config, session.setup, session.task, session.diagnostics
    actor = actor_by_mode(setup.norm)
    model_return = diagnostics.make_model_return(config, setup, session.data) if diagnostics else None

    def evaluate(state: Any) -> dict[str, float]:
        row = {"model_return": float(model_return(state, setup.arrays))} if model_return else {}
        if task:
            for name, policy in session.algorithm.policies(state).items():
                prefix = "" if name == "policy" else f"{name}_"
                result = evaluate_network(task, actor, policy, config.evaluate_episodes, EVALUATION_SEED)
                row |= {f"{prefix}score": result.score, f"{prefix}return_mean": result.return_mean}
                if result.score_by_regret is not None:
                    row[f"{prefix}score_by_regret"] = result.score_by_regret
        return row

    return evaluate


def _refuse_nan(row: dict[str, float]) -> None:
    for name, value in row.items():
        if not math.isfinite(value):
            raise Diverged(f"training diverged by step {row['step']}: {name} is {value}; lower the learning rates.")


class Clock:
    """Seconds per phase, added up over interruptions, kept in the manifest."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def __call__(self, phase: str) -> Clock:
        self.phase = phase
        return self

    def __enter__(self) -> None:
        self.started = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.tick()

    def tick(self) -> None:
        """Add the time since the last tick; a kill loses no more than that."""
        manifest = self.run.read("manifest")
        now = time.monotonic()
        manifest["timings"][self.phase] = round(manifest["timings"].get(self.phase, 0.0) + now - self.started, 2)
        self.started = now
        self.run.write("manifest", manifest)

    def total(self) -> float:
        return sum(self.run.read("manifest")["timings"].values())
