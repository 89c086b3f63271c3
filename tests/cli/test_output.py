"""Output that ends early, has few columns or a small alphabet, and names that look like markup: no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pspo.cli.main import BROKEN_PIPE, main
from tests.cli.command_line import PSPO, pspo
from tests.report.made_up_run import write_run

TABLE = "obs_x{},action,reward,episode\n" + "".join(f"{i % 7},{i % 3 / 2},{i % 5},{i // 20}\n" for i in range(200))
NAME = "x[/nope]\x1b[31m\u202e.csv"  # in a folder x[


def piped(*words: str, reads: int) -> tuple[int, str]:
    """Exit code and stderr of a command whose reader takes only so many bytes."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen([*PSPO, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffered)
    assert process.stdout
    assert process.stderr
    process.stdout.read(reads)
    process.stdout.close()
    errors = process.stderr.read().decode()
    process.stderr.close()
    return process.wait(), errors


@pytest.mark.parametrize("words", [("config", "--algo", "pspo"), ("--help",)])
def test_a_reader_that_closes_the_pipe_is_no_error(words) -> None:
    code, errors = piped(*words, reads=0)
    assert (code, errors) == (BROKEN_PIPE, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_under_stdout_is_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*PSPO, "list"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, "pspo: error: cannot read or write: No space left on device.\n")


def test_a_closed_stdout_is_no_error() -> None:
    done = subprocess.run(
        f"'{sys.executable}' -m pspo list >&-", shell=True, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_messages_of_a_closed_stderr_go_nowhere(closed: str, tmp_path: Path) -> None:
    """As jobs of cron and daemons start programs: no error, and nothing among the results on stdout."""
    words = f"'{sys.executable}' -m pspo train liquidation --algo bc --preset smoke --set steps=20 --episodes 10"
    done = subprocess.run(
        f"{words} --out '{tmp_path}/run' {closed}",
        shell=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0
    assert "training:" not in done.stdout
    assert (tmp_path / "run" / "report.html").exists()


def test_without_any_stream_a_signal_still_ends_a_command() -> None:
    code = "from pspo.cli.signals import exit_now; exit_now(143)"
    closed = subprocess.run(f"'{sys.executable}' -c '{code}' >&- 2>&-", shell=True, timeout=60, check=False)
    assert closed.returncode == 143


def test_ascii_and_twenty_columns(tmp_path: Path) -> None:
    run = write_run(tmp_path / "lauf-ä", policy=None)
    table = tmp_path / "ü.csv"
    table.write_text(TABLE.format("é"))
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "COLUMNS": "20"}
    for words in (["check", table], ["data", "info", table], ["check", tmp_path / "no-ö.csv"], ["train", "--help"]):
        done = pspo(*words, env=environment)
        assert done.returncode == (2 if "no-" in str(words[1]) else 0), done.stderr
        assert "Traceback" not in done.stderr
        assert (done.stdout + done.stderr).isascii()
    code = "from pspo.report.terminal import result_table; from pspo.core.terminal import *; import json, sys\n"
    code += "with readable_output(): result_table(json.load(open(sys.argv[1])))"
    words = [sys.executable, "-c", code, str(run / "result.json")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "+- standard error" in done.stdout
    assert "..." not in done.stdout


def test_a_line_break_in_the_name_of_a_column_breaks_no_sentence(tmp_path: Path, capsys) -> None:
    table = tmp_path / "log.csv"
    table.write_text(TABLE.replace("obs_x{}", '"x\ny"'))
    assert main(["check", str(table)]) == 2
    shown = capsys.readouterr().out
    assert shown.startswith("error: ")
    assert shown.count("\n") == 1
    assert "'x\\ny'" in shown


def test_names_of_files_and_columns_are_text(tmp_path: Path, capsys) -> None:
    table = tmp_path / NAME
    table.parent.mkdir()
    table.write_text(TABLE.format("[bold]\x1b]0;title\x07"))
    assert main(["check", str(table)]) == 0
    assert main(["check", str(table), "--obs", "no_such"]) == 2
    tiny = ["--algo", "bc", "--preset", "smoke", "--quiet", "--out", str(tmp_path / "run")]
    assert main(["train", str(table), *tiny]) == 0
    assert main(["ope", str(tmp_path / "no[/run]\x1b\n")]) == 2
    shown = capsys.readouterr()
    for text in shown:
        assert not set(text) & set("\x1b\x07\u202e")
    assert "x[/nope]" in shown.out.replace("\n", "")
    assert "no[/run]\\x1b\\n" in shown.err
