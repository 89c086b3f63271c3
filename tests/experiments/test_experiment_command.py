"""`pspo experiment` as users call it: results, pages, resuming after a kill, bad input."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

import pspo
from pspo.cli.main import main
from pspo.experiments import plan
from pspo.experiments.declarations import get_experiment
from pspo.report import records
from pspo.runs.directory import Run
from pspo.training.monitor import SILENT
from tests.experiments.grids import GRID, SETTINGS, checkpointed, finish, outcome, start, wait_for


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The grid that was never stopped."""
    out = tmp_path_factory.mktemp("grid")
    code, output, errors = finish(start(out))
    assert code == 0, errors
    assert str(out / "table2" / "report.html") in output
    return out


def test_results_hold_every_cell_and_its_command(whole: Path):
    results = records.load(whole / "table2")
    assert (results.datasets, results.methods) == (["liquidation"], {"bc": "BC"})
    assert [record.status for record in results.records] == ["finished", "finished"]
    for record in results.records:
        run = Run(whole / "table2" / record.run)
        assert record.result == run.result
        assert record.command.startswith("pspo train liquidation --algo bc --preset smoke")
        assert f"--seed {record.seed}" in record.command
        assert len(record.curve) == 2
    assert "pspo experiment table2" in results.command
    assert results.published["liquidation"]["pspo"] == [102.3, 1.5]


def test_finished_cells_are_not_run_again(whole: Path, capsys):
    before = {path: path.stat().st_mtime_ns for path in whole.glob("runs/**/*.safetensors")}
    assert main([*GRID, "--out", str(whole)]) == 0
    assert {path: path.stat().st_mtime_ns for path in whole.glob("runs/**/*.safetensors")} == before


def test_experiments_share_their_runs(whole: Path):
    """Only the name of the experiment differs: nothing is trained again."""
    before = {path: path.stat().st_mtime_ns for path in whole.glob("runs/**/*.safetensors")}
    words = ["experiment", "table3", *GRID[2:], "--datasets", "liquidation", "--out", str(whole)]
    assert main(words) == 0
    assert {path: path.stat().st_mtime_ns for path in whole.glob("runs/**/*.safetensors")} == before
    assert (whole / "table3" / "report.html").exists()


