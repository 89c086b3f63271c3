"""A user without a home or an entry in the password file, as in containers; a read-only folder of Matplotlib.

Root starts the commands as such a user. The user may read everything, as Python may be in root's own folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.made_up_run import write_run

USER = 12345
READS_ALL = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
AS_NOBODY = (
    ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *READS_ALL],
    ["unshare", "--user", f"--map-user={USER}", f"--map-group={USER}"],
)
PROBE = """
import os, pwd, pspo
try:
    pwd.getpwuid(os.getuid())
except KeyError:
    print(os.getuid())
"""


def environment(**more: str) -> dict[str, str]:
    """Nothing but what finds Python's modules, and what makes a test of it short."""
    kept = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS", "NPROC", "PYTHONPATH")
    found = {name: os.environ[name] for name in kept if name in os.environ}
    return {"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"} | found | more


@pytest.fixture(scope="module")
def nobody() -> list[str]:
    """The words before a command that start it as the user."""
    for words in AS_NOBODY:
        try:
            done = subprocess.run(
                [*words, sys.executable, "-c", PROBE], env=environment(), capture_output=True, text=True, timeout=120
            )
        except OSError:
            continue
        if done.stdout.strip() == str(USER):
            return words
    pytest.skip("nothing here can start a command as another user")


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A folder that this user may write to, in which `matplotlib` is read-only."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder.stat().st_mode & 0o055 != 0o055:
            folder.chmod(0o755)
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o777)
    (place / "matplotlib").mkdir(mode=0o555)
    return place


def pspo(nobody: list[str], folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """`pspo WORDS`, with everything it writes in the folder."""
    given = environment(MPLCONFIGDIR=str(folder / "matplotlib"), TMPDIR=str(folder))
    command = [*nobody, sys.executable, "-m", "pspo", *map(str, words)]
    done = subprocess.run(command, env=given, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert "Traceback" not in done.stdout + done.stderr
    return done


def test_data_are_checked_and_errors_are_sentences(nobody: list[str], sealed: Path) -> None:
    done = pspo(nobody, sealed, "list")
    assert (done.returncode, done.stderr) == (0, "")
    done = pspo(nobody, sealed, "train", "liquidation", "--preset", "smoke", "--out", sealed / "matplotlib" / "run")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]  # Matplotlib has its own lines before
    assert last.startswith("pspo: error: ")
    assert "(Permission denied): choose another --out." in last


@pytest.mark.slow  # without a cache from before: everything is compiled, and Matplotlib looks for its fonts
def test_training_and_the_report_need_neither_home_nor_name(nobody: list[str], sealed: Path) -> None:
    words = ["liquidation", "--algo", "bc", "--preset", "smoke", "--episodes", 50, "--out", "run"]
    done = pspo(nobody, sealed, "train", *words)
    assert done.returncode == 0, done.stderr
    assert (sealed / f"pspo-cache-{USER}").stat().st_mode & 0o777 == 0o700
    report = sealed / "run" / "report.html"
    before = report.read_text()
    report.unlink()
    assert pspo(nobody, sealed, "report", "run").returncode == 0
    assert report.read_text() == before


@pytest.mark.slow
def test_a_report_of_a_run_of_somebody_else(nobody: list[str], sealed: Path) -> None:
    """The run can only be read: one sentence says so."""
    write_run(sealed / "run")
    done = pspo(nobody, sealed, "report", "run")
    assert done.returncode == 2
    assert "Permission denied" in done.stderr
