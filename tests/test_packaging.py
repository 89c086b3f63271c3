"""What is shipped: the README of the package, the source distribution, and the image (without Docker)."""

from __future__ import annotations

import fnmatch
import importlib.util
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RELATIVE = re.compile(r"\]\((?!https?://|#)")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def setup_file() -> Any:
    pytest.importorskip("setuptools")
    spec = importlib.util.spec_from_file_location("pspo_setup", ROOT / "setup.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The README on a package index


def test_without_a_repository_the_readme_has_words_instead_of_relative_links(setup_file) -> None:
    text = (ROOT / "README.md").read_text()
    assert RELATIVE.search(text)
    shown = setup_file.readme_for_index(text, None, "v1")
    assert not RELATIVE.search(shown)
    assert "![" not in shown
    assert "docs/results.md" in shown


def test_with_a_repository_links_and_images_are_absolute(setup_file) -> None:
    text = "![a](docs/a.png) [b](docs/b.md#part) [c](https://c.org) [d](#there)"
    assert setup_file.readme_for_index(text, "https://host/us/pspo/", "v0.1.0") == (
        "![a](https://host/us/pspo/raw/v0.1.0/docs/a.png) [b](https://host/us/pspo/blob/v0.1.0/docs/b.md#part) "
        "[c](https://c.org) [d](#there)"
    )


def test_pythons_in_the_classifiers_are_those_that_are_allowed() -> None:
    minors = [int(c.rsplit(".", 1)[1]) for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    lowest = int(PROJECT["requires-python"].removeprefix(">=3."))
    assert minors == list(range(lowest, lowest + len(minors)))


# The source distribution


def test_the_source_distribution_has_every_file_of_the_repository() -> None:
    """By the rules of MANIFEST.in and what setuptools takes by itself; test_building.py builds it."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git repository")
    rules = (ROOT / "MANIFEST.in").read_text().splitlines()
    taken = ["src/*", "pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"]
    for rule in rules:
        word, _, rest = rule.partition(" ")
        taken += [f"{rest}/*"] if word == "graft" else rest.split() if word == "include" else []
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    left_out = [name for name in tracked.splitlines() if not any(fnmatch.fnmatch(name, pattern) for pattern in taken)]
    assert left_out == [".gitignore", ".pre-commit-config.yaml"]


# The image


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_image_is_made_of_known_instructions() -> None:
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in instructions()} == known
    assert instructions()[0][0] == "FROM"
    for word, rest in instructions():
        if word == "FROM":
            assert re.fullmatch(r"python:3\.\d+-slim( AS \w+)?", rest), "an image without a version changes by itself"
        if word in ("ENTRYPOINT", "CMD"):
            assert isinstance(json.loads(rest), list), "without a list, a shell takes the signals"


def test_the_image_runs_without_rights() -> None:
    users = [rest for word, rest in instructions() if word == "USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]), "a number: names cannot be checked by a cluster"
    words = [word for word, _ in instructions()]
    last = len(words) - 1 - words[::-1].index("RUN")
    assert words.index("USER") > last, "nothing is installed after rights were given up"


def test_the_image_gets_what_it_copies() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        name for word, rest in instructions() if word == "COPY" and "--from" not in rest for name in rest.split()[:-1]
    }
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)


def test_the_python_of_the_image_is_one_that_was_tested() -> None:
    tested = {c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"]}
    assert {re.match(r"python:([\d.]+)", rest)[1] for word, rest in instructions() if word == "FROM"} <= tested  # pyright: ignore[reportOptionalSubscript]


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_hadolint_finds_nothing() -> None:
    found = subprocess.run(["hadolint", str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