def test_a_killed_grid_is_resumed_bit_for_bit(whole: Path, tmp_path: Path):
    process = start(tmp_path)
    wait_for(lambda: checkpointed(tmp_path), process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list(tmp_path.glob("runs/*/*/seed-1/result.json"))
    code, _, errors = finish(start(tmp_path))
    assert code == 0, errors
    assert outcome(tmp_path) == outcome(whole)


def test_a_failed_cell_is_reported_and_the_others_run(whole: Path, tmp_path: Path):
    """One dataset is damaged; the runs on the other one are finished all the same."""
    (tmp_path / "hopper-medium.hdf5").write_bytes(b"no HDF5 at all")
    words = ["--datasets", "liquidation", tmp_path / "hopper-medium.hdf5", "--methods", "bc"]
    code, output, errors = finish(start(whole, *words))
    assert code == 2
    assert "hopper-medium bc seed 0 failed" in errors
    assert "hopper-medium.hdf5" in errors
    results = records.load(whole / "table2")
    assert [(r.dataset, r.status) for r in results.records] == [
        ("liquidation", "finished"),
        ("hopper-medium", "failed"),
    ] * 2
    assert str(whole / "table2" / "report.html") in output


def test_an_existing_run_with_other_settings_is_refused(whole: Path, tmp_path: Path, capsys):
    config = next(whole.glob("runs/liquidation/*/seed-0/config.json"))
    text = config.read_text()
    try:
        config.write_text(json.dumps(json.loads(text) | {"preset": "paper"}))
        assert main([*GRID, "--out", str(whole)]) == 2
        assert "preset=paper" in capsys.readouterr().err
    finally:
        config.write_text(text)


def test_an_existing_run_on_other_data_is_refused(whole: Path, capsys):
    manifest = next(whole.glob("runs/liquidation/*/seed-1/manifest.json"))
    text = manifest.read_text()
    try:
        manifest.write_text(json.dumps(json.loads(text) | {"data_hash": "0" * 64}))
        assert main([*GRID, "--out", str(whole)]) == 2
        assert "other data" in capsys.readouterr().err
    finally:
        manifest.write_text(text)


@pytest.fixture
def no_timing(monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a dry run must not time anything without --time")

    monkeypatch.setattr(plan, "estimate_cost", fail)


DRY = ["experiment", "table2", "--preset", "smoke", "--seeds", "3", "--dry-run", "--quiet", "--out"]


def row_of(output: str, method: str) -> str:
    (line,) = [line for line in output.splitlines() if line.split()[1:2] == [method]]
    return line


def test_a_dry_run_lists_all_cells_without_timing_or_writing(no_timing, tmp_path: Path, capsys):
    assert main([*DRY, str(tmp_path / "none")]) == 0
    output = capsys.readouterr().out
    for method in get_experiment("table2").methods:
        assert "0 to 2" in row_of(output, method)
        assert "to be run" in row_of(output, method)
    assert "runs             27, of which 0 are finished" in output
    assert "add --time" in output
    assert not (tmp_path / "none").exists()


def test_a_dry_run_takes_minutes_from_finished_runs(no_timing, whole: Path, capsys):
    """BC's are known from the grid, for its own number of iterations; TD3+BC's are not."""
    assert main([*DRY, str(whole), "--methods", "bc"]) == 0
    output = capsys.readouterr().out
    assert "second" in row_of(output, "bc")
    assert "total            about" in output
    assert main([*DRY, str(whole), "--methods", "bc", "td3bc"]) == 0
    output = capsys.readouterr().out
    assert "second" in row_of(output, "bc")
    assert "time             not known for td3bc: add --time" in output
    assert main([*GRID, "--out", str(whole), "--dry-run"]) == 0
    assert "2 of 2 finished" in row_of(capsys.readouterr().out, "bc")


def test_a_dry_run_times_the_methods_where_that_is_asked_for(tmp_path: Path, capsys):
    assert main([*DRY, str(tmp_path / "none"), "--methods", "bc", "td3bc", "--time"]) == 0
    output = capsys.readouterr().out
    for method in ("bc", "td3bc"):
        assert "GiB" in row_of(output, method)
        assert "second" in row_of(output, method) or "minute" in row_of(output, method)
    assert "total            about" in output
    assert not (tmp_path / "none").exists()


def test_run_experiment_returns_results_and_raises_with_failures(whole: Path, tmp_path: Path):
    settings = {key: str(value) for key, value in SETTINGS.items()}
    more = {"methods": ["bc"], "out": whole, "episodes": 200, "settings": settings}
    results = pspo.run_experiment(pspo.ExperimentRequest("table2", "smoke", 2, **more), monitor=SILENT)
    assert [record.status for record in results.records] == ["finished", "finished"]
    assert results == records.load(whole / "table2")
    (tmp_path / "hopper-medium.hdf5").write_bytes(b"no HDF5 at all")
    bad = pspo.ExperimentRequest("table2", "smoke", 1, datasets=[str(tmp_path / "hopper-medium.hdf5")], **more)
    with pytest.raises(
        pspo.RunsFailed, match=r"one run failed, hopper-medium bc seed 0: .*hopper-medium\.hdf5"
    ) as error:
        pspo.run_experiment(bad, monitor=SILENT)
    assert list(error.value.failures) == ["hopper-medium bc seed 0"]
    assert [record.status for record in error.value.results.records] == ["failed"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["table2", "--seeds", "0"], "--seeds 0 is out of range"),
        (["table2", "--methods", "psop"], "did you mean 'pspo'"),
        (["table2", "--datasets", "nonsense"], "unknown dataset 'nonsense'"),
        (["table2", "--preset", "huge"], "unknown preset 'huge'"),
        (["table2", "--set", "stepz=4"], "unknown key 'stepz'"),
        (["table2", "--address", "auto"], "add --backend ray"),
        (["table2", "--time"], "add --dry-run"),
        (["table2", "--at-once", "0"], "--at-once 0 is out of range"),
        (["table1", "--data", "/nowhere"], "is not a folder"),
        (["table2", "--episodes", "0"], "episodes=0 is out of range"),
        (["overhead", "--methods", "average-utilisation"], "name algorithms"),
        (["overhead", "--datasets", "liquidation"], "leave --datasets out"),
        (["overhead", "--backend", "ray"], "leave --backend ray out"),
    ],
)
def test_bad_input_is_reported_in_one_sentence(tmp_path: Path, capsys, words, complaint):
    assert main(["experiment", *words, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_an_unknown_experiment_lists_the_known_ones(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["experiment", "table9"])
    assert ended.value.code == 2
    assert "table1" in capsys.readouterr().err


# pspo report


def test_the_page_of_an_experiment_is_written_again_from_its_results(whole: Path, tmp_path: Path, capsys):
    """The runs are not needed."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "results.json").write_bytes((whole / "table2" / "results.json").read_bytes())
    assert main(["report", str(kept)]) == 0
    assert capsys.readouterr().out.splitlines() == [str(kept / n) for n in ("report.html", "table.md", "table.tex")]
    assert (kept / "table.md").read_text() == (whole / "table2" / "table.md").read_text()


def test_one_page_shows_runs_of_several_folders(whole: Path, tmp_path: Path, capsys):
    runs = sorted(whole.glob("runs/liquidation/*"))
    assert main(["report", *map(str, runs), "--out", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page" / "report.html").read_text()
    for run in runs[0].glob("seed-*"):
        assert f"--seed {run.name.removeprefix('seed-')}" in page
    assert "bc" in (tmp_path / "page" / "table.md").read_text()


def test_the_report_of_a_single_run_is_its_own_page(whole: Path, capsys):
    run = next(whole.glob("runs/liquidation/*/seed-0"))
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out.strip() == str(run / "report.html")


@pytest.mark.parametrize(("folder", "complaint"), [("nowhere", "there is no folder"), ("", "there is no run")])
def test_folders_without_runs_are_refused(tmp_path: Path, capsys, folder, complaint):
    assert main(["report", str(tmp_path / folder)]) == 2
    assert complaint in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_results_that_cannot_be_read_are_refused(tmp_path: Path, capsys):
    (tmp_path / "results.json").write_text('{"records": [{"what": 1}]}')
    assert main(["report", str(tmp_path)]) == 2
    assert str(tmp_path / "results.json") in capsys.readouterr().err
