"""Training on transitions that stay in their file: the bits are those of training in memory."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from pspo.algorithms import ALGORITHMS, get_algorithm, preset
from pspo.algorithms.contract import Algorithm
from pspo.cli.main import main
from pspo.core.config import build
from pspo.core.errors import UserError
from pspo.core.progress import silent
from pspo.data import load_dataset, save_dataset
from pspo.data.batches import device_dataset
from pspo.data.file_batches import FileBatches
from pspo.training.loop import compile_chunk, compile_chunk_from_file
from pspo.training.monitor import SILENT, Monitor
from pspo.training.train import resume, train
from tests.core.core_cases import small_dataset

LITTLE = "0.0001"  # GiB: less than the arrays take, more than one number per row does
SETTINGS = {"steps": 25, "chunk": 10, "evaluate_every": 25, "width": 16, "batch": 32}
FROM_FILE = [name for name, row in ALGORITHMS.items() if row.from_file]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save_dataset(small_dataset(1000), tmp_path / "data.hdf5")


def trained(run: Path) -> dict[str, Any]:
    files = {name: (run / name).read_bytes() for name in ("policy.safetensors", "metrics.jsonl")}
    return files | {"hash": json.loads((run / "manifest.json").read_text())["data_hash"]}


def test_a_run_from_the_file_gives_the_bits_of_one_in_memory(path: Path, tmp_path: Path, monkeypatch) -> None:
    train(path, "bc", "smoke", out=tmp_path / "memory", settings=SETTINGS, monitor=SILENT)
    monkeypatch.setenv("PSPO_MEMORY", LITTLE)
    messages: list[str] = []
    train(path, "bc", "smoke", out=tmp_path / "file", settings=SETTINGS, monitor=Monitor(message=messages.append))
    assert f"the transitions do not fit into memory: they stay in {path}, and batches are read from it." in messages
    assert trained(tmp_path / "file") == trained(tmp_path / "memory")

    def stop(stage: str, done: int, *_: object) -> None:
        if stage == "training" and done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(path, "bc", "smoke", out=tmp_path / "stopped", settings=SETTINGS, monitor=Monitor(stop, SILENT.message))
    monkeypatch.delenv("PSPO_MEMORY")  # it may be resumed in memory
    resume(tmp_path / "stopped", monitor=SILENT)
    assert trained(tmp_path / "stopped") == trained(tmp_path / "memory")


SLOW = {"cql", "dmg", "iql", "oraac", "td3bc"}  # to compile; and compiled as tests are, IQL rounds otherwise


@pytest.mark.parametrize("algo", [pytest.param(a, marks=[pytest.mark.slow] if a in SLOW else []) for a in FROM_FILE])
def test_chunks_from_the_file_have_the_bits_of_chunks_in_memory(algo: str, path: Path, monkeypatch) -> None:
    algorithm: Algorithm = get_algorithm(algo)
    config: Any = build(algorithm.Config, preset(algo, "smoke", None) | {"width": 16, "batch": 32, "chunk": 5})
    whole = load_dataset(path)
    monkeypatch.setenv("PSPO_MEMORY", LITTLE)
    in_file = load_dataset(path)
    assert in_file.mapped_file is not None
    setup, _ = algorithm.prepare(config, whole, 0, silent)
    both = device_dataset(whole, setup.norm, config.gamma), FileBatches(in_file, setup.norm)
    init = jax.jit(lambda data, key: algorithm.init(config, setup, data, key))
    states = [init(data, jax.random.PRNGKey(3)) for data in (both[0], both[1].columns)]
    chunks = compile_chunk(algorithm, config, setup), compile_chunk_from_file(algorithm, config, setup)
    for _ in range(2):
        done = [c(s, setup.arrays, data, length=5) for c, s, data in zip(chunks, states, both, strict=True)]
        states = [state for state, _ in done]
        jax.tree.map(np.testing.assert_array_equal, *done)


def test_the_next_batches_are_read_during_a_chunk_and_used_only_where_they_belong(path: Path, monkeypatch) -> None:
    algorithm: Algorithm = get_algorithm("bc")
    settings = {"width": 16, "batch": 32, "chunk": 5, "steps": 13}
    config: Any = build(algorithm.Config, preset("bc", "smoke", None) | settings)
    whole = load_dataset(path)
    monkeypatch.setenv("PSPO_MEMORY", LITTLE)
    setup, _ = algorithm.prepare(config, whole, 0, silent)
    data, batches = device_dataset(whole, setup.norm, config.gamma), FileBatches(load_dataset(path), setup.norm)
    first = jax.jit(lambda data, key: algorithm.init(config, setup, data, key))(data, jax.random.PRNGKey(3))
    in_memory, from_file = compile_chunk(algorithm, config, setup), compile_chunk_from_file(algorithm, config, setup)
    reads, read = [], FileBatches.read
    monkeypatch.setattr(FileBatches, "read", lambda *given: reads.append(1) or read(*given))

    def follow(state: Any, lengths: list[int]) -> list[int]:
        """How often was read up to the end of each chunk."""
        reads.clear()
        counts = []
        for length in lengths:
            mine, theirs = (f(state, (), d, length=length) for f, d in ((from_file, batches), (in_memory, data)))
            jax.tree.map(np.testing.assert_array_equal, mine, theirs)
            state = mine[0]
            counts.append(len(reads))
        return counts

    assert follow(first, [5, 5, 3]) == [2, 3, 3]
    assert follow(first, [5]) == [2]
    assert follow(first, [5]) == [2]  # not those of the chunk after it
    later = first._replace(step=first.step + 5)
    assert follow(later._replace(key=jax.random.PRNGKey(4)), [5]) == [2]  # nor those of another key
    assert follow(first, [5, 2]) == [2, 4]  # nor of another length


@pytest.mark.parametrize("changes", ["key", "step"])
def test_an_algorithm_that_draws_otherwise_is_refused(path: Path, monkeypatch, changes: str) -> None:
    algorithm: Algorithm = get_algorithm("bc")
    config: Any = build(algorithm.Config, preset("bc", "smoke", None) | {"width": 16, "batch": 32, "chunk": 5})
    monkeypatch.setenv("PSPO_MEMORY", LITTLE)
    in_file = load_dataset(path)
    setup, _ = algorithm.prepare(config, in_file, 0, silent)
    batches = FileBatches(in_file, setup.norm)

    def update(*given: Any) -> tuple[Any, dict[str, jax.Array]]:
        state, metrics = algorithm.update(*given)
        return state._replace(**{changes: getattr(state, changes) + 1}), metrics

    other: Any = SimpleNamespace(**{**vars(algorithm), "update": update})
    state = jax.jit(lambda key: algorithm.init(config, setup, batches.columns, key))(jax.random.PRNGKey(3))
    with pytest.raises(UserError, match="leave FROM_FILE out of the module"):
        compile_chunk_from_file(other, config, setup)(state, (), batches, length=5)


def test_other_algorithms_are_refused(path: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("PSPO_MEMORY", LITTLE)
    for algo, label in (("pspo", "PSPO"), ("epq", "EPQ")):
        assert main(["train", str(path), "--algo", algo, "--out", str(tmp_path / "run")]) == 2
        error = " ".join(capsys.readouterr().err.split())
        assert f"{label} needs all transitions in memory, where those of 'dataset' do not fit: choose bc, cql" in error
    assert not (tmp_path / "run").exists()


def test_a_file_that_changes_stops_the_run(path: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("PSPO_MEMORY", LITTLE)

    def change(stage: str, done: int, *_: object) -> None:
        if stage == "training" and done == 10:
            path.touch()

    with pytest.raises(UserError, match="has changed while its rows were in use"):
        train(path, "bc", "smoke", out=tmp_path / "run", settings=SETTINGS, monitor=Monitor(change, SILENT.message))


def test_batches_that_do_not_fit_are_refused(path: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PSPO_MEMORY", LITTLE)
    large = SETTINGS | {"batch": 1000}
    with pytest.raises(UserError, match=r"batches of one chunk of iterations take .* lower chunk or batch\."):
        train(path, "bc", "smoke", out=tmp_path / "run", settings=large, monitor=SILENT)
    assert not (tmp_path / "run").exists()
