"""The number of threads, from an option or from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from pspo.cli.main import main
from pspo.core.compute import MOST_THREADS, require_threads, threads, threads_of_environment
from pspo.core.errors import UserError


@pytest.mark.parametrize("wanted", [-1, 0, MOST_THREADS + 1, 10**9])
def test_a_number_of_threads_that_no_machine_has_is_refused(wanted: int) -> None:
    """A hundred thousand threads took gigabytes and never began."""
    with pytest.raises(UserError, match=f"--threads {wanted} is out of range: it must lie between 1 and 1024"):
        require_threads(wanted)
    assert require_threads(MOST_THREADS) == MOST_THREADS


@pytest.mark.parametrize("text", ["two", "0", "-1", "1.5", "100000", "²", "1e1"])
def test_a_wrong_environment_is_one_sentence(text: str, monkeypatch, capsys, tmp_path: Path) -> None:
    monkeypatch.setenv("NPROC", text)
    with pytest.raises(UserError, match="NPROC"):
        threads()
    assert main(["train", "liquidation", "--dry-run", "--out", str(tmp_path / "run")]) == 2
    assert f"the environment variable NPROC is '{text}': set it to a number" in capsys.readouterr().err


def test_an_empty_environment_is_none(monkeypatch) -> None:
    monkeypatch.setenv("NPROC", " 3 ")
    assert threads_of_environment(7) == 3
    monkeypatch.setenv("NPROC", "")
    assert threads_of_environment(7) == 7
