"""Runs on machines that share no folder: trained on copies, sent back as bytes, and the same bit for bit."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from pspo.data import load_dataset, save_dataset
from pspo.experiments.backends import copies
from pspo.experiments.backends.copies import execute_copy, files_of, store
from pspo.experiments.jobs import Job, execute, write_missing_report
from pspo.runs.directory import Run, begun
from pspo.training.request import TrainRequest

SETTINGS = {"steps": 60, "chunk": 20, "evaluate_every": 60, "evaluate_episodes": 20}
SAME = ("policy.safetensors", "metrics.jsonl", "metrics.csv", "config.json", "result.json")


def without_time(name: str, content: bytes) -> object:
    """A result also states its seconds."""
    return {k: v for k, v in json.loads(content).items() if "second" not in k} if name == "result.json" else content


def outcome(run: Path) -> dict[str, object]:
    return {name: without_time(name, (run / name).read_bytes()) for name in SAME}


def names_of(run: Path) -> list[str]:
    """But for checkpoints, whose number depends on the time that saving takes."""
    return sorted(name for name in files_of(run) if not name.startswith("checkpoints"))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """On a file, trained in place."""
    folder = tmp_path_factory.mktemp("runs")
    path = save_dataset(load_dataset("liquidation", size=400), folder / "liquidation-own.npz")
    request = TrainRequest(str(path), "bc", "smoke", 3, SETTINGS, task="liquidation", episodes=50)
    job = Job("a", request, folder / "seed-3")
    assert execute(job).code == 0
    return job


def moved(job: Job, folder: Path) -> Job:
    return dataclasses.replace(job, run=folder / "elsewhere" / job.run.name)


def data_of(job: Job) -> bytes:
    return Path(job.request.dataset).read_bytes()


def test_a_copy_gives_the_run_that_training_in_place_gives(job: Job, tmp_path: Path) -> None:
    remote = moved(job, tmp_path)
    ended, files = execute_copy(remote, {}, data_of(job))
    assert (ended.code, ended.message) == (0, "")
    assert not remote.run.exists()
    store(remote.run, files)
    write_missing_report(remote)
    assert outcome(remote.run) == outcome(job.run)
    assert names_of(remote.run) == names_of(job.run)
    page, place = (remote.run / "report.html").read_text(), str(remote.run)
    assert place in page
    assert "pspo-run-" not in page + "".join(map(str, files.values()))


def test_what_is_stored_of_a_run_is_resumed(job: Job, tmp_path: Path) -> None:
    """From its checkpoint: the metrics before it are those that were sent."""
    stopped = tmp_path / job.run.name
    shutil.copytree(job.run, stopped)
    for name in ("result.json", "policy.safetensors", "report.html"):
        (stopped / name).unlink()
    remote = dataclasses.replace(job, run=stopped)
    sent = files_of(stopped)
    (first, *_) = sorted(name for name in sent if name.startswith("checkpoints"))
    sent = {name: content for name, content in sent.items() if name == first or not name.startswith("checkpoints")}
    ended, files = execute_copy(remote, sent, data_of(job))
    assert ended.code == 0, ended.message
    assert files[first] == sent[first]
    assert json.loads(sent["manifest.json"])["models"] == json.loads(files["manifest.json"])["models"]
    store(stopped, files)
    assert outcome(stopped) == outcome(job.run)


def test_an_error_names_the_paths_of_the_user(job: Job, tmp_path: Path) -> None:
    remote = moved(job, tmp_path)
    ended, files = execute_copy(remote, {}, b"not an archive")
    assert ended.code == 2
    assert "pspo-run-" not in ended.message
    assert job.request.dataset in ended.message
    assert files == {}


@pytest.mark.parametrize("written", range(5))
def test_storing_can_be_interrupted_at_any_file(job: Job, tmp_path: Path, monkeypatch, written: int) -> None:
    """What is there then is no run, or one to resume; never a finished one."""
    run, files, count = tmp_path / "seed-3", files_of(job.run), 0
    stale = run / "checkpoints" / "0000000020.safetensors"

    def failing(path: Path, content: bytes) -> None:
        nonlocal count
        count += 1
        if count > written:
            raise OSError(28, "No space left on device")
        path.write_bytes(content)

    with monkeypatch.context() as patch:
        patch.setattr(copies, "write_atomic", failing)
        with pytest.raises(OSError, match="No space"):
            store(run, files)
    assert not Run(run).finished
    assert begun(run) == (written >= 2)
    stale.parent.mkdir(parents=True, exist_ok=True)
    stale.write_bytes(b"of an earlier try")
    store(run, files)
    assert files_of(run) == files
