"""Limits of memory: the machine's, those of control groups of both versions, and the process's own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from pspo.core import memory
from pspo.core.errors import UserError

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch) -> Path:
    """A made-up /sys/fs/cgroup; this process is in job/task."""
    monkeypatch.setattr(memory, "CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(memory, "OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    (tmp_path / "job" / "task").mkdir(parents=True)
    (tmp_path / "memory" / "job" / "task").mkdir(parents=True)
    return tmp_path


def test_without_groups_it_is_the_machine(groups: Path) -> None:
    assert memory.memory_limit() == MACHINE


@pytest.mark.parametrize("inner", ["job/task", "job", ""])
def test_any_group_around_the_process_may_limit_it(groups: Path, inner: str) -> None:
    (groups / "own").write_text("0::/job/task\n")
    (groups / "job" / "task" / "memory.max").write_text("max\n")
    (groups / inner / "memory.max").write_text("5000\n")
    assert memory.memory_limit() == 5000


@pytest.mark.parametrize("inner", ["job/task", "job", ""])
def test_groups_of_version_1(groups: Path, inner: str) -> None:
    (groups / "own").write_text("7:cpu,memory:/job/task\n3:pids:/job\n")
    (groups / "memory" / "job" / "task" / "memory.limit_in_bytes").write_text(f"{2**63 - 4096}\n")
    (groups / "memory" / inner / "memory.limit_in_bytes").write_text("6000\n")
    assert memory.memory_limit() == 6000


def test_a_container_that_sees_only_its_own_group(groups: Path) -> None:
    (groups / "own").write_text("0::/../../elsewhere\n")
    (groups / "memory.max").write_text("7000\n")
    assert memory.memory_limit() == 7000


@pytest.mark.parametrize("text", ["", "nonsense", "::", "0:", "\x00"])
def test_odd_files_are_no_limit(groups: Path, text: str) -> None:
    (groups / "own").write_text(text)
    (groups / "memory.max").write_text("-1")
    assert memory.memory_limit() == MACHINE


def test_the_limit_of_the_process_counts(groups: Path, monkeypatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8000, resource.RLIM_INFINITY))
    assert memory.memory_limit() == 8000


def test_the_peak_counts_what_was_freed_and_nothing_of_the_parent() -> None:
    """A small program that is started by one that holds 300 MB, then holds 60 MB for a moment."""
    child = "from pspo.core.memory import peak_memory; a = peak_memory(); b'1' * 60_000_000; print(a, peak_memory())"
    parent = f"import subprocess, sys; held = b'1' * 300_000_000; subprocess.run([sys.executable, '-c', {child!r}])"
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before < 150_000_000
    assert after - before > 50_000_000


def test_the_user_may_allow_less(groups: Path, monkeypatch) -> None:
    monkeypatch.setenv("PSPO_MEMORY", "0.5")
    assert memory.memory_limit() == 2**29
    monkeypatch.setenv("PSPO_MEMORY", "1e9")
    assert memory.memory_limit() == MACHINE


@pytest.mark.parametrize("given", ["0", "-1", "8 GiB", "nan", "inf"])
def test_what_the_user_allows_is_a_number(monkeypatch, given: str) -> None:
    monkeypatch.setenv("PSPO_MEMORY", given)
    with pytest.raises(UserError, match=f"PSPO_MEMORY is '{given}': set it to a number of GiB, such as 8."):
        memory.memory_limit()
