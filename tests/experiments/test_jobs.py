"""The scheduler by itself: what starts when, what is tried again, what is reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pspo.experiments import jobs as module
from pspo.experiments.jobs import TRIES, Ended, Job, Watch, run_jobs, started


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(module, "POLL_SECONDS", 0.0)


class Scripted:
    """A backend without processes: each job has a list of endings, one per try, and takes some looks to reach it."""

    def __init__(self, at_once: int, endings: dict[str, list[Ended]] | None = None, looks: int = 1) -> None:
        self.at_once, self.endings, self.looks = at_once, endings or {}, looks
        self.log: list[str] = []
        self.most = 0
        self.working: set[int] = set()
        self.on_start: Callable[[Job], None] = lambda job: None

    def room(self, running: int) -> bool:
        return running < self.at_once

    def start(self, job: Job) -> list:
        self.log.append(job.name)
        self.on_start(job)
        handle = [job, self.looks]
        self.working.add(id(handle))
        self.most = max(self.most, len(self.working))
        return handle

    def ended(self, handle: list) -> Ended | None:
        handle[1] -= 1
        if handle[1] > 0:
            return None
        self.working.discard(id(handle))
        job = handle[0]
        end = self.endings.get(job.name, [Ended(0)]).pop(0)
        if end.code == 0:
            job.run.mkdir(parents=True, exist_ok=True)
            (job.run / "result.json").write_text("{}")
        return end

    def stop(self, handle: list) -> None:
        self.log.append(f"stopped {handle[0].name}")


def made(tmp_path: Path, *names: str, models: str = "") -> list[Job]:
    return [Job(name, tmp_path / name, ["train", "liquidation"], models=models) for name in names]


def test_all_jobs_run_in_order_and_no_more_at_once_than_there_is_room(tmp_path):
    backend = Scripted(2, looks=3)
    assert run_jobs(made(tmp_path, *"abcde"), backend) == {}
    assert backend.log == list("abcde")
    assert backend.most == 2


def test_finished_jobs_are_not_run_again(tmp_path):
    jobs = made(tmp_path, *"abc")
    run_jobs(jobs[:2], Scripted(1))
    backend = Scripted(1)
    run_jobs(jobs, backend)
    assert backend.log == ["c"]


def test_a_failure_is_reported_and_the_rest_goes_on(tmp_path):
    backend = Scripted(1, {"b": [Ended(2, "the data are damaged")]})
    said = []
    failed = run_jobs(made(tmp_path, *"abc"), backend, Watch(ended=lambda job, why: said.append((job.name, why))))
    assert failed == {"b": "the data are damaged"}
    assert said == [("a", ""), ("b", "the data are damaged"), ("c", "")]
    assert backend.log == list("abc")  # what a job says is wrong with it is not tried again


def test_a_failure_ends_the_rest_where_that_is_wanted(tmp_path):
    backend = Scripted(1, {"b": [Ended(2, "no")]})
    assert run_jobs(made(tmp_path, *"abc"), backend, stop_at_failure=True) == {"b": "no"}
    assert backend.log == ["a", "b"]


def test_a_job_whose_worker_dies_is_taken_up_again_and_not_for_ever(tmp_path):
    backend = Scripted(1, {"a": [Ended(-9), Ended(0)], "b": [Ended(-9, "killed")] * TRIES})
    again = []
    failed = run_jobs(made(tmp_path, *"ab"), backend, Watch(again=lambda job, why: again.append(job.name)))
    assert failed == {"b": "killed"}
    assert backend.log == ["a", "a"] + ["b"] * TRIES
    assert again == ["a"] + ["b"] * (TRIES - 1)


def test_a_worker_that_ends_well_without_a_result_has_failed(tmp_path):
    class Liar(Scripted):
        def ended(self, handle: list) -> Ended | None:
            return Ended(0)

    assert "said nothing" in run_jobs(made(tmp_path, "a"), Liar(1))["a"]


def test_nobody_waits_for_models_that_another_job_is_fitting(tmp_path):
    """While a's models are being fitted, b, which needs the same, stands back and c goes first."""
    a, b = made(tmp_path, *"ab", models="hopper's")
    (c,) = made(tmp_path, "c", models="other")
    (d,) = made(tmp_path, "d")
    backend = Scripted(2, looks=2)
    together = []

    def note(job: Job) -> None:
        together.append(job.name)
        job.run.mkdir(parents=True, exist_ok=True)

    backend.on_start = note
    run_jobs([a, b, c, d], backend)
    assert together[:2] == ["a", "c"]
    assert sorted(together) == list("abcd")


def test_models_that_are_there_hold_nobody_back(tmp_path):
    a, b = made(tmp_path, *"ab", models="hopper's")
    backend = Scripted(2, looks=3)

    def fitted(job: Job) -> None:
        job.run.mkdir(parents=True, exist_ok=True)
        (job.run / "models.json").write_text("{}")

    backend.on_start = fitted
    run_jobs([a, b], backend)
    assert backend.most == 2


def test_an_interrupt_stops_the_workers(tmp_path):
    backend = Scripted(2, looks=10)

    def interrupted(job: Job) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(made(tmp_path, *"ab"), backend, Watch(working=interrupted))
    assert backend.log == ["a", "b", "stopped a", "stopped b"]


def test_words_train_anew_resume_or_sweep_what_a_kill_left(tmp_path):
    (job,) = made(tmp_path, "a")
    assert job.words()[:2] == ["train", "liquidation"]
    assert job.words()[2:4] == ["--out", str(job.run)]
    job.run.mkdir()
    (job.run / "config.json").write_text("{}")  # killed between the first file and the second
    assert not started(job.run)
    assert not job.run.exists()
    job.run.mkdir()
    for name in ("config", "manifest"):
        (job.run / f"{name}.json").write_text("{}")
    assert job.words()[:2] == ["resume", str(job.run)]
    assert job.run.exists()
