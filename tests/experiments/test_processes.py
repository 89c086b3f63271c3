"""Workers are processes with cores of their own that do not outlive the one who started them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pspo.experiments.backends.processes import Processes, last_line
from pspo.experiments.jobs import Ended, Job


def wait(backend: Processes, worker) -> Ended:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if end := backend.ended(worker):
            return end
        time.sleep(0.05)
    raise AssertionError("the worker never ended")


def test_what_a_worker_says_last_is_what_went_wrong(tmp_path: Path):
    backend = Processes()
    end = wait(backend, backend.start(Job("a", tmp_path / "a", ["train", "liquidatoin"])))
    assert end.code == 2
    assert not end.died
    assert "did you mean 'liquidation'" in end.said
    assert not end.said.startswith("pspo:")
    assert not (tmp_path / "a").exists()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system pins nothing")
def test_workers_are_pinned_to_different_cores_and_give_them_back(tmp_path: Path):
    everything = sorted(os.sched_getaffinity(0))
    if len(everything) < 2:
        pytest.skip("one core cannot be shared out")
    backend = Processes()
    jobs = [Job(name, tmp_path / name, ["train", "liquidation"]) for name in "ab"]
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


def test_a_killed_worker_has_died_and_not_failed(tmp_path: Path):
    backend = Processes()
    worker = backend.start(Job("a", tmp_path / "a", ["train", "liquidation"]))
    worker.process.kill()
    assert wait(backend, worker).died


def test_workers_end_when_their_parent_is_killed(tmp_path: Path):
    code = (
        "import sys, time; from pathlib import Path; from pspo.experiments.jobs import Job;"
        "from pspo.experiments.backends.processes import Processes;"
        "w = Processes().start(Job('a', Path(sys.argv[1]), ['train', 'liquidation', '--preset', 'paper']));"
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
    assert last_line("pspo: one\n\npspo: two\n\n") == "two"
    assert last_line("  \n") == ""
