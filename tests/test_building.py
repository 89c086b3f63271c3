"""The source distribution and the wheel, built without network where setuptools is here, and used elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEEDED = re.findall(r"setuptools>=(\d+)", (ROOT / "pyproject.toml").read_text())[0]
BUILD = "import sys, setuptools.build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
pytestmark = [
    pytest.mark.slow,  # half a minute
    pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="not a git repository"),
]


def run(*words: object, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [*map(str, words)], cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def setuptools(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where a setuptools that is new enough can be imported: here, or installed into a new folder."""
    folder = tmp_path_factory.mktemp("setuptools")
    found = subprocess.run(
        [sys.executable, "-c", "import setuptools; print(setuptools.__version__)"], capture_output=True, text=True
    )
    if found.stdout and int(found.stdout.split(".")[0]) >= int(NEEDED):
        return ""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), f"setuptools>={NEEDED}"]
    if subprocess.run(pip, capture_output=True).returncode:
        pytest.skip(f"there is no setuptools>={NEEDED} here")
    return str(folder)


@pytest.fixture(scope="module")
def archive(setuptools: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of the files that git has, with whatever is in them now."""
    place, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in run("git", "ls-files", cwd=ROOT).splitlines():
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, place / name)
    return out / run(sys.executable, "-c", BUILD, "build_sdist", out, cwd=place, PYTHONPATH=setuptools).split()[-1]


@pytest.fixture(scope="module")
def unpacked(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (inside,) = folder.iterdir()
    return inside


@pytest.fixture(scope="module")
def wheel(unpacked: Path, setuptools: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source distribution, not from the repository."""
    out = tmp_path_factory.mktemp("wheel")
    return out / run(sys.executable, "-c", BUILD, "build_wheel", out, cwd=unpacked, PYTHONPATH=setuptools).split()[-1]


def test_the_source_distribution_can_be_tested_and_read(unpacked: Path) -> None:
    for name in (
        "Makefile",
        "constraints.txt",
        "CHANGELOG.md",
        "Dockerfile",
        "mkdocs.yml",
        "LICENSE",
        "tests/conftest.py",
    ):
        assert (unpacked / name).read_bytes() == (ROOT / name).read_bytes()
    tracked = run("git", "ls-files", "tests", "docs", "examples", "benchmarks", "src", cwd=ROOT).splitlines()
    assert [name for name in tracked if (ROOT / name).exists() and not (unpacked / name).exists()] == []


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names, metadata = (
            file.namelist(),
            file.read(next(n for n in file.namelist() if n.endswith("METADATA"))).decode(),
        )
    assert {name.split("/")[0] for name in names} == {"pspo", next(n for n in names if "dist-info" in n).split("/")[0]}
    package = [name for name in run("git", "ls-files", "src/pspo", cwd=ROOT).splitlines() if (ROOT / name).exists()]
    assert sorted(name for name in names if name.startswith("pspo/")) == sorted(n.removeprefix("src/") for n in package)
    described = message_from_string(metadata)
    assert described["Name"] == "pspo"
    assert not re.search(r"\]\((?!https?://|#)", str(described.get_payload()))


def test_the_installed_wheel_runs_outside_the_repository(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel]
    run(*pip, cwd=tmp_path)
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    shown = run(sys.executable, target / "bin" / "pspo", "--version", cwd=tmp_path, PYTHONPATH=str(target))
    assert shown.split()[-1] == version[1]
    where = run(sys.executable, "-c", "import pspo; print(pspo.__file__)", cwd=tmp_path, PYTHONPATH=str(target))
    assert Path(where.strip()).is_relative_to(target)
    assert "laptop" in run(sys.executable, "-m", "pspo", "list", cwd=tmp_path, PYTHONPATH=str(target))
    config = run(sys.executable, "-m", "pspo", "config", "--algo", "pspo", cwd=tmp_path, PYTHONPATH=str(target))
    assert "steps" in config  # from a preset, a file beside the modules
