"""The training loop around an algorithm that only counts: how a run begins, and how it resumes from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from pspo.core import checkpoint
from pspo.core.progress import silent
from pspo.data.batches import device_dataset
from pspo.runs.directory import Run, create
from pspo.training import loop as training
from pspo.training.monitor import Monitor
from pspo.training.trackers import Tracker
from tests.core.core_cases import small_dataset, small_norm

CONFIG = SimpleNamespace(steps=6, chunk=2, evaluate_every=100, gamma=0.9)


class State(NamedTuple):
    total: jax.Array
    key: jax.Array
    step: jax.Array


class Setup(NamedTuple):
    arrays: Any
    norm: Any


class Counting:
    """An algorithm that adds up random numbers, and counts how often `init` was traced and run."""

    HEADLINE = ("total",)

    def __init__(self) -> None:
        self.traced, self.begun = 0, 0

    def init(self, config: Any, setup: Setup, device_data: Any, key: jax.Array) -> State:
        self.traced += 1
        jax.debug.callback(self._begin)
        return State(device_data.transitions.reward.sum(), key, jnp.int32(0))

    def _begin(self) -> None:
        self.begun += 1

    def begin_chunk(self, config: Any, setup: Setup, device_data: Any, state: State) -> tuple[State, None, dict]:
        return state, None, {}

    def draw(self, config: Any, device_data: Any, key: jax.Array) -> jax.Array:
        return jax.random.normal(key)

    def update(self, config: Any, setup: Setup, context: None, state: State, batch: jax.Array, key: jax.Array) -> Any:
        return state._replace(total=state.total + batch, step=state.step + 1), {"total": state.total}

    def policies(self, state: State) -> dict[str, Any]:
        return {}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return create(tmp_path / "run", {"config": {"algo": "counting", "seed": 3}, "manifest": {"timings": {}}})


@pytest.fixture
def algorithm(monkeypatch) -> Counting:
    monkeypatch.setattr(checkpoint, "pause_after", lambda _: 0.0)  # after every chunk
    return Counting()


def loop(run: Run, algorithm: Any, progress: Any = silent) -> tuple[State, list[str]]:
    """The last state, and the messages."""
    messages: list[str] = []
    data = small_dataset()
    device_data = device_dataset(data, small_norm(), CONFIG.gamma)
    session = training.Session(run, algorithm, CONFIG, Setup(jnp.zeros(()), small_norm()), data, device_data)
    clock = training.Clock(run)
    with clock("train"):
        state = training.run_loop(session, clock, Monitor(progress, messages.append), Tracker())
    jax.effects_barrier()
    return state, messages


def stop_at_4(stage: str, done: int, *_: object) -> None:
    if done == 4:
        raise KeyboardInterrupt


def test_a_resumed_run_is_not_started_again(run: Run, algorithm: Counting, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        loop(run, algorithm, stop_at_4)
    jax.effects_barrier()
    assert (algorithm.traced, algorithm.begun) == (1, 1)
    state, messages = loop(run, algorithm)
    assert messages == ["resuming at iteration 4"]
    assert algorithm.begun == 1
    whole = create(tmp_path / "whole", {name: run.read(name) for name in ("config", "manifest")})
    assert loop(whole, algorithm)[0].total == state.total
    assert whole.metrics() == run.metrics()


def test_a_slow_save_is_followed_by_a_long_pause(run: Run, monkeypatch) -> None:
    """On a fake clock, chunks take 5 seconds each and saves 1 second: 20 of pause, then 5 chunks at the least."""
    now, saves = [0.0], []

    def save(folder: Path, step: int, state: State) -> None:
        saves.append(step)
        now[0] += 1.0

    def chunk_done(*_: object) -> None:
        now[0] += 5.0

    monkeypatch.setattr(checkpoint, "save", save)
    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(CONFIG, "steps", 24)
    loop(run, Counting(), chunk_done)
    assert saves == [4, 14, 24]


def test_a_run_with_damaged_checkpoints_starts_again(run: Run, algorithm: Counting) -> None:
    with pytest.raises(KeyboardInterrupt):
        loop(run, algorithm, stop_at_4)
    for path in run.checkpoints.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    _, messages = loop(run, algorithm)
    assert len(messages) == 2
    assert all("damaged" in sentence for sentence in messages)
    assert algorithm.begun == 2
    assert [row["step"] for row in run.metrics()] == [2, 4, 6]


def test_nothing_is_transferred_per_step(tmp_path: Path, monkeypatch) -> None:
    """Fetched from the device: the metrics of each chunk, however many steps it has, and checkpoints."""
    from jax._src.array import ArrayImpl

    fetched: list[int] = []
    usual = ArrayImpl._value
    monkeypatch.setattr(
        ArrayImpl, "_value", property(lambda array: (fetched.append(1), usual.__get__(array))[1]), raising=True
    )
    counts = []
    for length in (2, 40):
        monkeypatch.setattr(CONFIG, "steps", 3 * length)
        monkeypatch.setattr(CONFIG, "chunk", length)
        files = {"config": {"algo": "counting", "seed": 3}, "manifest": {"timings": {}}}
        fetched.clear()
        loop(create(tmp_path / f"run-{length}", files), Counting())
        counts.append(len(fetched))
    assert counts[0] == counts[1] > 0
