"""A run that is killed at any moment and resumed equals one that was never stopped, bit for bit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from pspo.cli.main import main
from tests.cli.command_line import PSPO, TINY, pspo, settings

LONG = [*TINY, *settings(steps=1800, chunk=25, evaluate_every=600, evaluate_episodes=200)]


def start(out: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    words = [*PSPO, "train", "liquidation", *LONG, "--out", str(out)]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)


def lines(run: Path) -> int:
    path = run / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def kill_after(process: subprocess.Popen[bytes], run: Path, rows: int, more: float) -> None:
    """A real SIGKILL, `more` seconds after the run has begun and logged `rows` chunks."""
    until = time.monotonic() + 120
    begun = run / "config.json"
    while not (begun.exists() and lines(run) >= rows) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(more)
    process.send_signal(signal.SIGKILL)
    process.wait()


def outcome(run: Path) -> dict[str, bytes]:
    """Every file whose bits must not depend on interruptions."""
    names = ("policy.safetensors", "metrics.jsonl", "metrics.csv", "diagnostics.safetensors", "config.json")
    return {name: (run / name).read_bytes() for name in names}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The run that was never stopped."""
    run = tmp_path_factory.mktemp("whole") / "run"
    done = pspo("train", "liquidation", *LONG, "--out", run)
    assert done.returncode == 0, done.stderr
    return run


def with_own_pool(cache: Path) -> dict[str, str]:
    """A kill while the pool is fitted must not matter either. Compiled programs are shared by all tests."""
    return os.environ | {"PSPO_CACHE": str(cache)}


@pytest.mark.parametrize("rows", [5, *(pytest.param(rows, marks=pytest.mark.slow) for rows in (0, 40))])
def test_a_killed_run_is_resumed_bit_for_bit(whole: Path, tmp_path: Path, rows: int) -> None:
    delay = random.uniform(0.0, 1.5)  # another moment every time
    print(f"killed {delay:.3f} s after row {rows}")  # shown when the test fails
    env = with_own_pool(tmp_path / "cache") if rows == 0 else dict(os.environ)
    run = tmp_path / "run"
    kill_after(start(run, env), run, rows, delay)
    assert not (run / "result.json").exists()
    saved = list(run.glob("checkpoints/[0-9]*.safetensors"))
    done = pspo("resume", run, "--quiet", env=env)
    assert done.returncode == 0, done.stderr
    # From the checkpoint, not from the start: otherwise equal bits would prove nothing.
    assert ("resuming at iteration" in done.stderr) == bool(saved)
    assert "skipping" not in done.stderr
    assert outcome(run) == outcome(whole)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> Path:
    """A run killed when it had at least two checkpoints."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    process = start(run, dict(os.environ))
    until = time.monotonic() + 120
    while len(list(run.glob("checkpoints/*.safetensors"))) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return run


@pytest.mark.slow  # tests/robustness damages checkpoints in more ways, within one process
@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_newest_checkpoint_is_skipped_with_a_message(
    whole: Path, stopped: Path, tmp_path: Path, damage: str
) -> None:
    run = tmp_path / "run"
    subprocess.run(["cp", "-r", stopped, run], check=True)
    newest = max(run.glob("checkpoints/*.safetensors"))
    content = bytearray(newest.read_bytes())
    if damage == "truncated":
        content = content[: len(content) // 2]
    else:
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    newest.write_bytes(content)
    done = pspo("resume", run, "--quiet")
    assert done.returncode == 0, done.stderr
    assert newest.name in done.stderr
    assert done.stderr.count("skipping a damaged checkpoint") == 1
    saved = sorted(int(path.stem) for path in stopped.glob("checkpoints/[0-9]*.safetensors"))
    assert len(saved) >= 2
    assert f"resuming at iteration {saved[-2]}" in done.stderr
    assert outcome(run) == outcome(whole)


def test_resuming_a_finished_run_changes_nothing(whole: Path) -> None:
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    done = pspo("resume", whole)
    assert done.returncode == 0
    assert "finished" in done.stdout
    assert before == {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}


def test_a_finished_run_gets_back_the_files_that_a_kill_prevented(whole: Path, tmp_path: Path, capsys) -> None:
    run = tmp_path / "run"
    subprocess.run(["cp", "-r", whole, run], check=True)
    table = (run / "metrics.csv").read_bytes()
    for name in ("report.html", "metrics.csv"):
        (run / name).unlink()
    assert main(["resume", str(run)]) == 0
    assert "finished already; metrics.csv, report.html was missing and is written again" in capsys.readouterr().out
    assert (run / "metrics.csv").read_bytes() == table
    assert (run / "report.html").read_text().endswith("</html>\n")


def test_a_finished_run_gets_its_policy_from_the_last_checkpoint(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    subprocess.run(["cp", "-r", whole, run], check=True)
    (run / "policy.safetensors").unlink()
    assert main(["resume", str(run), "--quiet"]) == 0
    assert outcome(run) == outcome(whole)
