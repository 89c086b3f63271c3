"""A run that is being trained: others are refused or served, a signal ends it, and it goes on to the same bits."""

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
from tests.robustness.at_work import LONG, TRAIN, one_sentence, outcome, saved, started, wait_until


def test_a_second_process_is_refused_and_sigterm_leaves_a_run_that_goes_on(whole: Path, tmp_path: Path, capsys) -> None:
    run = tmp_path / "run"
    with started(*TRAIN, "--out", run) as process:
        wait_until(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_text(), process)
        process.send_signal(signal.SIGSTOP)  # held in its middle, however fast this machine is
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
        _, said = process.communicate(timeout=120)
        print(f"it took {time.monotonic() - sent:.1f} s")
    assert process.returncode == 143
    assert "pspo: stopped; `pspo resume` goes on from the last checkpoint." in said
    assert "Traceback" not in said
    assert not (run / "result.json").exists()
    assert not list(run.rglob(".*"))
    begun = bool(saved(run))
    assert main(["resume", str(run), "--quiet"]) == 0
    assert ("resuming at iteration" in capsys.readouterr().err) == begun
    assert outcome(run) == outcome(whole)


@pytest.mark.slow
def test_two_that_begin_at_once_do_not_share_a_directory(whole: Path, tmp_path: Path) -> None:
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
        _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "pspo: stopped; the same command goes on where it stopped." in said
    assert "Traceback" not in said
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


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """As under nohup-like parents: the command does not take back what they decided."""
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code += "from pspo.cli.signals import heeding_signals\nimport os\n"
    code += "with heeding_signals(): os.kill(os.getpid(), signal.SIGTERM)\nprint('still here')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert done.stdout == "still here\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_inside_a_callback_of_the_garbage_collector_is_not_lost(number: int) -> None:
    """Where Python drops exceptions, and where JAX is so often that every third signal found it there."""
    code = (
        "import gc, os, signal, time\nfrom pspo.cli.signals import heeding_signals\nsent = []\n"
        # As a terminal has it: whoever runs the tests in the background may have Ctrl-C ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"def callback(*_):\n    if not sent: sent.append(1); os.kill(os.getpid(), {int(number)})\n"
        "gc.callbacks.append(callback)\n"
        "try:\n    with heeding_signals():\n        gc.collect()\n        time.sleep(20)\n        print('lost')\n"
        "except KeyboardInterrupt as stop: print(type(stop).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == ("Terminated" if number == signal.SIGTERM else "KeyboardInterrupt"), done.stderr
    assert done.stderr == ""
