"""A read-only folder: one sentence that names it, exit code 2, and nothing is changed.

Root may write everywhere, so a test that runs as root gives up that right for the command.
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
from pspo.evaluation.inspect import inspection
from pspo.evaluation.ope import estimate_run
from tests.refusals import one_sentence
from tests.robustness.training_process import TRAIN

VERSION_3, OVERRIDE = 0x20080522, 1 << 1  # of Linux's capabilities: the right to pass over file permissions


@contextlib.contextmanager
def as_everybody() -> Iterator[None]:
    """Without the superuser's right to write everywhere; other users have none to give up."""
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
    """A read-only folder with a run and a dataset in it."""
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


def test_no_command_writes_to_a_read_only_folder(sealed: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(estimate_run, "estimate", lambda *_: ([], {}))  # a real one takes minutes
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
        message = one_sentence(capsys.readouterr().err)
        assert code == 2, words
        assert str(sealed) in message, words
        assert "Permission denied" in message, words
    assert before == {path: path.read_bytes() for path in sealed.rglob("*") if path.is_file()}


def test_inspect_tries_the_folder_of_its_figure_before_it_fits_anything(sealed: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(inspection, "inspect_policy", lambda *_, **__: pytest.fail("this takes minutes"))
    for more in ([], ["--out", str(sealed / "state.png")]):
        with as_everybody():
            assert main(["inspect", str(sealed / "run"), "--row", "0", "--quiet", *more]) == 2
        one_sentence(capsys.readouterr().err, "(Permission denied): give --out")
