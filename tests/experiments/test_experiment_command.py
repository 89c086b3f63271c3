"""`pspo experiment` as a user has it: results, pages, going on after a kill, bad input."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from pspo.cli.main import main
from pspo.report import records
from pspo.runs.directory import Run
from tests.experiments.grids import GRID, checkpointed, finish, outcome, start, wait_for


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The grid that was never stopped."""
    out = tmp_path_factory.mktemp("grid")
    code, said, complained = finish(start(out))
    assert code == 0, complained
    assert str(out / "table2" / "report.html") in said
    return out


def test_results_hold_every_cell_and_what_runs_it_again(whole: Path):
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


def test_another_experiment_takes_the_same_runs(whole: Path):
    """Only the name differs: nothing is trained for the figure."""
    before = {path: path.stat().st_mtime_ns for path in whole.glob("runs/**/*.safetensors")}
    words = ["experiment", "table3", *GRID[2:], "--datasets", "liquidation", "--out", str(whole)]
    assert main(words) == 0
    assert {path: path.stat().st_mtime_ns for path in whole.glob("runs/**/*.safetensors")} == before
    assert (whole / "table3" / "report.html").exists()


def test_a_killed_grid_goes_on_to_the_same_bits(whole: Path, tmp_path: Path):
    process = start(tmp_path)
    wait_for(lambda: checkpointed(tmp_path), process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list(tmp_path.glob("runs/*/*/seed-1/result.json"))
    code, _, complained = finish(start(tmp_path))
    assert code == 0, complained
    assert outcome(tmp_path) == outcome(whole)


def test_a_failed_cell_is_reported_and_the_rest_goes_on(whole: Path, tmp_path: Path):
    """MuJoCo's data cannot be had without a network; the other dataset is finished all the same."""
    (tmp_path / "hopper-medium.hdf5").write_bytes(b"no HDF5 at all")
    words = ["--datasets", "liquidation", tmp_path / "hopper-medium.hdf5", "--methods", "bc"]
    code, said, complained = finish(start(whole, *words))
    assert code == 2
    assert "hopper-medium bc seed 0 failed" in complained
    assert "hopper-medium.hdf5" in complained
    results = records.load(whole / "table2")
    assert [(r.dataset, r.status) for r in results.records] == [
        ("liquidation", "finished"),
        ("hopper-medium", "failed"),
    ] * 2
    assert str(whole / "table2" / "report.html") in said


def test_a_run_of_other_settings_is_refused_before_anything_runs(whole: Path, tmp_path: Path, capsys):
    config = next(whole.glob("runs/liquidation/*/seed-0/config.json"))
    text = config.read_text()
    try:
        config.write_text(json.dumps(json.loads(text) | {"preset": "paper"}))
        assert main([*GRID, "--out", str(whole)]) == 2
        assert "preset=paper" in capsys.readouterr().err
    finally:
        config.write_text(text)


def test_other_data_under_the_same_name_are_refused(whole: Path, capsys):
    manifest = next(whole.glob("runs/liquidation/*/seed-1/manifest.json"))
    text = manifest.read_text()
    try:
        manifest.write_text(json.dumps(json.loads(text) | {"data_hash": "0" * 64}))
        assert main([*GRID, "--out", str(whole)]) == 2
        assert "other data" in capsys.readouterr().err
    finally:
        manifest.write_text(text)


def test_dry_run_lists_the_cells_and_writes_nothing(tmp_path: Path, capsys):
    words = ["experiment", "table2", "--preset", "smoke", "--methods", "bc", "td3bc", "--seeds", "3", "--dry-run"]
    assert main([*words, "--out", str(tmp_path / "none"), "--quiet"]) == 0
    said = capsys.readouterr().out
    for method in ("bc", "td3bc"):
        (line,) = [line for line in said.splitlines() if line.split()[1:2] == [method]]
        assert "0 to 2" in line
        assert "GiB" in line
        assert "second" in line or "minute" in line
    assert "in all" in said
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["table2", "--seeds", "0"], "--seeds 0 is out of range"),
        (["table2", "--methods", "psop"], "did you mean 'pspo'"),
        (["table2", "--datasets", "nonsense"], "unknown dataset 'nonsense'"),
        (["table2", "--preset", "huge"], "unknown preset 'huge'"),
        (["table2", "--set", "stepz=4"], "pspo: unknown key 'stepz'"),
        (["table2", "--address", "auto"], "add --backend ray"),
        (["table1", "--data", "/nowhere"], "is not a folder"),
        (["table2", "--episodes", "0"], "episodes=0 is out of range"),
        (["overhead", "--methods", "average-utilisation"], "name algorithms"),
        (["overhead", "--datasets", "liquidation"], "--datasets means nothing there"),
        (["overhead", "--backend", "ray"], "leave --backend ray out"),
    ],
)
def test_bad_input_gets_one_sentence(tmp_path: Path, capsys, words, complaint):
    assert main(["experiment", *words, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_unknown_experiments_name_the_known(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["experiment", "table9"])
    assert ended.value.code == 2
    assert "table1" in capsys.readouterr().err


# pspo report


def test_the_page_of_an_experiment_is_made_anew_from_its_results(whole: Path, tmp_path: Path, capsys):
    """Without the runs: the kept file is enough."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "results.json").write_bytes((whole / "table2" / "results.json").read_bytes())
    assert main(["report", str(kept)]) == 0
    assert capsys.readouterr().out.splitlines() == [str(kept / n) for n in ("report.html", "table.md", "table.tex")]
    assert (kept / "table.md").read_text() == (whole / "table2" / "table.md").read_text()


def test_runs_of_any_kind_are_gathered_into_one_page(whole: Path, tmp_path: Path, capsys):
    runs = sorted(whole.glob("runs/liquidation/*"))
    assert main(["report", *map(str, runs), "--out", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page" / "report.html").read_text()
    for run in runs[0].glob("seed-*"):
        assert f"--seed {run.name.removeprefix('seed-')}" in page
    assert "bc" in (tmp_path / "page" / "table.md").read_text()


def test_a_single_run_keeps_its_own_page(whole: Path, capsys):
    run = next(whole.glob("runs/liquidation/*/seed-0"))
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out.strip() == str(run / "report.html")


@pytest.mark.parametrize(("folder", "complaint"), [("nowhere", "there is no folder"), ("", "there is no run")])
def test_folders_without_runs_are_said(tmp_path: Path, capsys, folder, complaint):
    assert main(["report", str(tmp_path / folder)]) == 2
    assert complaint in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_results_of_another_version_are_refused(tmp_path: Path, capsys):
    (tmp_path / "results.json").write_text('{"records": [{"what": 1}]}')
    assert main(["report", str(tmp_path)]) == 2
    assert "does not hold results of this version" in capsys.readouterr().err
