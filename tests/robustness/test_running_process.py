"""A run that is being trained: other writers are refused, a signal stops it, and it is resumed bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pspo.cli.main import main
from tests.refusals import one_sentence
from tests.robustness.training_process import LONG, TRAIN, outcome, saved, started, wait_until


def test_a_second_writer_is_refused_and_a_terminated_run_is_resumed(whole: Path, tmp_path: Path, capsys) -> None:
    run = tmp_path / "run"
    with started(*TRAIN, "--out", run) as process:
        wait_until(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_text(), process)
        process.send_signal(signal.SIGSTOP)  # paused, however fast this machine is
        assert not (run / "result.json").exists()
        for words, code, says in (
            ([*TRAIN, "--out", str(run)], 2, "use `pspo resume`"),
            (["resume", str(run), "--quiet"], 2, "is being written by another process"),
            (["export", str(run), str(tmp_path / "policy.onnx")], 2, "is not finished"),
            (["ope", str(run)], 2, "is not finished"),
        ):
            assert main(words) == code
            assert says in one_sentence(capsys.readouterr().err)
        assert main(["report", str(run)]) == 0
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        sent = time.monotonic()
        _, errors = process.communicate(timeout=120)
        print(f"it took {time.monotonic() - sent:.1f} s")
    assert process.returncode == 143
    assert "pspo: note: stopped; `pspo resume` continues from the last checkpoint." in errors
    assert "Traceback" not in errors
    assert not (run / "result.json").exists()
    assert not list(run.rglob(".*"))
    begun = bool(saved(run))
    assert main(["resume", str(run), "--quiet"]) == 0
    assert ("resuming at iteration" in capsys.readouterr().err) == begun
    assert outcome(run) == outcome(whole)


@pytest.mark.slow
def test_two_processes_started_at_once_do_not_share_a_run_directory(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with started(*TRAIN, "--out", run) as one, started(*TRAIN, "--out", run) as two:
        ends = {process.communicate(timeout=300)[1] and process.returncode for process in (one, two)}
        assert {one.returncode, two.returncode} == {0, 2}, ends
    assert outcome(run) == outcome(whole)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_to_seeds_leave_no_worker_behind(number: int, code: int, tmp_path: Path) -> None:
    words = [*TRAIN, "--seeds", "2", "--out", str(tmp_path / "seeds")]
    _stop_and_repeat(words, tmp_path / "seeds", "seed-*", number, code)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_to_an_experiment_leave_no_worker_behind(number: int, code: int, tmp_path: Path) -> None:
    words = ["experiment", "table2", "--preset", "smoke", "--methods", "bc", "--seeds", "2", "--episodes", "200"]
    words += ["--quiet", "--out", str(tmp_path / "grid")]
    words += [word for key, value in LONG.items() for word in ("--set", f"{key}={value}")]
    _stop_and_repeat(words, tmp_path / "grid", "runs/*/*/seed-*", number, code)


def _stop_and_repeat(words: list[str], folder: Path, runs: str, number: int, code: int) -> None:
    with started(*words) as process:
        wait_until(lambda: any(saved(run) for run in folder.glob(runs)), process)
        workers = children(process.pid)
        assert workers
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert "pspo: note: stopped; run the same command again to continue." in errors
    assert "Traceback" not in errors
    until = time.monotonic() + 10
    while any(map(alive, workers)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, workers))
    done = subprocess.run([sys.executable, "-m", "pspo", *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    seeds = sorted(json.loads((run / "result.json").read_text())["seed"] for run in folder.glob(runs))
    assert seeds == [0, 1]


def children(parent: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(place.parent.name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_an_ignored_signal_stays_ignored() -> None:
    """As under a parent like nohup, whose decision the command keeps."""
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code += "from pspo.cli.signals import handle_signals\nimport os\n"
    code += "with handle_signals(): os.kill(os.getpid(), signal.SIGTERM)\nprint('still here')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert done.stdout == "still here\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_inside_a_garbage_collector_callback_is_not_lost(number: int) -> None:
    """Python drops exceptions there, and JAX is there so often that every third signal was lost."""
    code = (
        "import gc, os, signal, time\nfrom pspo.cli.signals import handle_signals\nsent = []\n"
        # As in a terminal: tests in the background may be started with Ctrl-C ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"def callback(*_):\n    if not sent: sent.append(1); os.kill(os.getpid(), {int(number)})\n"
        "gc.callbacks.append(callback)\n"
        "try:\n    with handle_signals():\n        gc.collect()\n        time.sleep(20)\n        print('lost')\n"
        "except KeyboardInterrupt as stop: print(type(stop).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == ("Terminated" if number == signal.SIGTERM else "KeyboardInterrupt"), done.stderr
    assert done.stderr == ""
