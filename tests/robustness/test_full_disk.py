"""Files that cannot be written completely: one sentence, nothing half-written, and the earlier file is kept.

The kernel refuses writes past a size per file: the same error path as a full disk, without needing one. Training on
a disk that fills up is in tests/cli/test_bad_input.py; here on a real one, where the system lets us mount it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pspo.cli.main import main
from pspo.evaluation.ope import estimate_run
from tests.refusals import one_sentence
from tests.robustness.training_process import TRAIN, outcome


@contextlib.contextmanager
def at_most(size: int) -> Iterator[None]:
    """No file of this process grows past `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fails(words: list[object], folder: Path, capsys, size: int) -> str:
    """The command's message; the folder must be left as it was."""
    before = contents(folder)
    capsys.readouterr()
    with at_most(size):
        code = main(list(map(str, words)))
    assert code == 2
    message = one_sentence(capsys.readouterr().err)
    assert any(words in message for words in ("File too large", "truncated", "errno = 27")), message
    assert contents(folder) == before
    return message


@pytest.mark.parametrize("ending", ["npz", "hdf5", "parquet", "csv"])
def test_a_failed_conversion_keeps_the_earlier_file(ending: str, tmp_path: Path, capsys) -> None:
    big = tmp_path / "big.npz"
    assert main(["data", "make", "liquidation", "--size", "3000", "--out", str(big)]) == 0
    folder = tmp_path / "out"
    folder.mkdir()
    out = folder / f"log.{ending}"
    assert main(["data", "make", "liquidation", "--size", "40", "--out", str(out)]) == 0
    assert str(out) in fails(["data", "convert", big, out], folder, capsys, 20_000)
    assert main(["data", "convert", str(big), str(out)]) == 0
    out.unlink()
    fails(["data", "convert", big, out], folder, capsys, 20_000)
    assert not list(folder.iterdir())


def test_a_failed_export_report_or_ope_keeps_the_earlier_files(
    whole: Path, tmp_path: Path, capsys, monkeypatch
) -> None:
    run, out = tmp_path / "run", tmp_path / "run" / "policy.onnx"
    shutil.copytree(whole, run)
    monkeypatch.setattr(
        estimate_run, "estimate", lambda *_: ([], {"models": "not asked " * 500})
    )  # a real one takes minutes
    for again in (False, True):
        assert str(out) in fails(["export", run, out], run, capsys, 500)
        assert "report.html" in fails(["report", run], run, capsys, 500)
        assert "ope.json" in fails(["ope", run, "--quiet"], run, capsys, 500)
        if not again:
            assert main(["export", str(run), str(out)]) == 0
            assert main(["report", str(run)]) == 0
            assert main(["ope", str(run), "--quiet"]) == 0


def test_a_run_stopped_by_a_full_disk_is_resumed_when_there_is_room(whole: Path, tmp_path: Path, capsys) -> None:
    """Resumed from its last checkpoint on a full disk, and again when there is room."""
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    for name in ("result.json", "policy.safetensors", "metrics.csv", "report.html"):
        (run / name).unlink()
    before = {name: (run / name).read_bytes() for name in ("config.json", "metrics.jsonl")}
    with at_most(1000):  # enough for the manifest, not for a policy
        assert main(["resume", str(run), "--quiet"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[-1].startswith("pspo: error: cannot read or write")
    assert "Traceback" not in "".join(lines)
    assert before["config.json"] == (run / "config.json").read_bytes()
    assert not (run / "result.json").exists()
    assert not list(run.rglob(".*"))
    assert main(["resume", str(run), "--quiet"]) == 0
    assert outcome(run) == outcome(whole)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True)
    if made.returncode:
        pytest.skip("this system does not allow mounting")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.slow
def test_training_on_a_mounted_disk_that_is_full(whole: Path, tiny_disk: Path) -> None:
    (tiny_disk / "ballast").write_bytes(bytes(44 * 1024))
    words = [sys.executable, "-m", "pspo", *TRAIN, "--out", str(tiny_disk / "run")]
    full = subprocess.run(words, capture_output=True, text=True, timeout=300, env=dict(os.environ))
    assert full.returncode == 2, full.stderr
    assert "No space left on device" in one_sentence(full.stderr)
    assert not list(tiny_disk.rglob(".*"))
    (tiny_disk / "ballast").unlink()
    again = [sys.executable, "-m", "pspo", "resume", str(tiny_disk / "run"), "--quiet"]
    done = subprocess.run(again, capture_output=True, text=True, timeout=300, env=dict(os.environ))
    if done.returncode:  # the report, which is written last, is larger than the disk
        assert "report.html" in done.stderr
    assert outcome(tiny_disk / "run") == outcome(whole)
