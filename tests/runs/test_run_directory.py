"""The run directory: created completely or not at all, never over another one, and exact again after a kill."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pspo.core.errors import UserError
from pspo.evaluation.run_inputs import finished_run
from pspo.runs import directory as runs
from pspo.runs.directory import Run, create, free_path, open_run, writing
from pspo.runs.export import export_policy
from tests.refusals import message_of

FILES = {"config": {"algo": "pspo", "settings": {}}, "manifest": {"timings": {}}}


def refusal(path: Path) -> str:
    return message_of(create, path, FILES, naming=path)


# Creation


def test_a_new_run_has_its_first_files(tmp_path) -> None:
    run = create(tmp_path / "a" / "b", FILES)
    assert sorted(os.listdir(run.path)) == ["config.json", "manifest.json"]
    assert open_run(run.path).read("config") == FILES["config"]
    assert not run.finished
    run.write("result", {"score": 1.0})
    assert run.finished
    assert run.result == {"score": 1.0}


def test_an_empty_folder_is_used(tmp_path) -> None:
    assert create(tmp_path, FILES).read("manifest") == FILES["manifest"]


def test_a_folder_with_anything_in_it_is_refused_and_left_alone(tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "another --out" in refusal(tmp_path)
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_run_is_not_written_over(tmp_path) -> None:
    create(tmp_path / "run", FILES)
    assert "pspo resume" in refusal(tmp_path / "run")


def test_a_file_in_the_way_is_refused(tmp_path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "exists already" in refusal(tmp_path / "file")


def test_a_path_below_a_file_is_refused(tmp_path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "cannot write" in refusal(tmp_path / "file" / "run")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_parent_that_forbids_writing_leaves_nothing(tmp_path, monkeypatch) -> None:
    def forbidden(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", forbidden)
    assert "Permission denied" in refusal(tmp_path / "a" / "run")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("exists_before", [False, True])
def test_a_disk_that_fills_up_in_the_middle_leaves_nothing(tmp_path, monkeypatch, exists_before) -> None:
    place = tmp_path / "a" / "b" / "run"
    if exists_before:
        place.mkdir(parents=True)
    real, calls = runs.write_json, []

    def second_fails(path: Path, value: object) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(path, value)

    monkeypatch.setattr(runs, "write_json", second_fails)
    assert "No space left" in refusal(place)
    assert len(calls) == 2
    left = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert left == []
    assert (tmp_path / "a").exists() == exists_before


def test_a_folder_without_a_run_is_not_opened(tmp_path) -> None:
    with pytest.raises(UserError, match="not a run directory"):
        open_run(tmp_path)


# Metrics


def test_metrics_come_back_in_order_and_as_a_table(tmp_path) -> None:
    run = Run(tmp_path)
    assert run.metrics() == []
    rows = [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25, "score": 99.0}]
    for row in rows:
        run.append_metrics(row)
    assert run.metrics() == rows
    run.write_metrics_table()
    with open(tmp_path / "metrics.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert table == [{"step": "1", "loss": "0.5", "score": ""}, {"step": "2", "loss": "0.25", "score": "99.0"}]


def test_a_number_that_is_not_finite_is_not_logged(tmp_path) -> None:
    run = Run(tmp_path)
    with pytest.raises(ValueError):
        run.append_metrics({"step": 1, "loss": float("nan")})
    run.rewind_metrics(10)
    assert run.metrics() == []


def lines(run: Run) -> str:
    return (run.path / "metrics.jsonl").read_text()


def test_rewinding_drops_what_came_after_the_checkpoint(tmp_path) -> None:
    run = Run(tmp_path)
    for step in (10, 20, 30, 40):
        run.append_metrics({"step": step})
    run.rewind_metrics(20)
    assert lines(run) == '{"step": 10}\n{"step": 20}\n'
    run.append_metrics({"step": 30})
    assert [row["step"] for row in run.metrics()] == [10, 20, 30]
    run.rewind_metrics(0)
    assert run.metrics() == []


def test_rewinding_removes_a_line_cut_off_anywhere(tmp_path) -> None:
    run = Run(tmp_path)
    cut = '{"step": 30, "loss": 0.125}'
    for length in range(len(cut)):
        (tmp_path / "metrics.jsonl").write_text('{"step": 10}\n{"step": 20}\n' + cut[:length])
        run.rewind_metrics(1000)
        assert [row["step"] for row in run.metrics()] == [10, 20]
        run.append_metrics({"step": 30})
        assert [row["step"] for row in run.metrics()] == [10, 20, 30]


def test_a_last_line_without_a_newline_is_kept(tmp_path) -> None:
    run = Run(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"step": 10}\n{"step": 20}')
    run.rewind_metrics(20)
    run.append_metrics({"step": 30})
    assert [row["step"] for row in run.metrics()] == [10, 20, 30]


def test_rewinding_a_run_without_metrics(tmp_path) -> None:
    run = Run(tmp_path)
    run.rewind_metrics(0)
    assert run.metrics() == []


# Names


def test_a_free_path_counts_up(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen = []
    for _ in range(3):
        path = free_path("x")
        seen.append(str(path))
        path.mkdir(parents=True)
    assert seen == ["runs/x", "runs/x-2", "runs/x-3"]
    Path("runs/x-2").rmdir()
    assert str(free_path("x")) == "runs/x-2"
    assert str(free_path("y")) == "runs/y"


# What a killed process leaves


def test_temporary_files_of_a_killed_process_are_removed_by_the_next_writer(tmp_path) -> None:
    run = create(tmp_path / "run", FILES)
    left = [".manifest.json.abcd_123", ".metrics.jsonl.abcd1234", ".policy.safetensors.abcd1234"]
    others = [".report.html.abcd1234", ".comparison.json.abcd1234", ".mine", ".notes.json.abcd1234"]
    for name in (*left, *others):  # a report may be written by another process right now
        (run.path / name).write_text("x")
    with writing(run):
        assert {path.name for path in run.path.iterdir()} == {"config.json", "manifest.json", *others}


def test_a_folder_with_temporary_files_of_a_killed_process_is_empty(tmp_path) -> None:
    (tmp_path / ".config.json.abcd1234").write_text("{")
    assert sorted(os.listdir(create(tmp_path, FILES).path)) == ["config.json", "manifest.json"]


@pytest.mark.parametrize("use", [finished_run, lambda path: export_policy(path, path / "x.onnx")])
def test_a_command_in_a_message_can_be_pasted(tmp_path, use) -> None:
    run = create(tmp_path / "my run", FILES).path
    message_of(use, run, naming=f"`pspo resume '{run}'`")


# One writer


def test_a_run_has_one_writer_at_a_time(tmp_path) -> None:
    """Another process is refused in one sentence, and the run is free again when the first is done with it."""
    run = create(tmp_path / "run", FILES)
    with writing(run):
        with pytest.raises(UserError, match="is being written by another process"), writing(Run(run.path)):
            pytest.fail("two writers")
        held = 'import sys; from pspo.runs.directory import *\nwith writing(Run(sys.argv[1])): print("in")'
        done = subprocess.run([sys.executable, "-c", held, str(run.path)], capture_output=True, text=True)
        assert "in" not in done.stdout
        assert "is being written by another process" in done.stderr
    with writing(run):
        pass
