"""A folder that may not be written to: one sentence that names it, exit code 2, and nothing is changed.

Root may write everywhere, so that a test that runs as root gives up that right for the command.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pspo.cli.main import main
from pspo.evaluation.ope import of_run
from tests.robustness.at_work import TRAIN, one_sentence

VERSION_3, OVERRIDE = 0x20080522, 1 << 1  # of Linux's capabilities: the right to pass over file permissions


@contextlib.contextmanager
def as_everybody() -> Iterator[None]:
    """Without the superuser's right to write where nobody may; for others nothing changes."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, now = (ctypes.c_uint32 * 2)(VERSION_3, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, now) == 0
    less = (ctypes.c_uint32 * 6)(now[0] & ~OVERRIDE, *now[1:])  # of the effective ones: they can be taken back
    assert libc.capset(header, less) == 0
    try:
        yield
    finally:
        assert libc.capset(header, now) == 0


@pytest.fixture
def sealed(whole: Path, monkeypatch) -> Iterator[Path]:
    """A folder that everybody may read and nobody may write, with a run and a dataset in it."""
    with tempfile.TemporaryDirectory(prefix="pspo-sealed-") as place:
        folder = Path(place)
        shutil.copytree(whole, folder / "run")
        shutil.copytree(whole, folder / "unfinished")
        (folder / "unfinished" / "result.json").unlink()
        (folder / "cache").mkdir()
        assert main(["data", "make", "liquidation", "--size", "40", "--out", str(folder / "log.npz")]) == 0
        monkeypatch.setenv("PSPO_CACHE", str(folder / "cache"))
        everything = [folder, *folder.rglob("*")]
        for path in everything:
            path.chmod(0o555 if path.is_dir() else 0o444)
        yield folder
        for path in everything:
            path.chmod(0o755)


def test_nothing_is_written_where_nothing_may_be(sealed: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(of_run, "judge", lambda *_: ([], {}))  # it says in minutes what is then written
    before = {path: path.read_bytes() for path in sealed.rglob("*") if path.is_file()}
    log = sealed / "log.npz"
    grid = ["experiment", "table2", "--preset", "smoke", "--methods", "bc", "--quiet", "--out"]
    for words in (
        [*TRAIN, "--out", sealed / "new"],
        [*TRAIN, "--out", sealed / "new", "--seeds", "2"],
        ["resume", sealed / "unfinished", "--quiet"],
        ["export", sealed / "run", sealed / "policy.onnx"],
        ["report", sealed / "run"],
        ["report", sealed],
        ["ope", sealed / "run", "--quiet"],
        [*grid, sealed / "grid"],
        *(["data", "convert", log, sealed / f"new.{ending}"] for ending in ("npz", "hdf5", "parquet", "csv")),
    ):
        capsys.readouterr()
        with as_everybody():
            code = main(list(map(str, words)))
        said = one_sentence(capsys.readouterr().err)
        assert code == 2, words
        assert str(sealed) in said, words
        assert "Permission denied" in said, words
    assert before == {path: path.read_bytes() for path in sealed.rglob("*") if path.is_file()}
