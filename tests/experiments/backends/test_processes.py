"""Workers are processes with their own cores that end when their parent does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pspo.experiments.backends.processes import ProcessBackend, last_line
from pspo.experiments.jobs import Job, JobOutcome
from pspo.training.request import TrainRequest


def wait(backend: ProcessBackend, worker) -> JobOutcome:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if outcome := backend.poll(worker):
            return outcome
        time.sleep(0.05)
    raise AssertionError("the worker never ended")


def test_a_worker_reports_its_error_in_one_sentence(tmp_path: Path):
    backend = ProcessBackend()
    outcome = wait(backend, backend.start(Job("a", TrainRequest("liquidatoin"), tmp_path / "a")))
    assert outcome.code == 2
    assert not outcome.killed
    assert outcome.message.endswith("unknown dataset 'liquidatoin': did you mean 'liquidation'?")
    assert not (tmp_path / "a").exists()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system cannot pin")
def test_workers_are_pinned_to_different_cores_and_release_them(tmp_path: Path):
    everything = sorted(os.sched_getaffinity(0))
    if len(everything) < 2:
        pytest.skip("one core cannot be shared out")
    backend = ProcessBackend()
    jobs = [Job(name, TrainRequest("liquidation"), tmp_path / name) for name in "ab"]
    workers = [backend.start(job) for job in jobs]
    try:
        assert [len(worker.cores) for worker in workers] == [1, 1]
        assert workers[0].cores != workers[1].cores
        until = time.monotonic() + 30
        while any(os.sched_getaffinity(w.process.pid) != set(w.cores) for w in workers) and time.monotonic() < until:
            time.sleep(0.02)
        for worker in workers:
            assert os.sched_getaffinity(worker.process.pid) == set(worker.cores)
    finally:
        for worker in workers:
            backend.stop(worker)
    assert backend.free == everything


def test_a_killed_worker_is_not_taken_for_a_failed_one(tmp_path: Path):
    backend = ProcessBackend()
    worker = backend.start(Job("a", TrainRequest("liquidation"), tmp_path / "a"))
    worker.process.kill()
    assert wait(backend, worker).killed


def test_workers_end_when_their_parent_is_killed(tmp_path: Path):
    code = (
        "import sys, time; from pathlib import Path; from pspo.experiments.jobs import Job;"
        "from pspo.experiments.backends.processes import ProcessBackend;"
        "from pspo.training.request import TrainRequest;"
        "w = ProcessBackend().start(Job('a', TrainRequest('liquidation', preset='paper'), Path(sys.argv[1])));"
        "print(w.process.pid, flush=True); time.sleep(600)"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "a")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        worker = int(parent.stdout.readline())
        assert alive(worker)
        parent.kill()
    until = time.monotonic() + 30
    while alive(worker) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(worker)


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False


def test_last_line():
    assert last_line("Traceback\n\nKeyError: two\n\n") == "KeyError: two"
    assert last_line("  \n") == ""


def test_a_worker_crash_is_reported_by_the_last_line_of_its_traceback(tmp_path: Path, monkeypatch):
    """A bug in training is no error of the user: the worker dies with a traceback and exit code 1."""
    monkeypatch.setattr(Job, "to_json", lambda job: "{}")
    backend = ProcessBackend()
    outcome = wait(backend, backend.start(Job("a", TrainRequest("liquidation"), tmp_path / "a")))
    assert (outcome.code, outcome.message) == (1, "KeyError: 'request'")


def test_a_worker_sets_its_threads_before_jax_is_imported():
    code = "import sys, pspo.experiments.backends.processes, pspo.experiments.backends.ray; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr
