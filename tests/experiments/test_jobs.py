"""The scheduler by itself: which job starts when, which is retried, what is reported."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pspo.core.errors import UserError
from pspo.experiments import jobs as module
from pspo.experiments.jobs import MAX_TRIES, Job, JobListener, JobOutcome, RunsFailed, execute, run_jobs
from pspo.runs import directory
from pspo.runs.directory import begun
from pspo.training import train as training
from pspo.training.request import TrainRequest
from tests.report.made_up_run import write_run


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(module, "POLL_SECONDS", 0.0)


class Scripted:
    """A backend without processes: each job has a list of outcomes, one per try, and takes some polls to reach it."""

    remote = False
    shares_cache = True

    def __init__(self, at_once: int, outcomes: dict[str, list[JobOutcome]] | None = None, polls: int = 1) -> None:
        self.at_once, self.outcomes, self.polls = at_once, outcomes or {}, polls
        self.log: list[str] = []
        self.most = 0
        self.working: set[int] = set()
        self.on_start: Callable[[Job], None] = lambda job: None

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def has_room(self, running: int) -> bool:
        return running < self.at_once

    def check(self, jobs) -> None:
        self.checked = [job.name for job in jobs]

    def start(self, job: Job) -> list:
        self.log.append(job.name)
        self.on_start(job)
        handle = [job, self.polls]
        self.working.add(id(handle))
        self.most = max(self.most, len(self.working))
        return handle

    def poll(self, handle: list) -> JobOutcome | None:
        handle[1] -= 1
        if handle[1] > 0:
            return None
        self.working.discard(id(handle))
        job = handle[0]
        outcome = self.outcomes.get(job.name, [JobOutcome(0)]).pop(0)
        if outcome.code == 0:
            job.run.mkdir(parents=True, exist_ok=True)
            (job.run / "result.json").write_text("{}")
        return outcome

    def stop(self, handle: list) -> None:
        self.log.append(f"stopped {handle[0].name}")


def make_jobs(tmp_path: Path, *names: str, models: str = "") -> list[Job]:
    return [Job(name, TrainRequest("liquidation"), tmp_path / name, models=models) for name in names]


def test_jobs_run_in_order_and_no_more_at_once_than_there_is_room(tmp_path):
    backend = Scripted(2, polls=3)
    assert run_jobs(make_jobs(tmp_path, *"abcde"), backend) == {}
    assert backend.log == list("abcde")
    assert backend.most == 2


def test_finished_jobs_are_not_run_again(tmp_path):
    jobs = make_jobs(tmp_path, *"abc")
    run_jobs(jobs[:2], Scripted(1))
    backend = Scripted(1)
    run_jobs(jobs, backend)
    assert backend.log == ["c"]


def test_a_failure_is_reported_and_the_other_jobs_run(tmp_path):
    backend = Scripted(1, {"b": [JobOutcome(2, "the data are damaged")]})
    ended = []
    failed = run_jobs(
        make_jobs(tmp_path, *"abc"), backend, JobListener(ended=lambda job, why: ended.append((job.name, why)))
    )
    assert failed == {"b": "the data are damaged"}
    assert ended == [("a", ""), ("b", "the data are damaged"), ("c", "")]
    assert backend.log == list("abc")  # a job that reports an error is not retried


def test_a_failure_keeps_other_jobs_from_starting_where_that_is_wanted(tmp_path):
    backend = Scripted(1, {"b": [JobOutcome(2, "no")]})
    assert run_jobs(make_jobs(tmp_path, *"abc"), backend, stop_at_failure=True) == {"b": "no"}
    assert backend.log == ["a", "b"]


def test_a_job_whose_worker_is_killed_is_retried_but_not_forever(tmp_path):
    backend = Scripted(1, {"a": [JobOutcome(-9), JobOutcome(0)], "b": [JobOutcome(-9, "killed")] * MAX_TRIES})
    again = []
    failed = run_jobs(make_jobs(tmp_path, *"ab"), backend, JobListener(retried=lambda job, why: again.append(job.name)))
    assert failed == {"b": "killed"}
    assert backend.log == ["a", "a"] + ["b"] * MAX_TRIES
    assert again == ["a"] + ["b"] * (MAX_TRIES - 1)


def test_a_worker_that_reports_success_without_a_result_has_failed(tmp_path):
    class Liar(Scripted):
        def poll(self, handle: list) -> JobOutcome | None:
            return JobOutcome(0)

    assert "no message" in run_jobs(make_jobs(tmp_path, "a"), Liar(1))["a"]


def test_no_job_occupies_a_core_to_wait_for_models_of_another(tmp_path):
    """While a fits its models, b, which needs the same, is not started: c is first."""
    a, b = make_jobs(tmp_path, *"ab", models="hopper's")
    (c,) = make_jobs(tmp_path, "c", models="other")
    (d,) = make_jobs(tmp_path, "d")
    backend = Scripted(2, polls=2)
    together = []

    def note(job: Job) -> None:
        together.append(job.name)
        job.run.mkdir(parents=True, exist_ok=True)

    backend.on_start = note
    run_jobs([a, b, c, d], backend)
    assert together[:2] == ["a", "c"]
    assert sorted(together) == list("abcd")


def test_fitted_models_delay_no_job(tmp_path):
    a, b = make_jobs(tmp_path, *"ab", models="hopper's")
    backend = Scripted(2, polls=3)

    def fitted(job: Job) -> None:
        job.run.mkdir(parents=True, exist_ok=True)
        (job.run / "models.json").write_text("{}")

    backend.on_start = fitted
    run_jobs([a, b], backend)
    assert backend.most == 2


def test_an_interrupt_stops_the_workers(tmp_path):
    backend = Scripted(2, polls=10)

    def interrupted(job: Job) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(make_jobs(tmp_path, *"ab"), backend, JobListener(running=interrupted))
    assert backend.log == ["a", "b", "stopped a", "stopped b"]


@pytest.fixture
def calls(monkeypatch) -> list[tuple]:
    """Calls of train and resume, which do nothing."""
    seen: list[tuple] = []
    monkeypatch.setattr(training, "train", lambda dataset, *_, out, **more: seen.append(("train", dataset, out)))
    monkeypatch.setattr(training, "resume", lambda run, **_: seen.append(("resume", run)))
    return seen


def test_a_job_is_trained_resumed_or_started_over_after_an_early_kill(tmp_path, calls):
    (job,) = make_jobs(tmp_path, "a")
    assert execute(job) == JobOutcome(0)
    job.run.mkdir()
    (job.run / "config.json").write_text("{}")  # killed between the first file and the second
    assert not begun(job.run)
    assert not any(job.run.iterdir())  # `create` takes an empty folder
    for name in ("config", "manifest"):
        (job.run / f"{name}.json").write_text("{}")
    assert execute(job) == JobOutcome(0)
    assert calls == [("train", "liquidation", job.run), ("resume", job.run)]
    assert job.run.exists()


def test_a_run_that_another_process_is_creating_is_left_alone(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text("{}")
    answers: list[bool] = []
    with directory._held(run):  # as `create` does between its two files
        asking = threading.Thread(target=lambda: answers.append(begun(run)))
        asking.start()
        asking.join(0.2)
        assert (run / "config.json").exists()
        assert not answers
        (run / "manifest.json").write_text("{}")
    asking.join()
    assert answers == [True]
    assert (run / "config.json").exists()


def test_a_run_that_lost_its_manifest_is_not_removed(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(UserError, match=r"has no manifest\.json, but it has checkpoints: restore it"):
        begun(tmp_path)
    assert (tmp_path / "config.json").exists()


def test_a_repeated_command_writes_the_report_that_a_kill_prevented(tmp_path):
    jobs = make_jobs(tmp_path, "a", "b")
    for job in jobs:
        write_run(job.run)
    (jobs[1].run / "metrics.jsonl").unlink()
    (jobs[1].run / "metrics.jsonl").mkdir()
    failures = run_jobs(jobs, Scripted(1))
    assert (jobs[0].run / "report.html").exists()
    assert list(failures) == ["b"]


def test_the_backend_is_asked_before_anything_starts(tmp_path):
    backend = Scripted(1)
    backend.check = raising(UserError("not shared"))
    with pytest.raises(UserError, match="not shared"):
        run_jobs(make_jobs(tmp_path, "a"), backend)
    assert backend.log == []


def test_expected_errors_become_outcomes_and_bugs_keep_their_traceback(tmp_path, monkeypatch):
    (job,) = make_jobs(tmp_path, "a")
    problems = {
        UserError("no"): JobOutcome(2, "no"),
        OSError(28, "full", "x"): JobOutcome(2, "cannot read or write x: full."),
    }
    for problem, outcome in problems.items():
        monkeypatch.setattr(training, "train", raising(problem))
        assert execute(job) == outcome
    monkeypatch.setattr(training, "train", raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        execute(job)


def raising(problem: BaseException) -> Callable:
    def train(*_: object, **__: object) -> None:
        raise problem

    return train


def test_a_job_survives_the_way_to_its_worker(tmp_path):
    settings = {"steps": 5, "posterior": "uniform", "reference_term": False, "beta": float("inf")}
    request = TrainRequest("log.csv", "bc", "smoke", 3, settings, {"obs": "x*,y", "action": ["u"]}, "hopper", 7)
    job = Job("a b", request, tmp_path / "a b", 2, trackers=("tensorboard", "mlflow"), models='["x"]')
    assert Job.from_json(job.to_json()) == job
    assert request.columns == {"obs": ["x*", "y"], "action": ["u"]}


def test_the_error_of_several_runs_names_the_first_and_carries_all():
    problem = RunsFailed({"seed 1": "no data.", "seed 2": "no data."}, results="the others")
    assert str(problem) == "2 runs failed, first seed 1: no data."
    assert (len(problem.failures), problem.results) == (2, "the others")
