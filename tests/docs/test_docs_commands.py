"""Every command in the documentation exists and is accepted as written."""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path

import pytest

from pspo.cli.main import _parser
from tests.docs.pages import PAGES, ROOT, arguments, blocks, commands, name_of

LANGUAGES = {"sh", "python", "csv", "text", "json", "toml", "yaml"}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
FORMER = {"benchmarks.overhead"}  # named as the origin of a stored file
MOST_NOT_EXECUTED = 6


def names_a_command(words: list[str]) -> bool:
    """`pspo data convert` and the like: only names, down the tree of parsers."""
    parser = _parser()
    for word in words:
        groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        if not groups or word not in groups[0].choices:
            return False
        parser = groups[0].choices[word]
    return True


def refusal(words: list[str], capsys) -> str | None:
    """The parser's error for these words; None where it accepts them."""
    try:
        _parser().parse_args(words)
    except SystemExit as stop:
        lines = capsys.readouterr().err.strip().splitlines()
        return lines[-1] if stop.code else None
    return None


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_line_parses(page: Path, capsys) -> None:
    for command in commands(page):
        if command.startswith("pspo "):
            words = arguments(command)
            assert names_a_command(words) or refusal(words, capsys) is None, command


def test_a_wrong_command_line_is_refused(capsys) -> None:
    assert refusal(arguments("pspo train DATA [--algo cql] [--seeds N]"), capsys) is None
    assert "unrecognized arguments: --seedz" in str(refusal(arguments("pspo train DATA [--seedz N]"), capsys))
    assert "arguments are required" in str(refusal(arguments("pspo export RUN"), capsys))
    assert names_a_command(["data", "convert"])
    assert not names_a_command(["data", "invert"])


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_extras_targets_and_modules_exist(page: Path) -> None:
    text = page.read_text()
    for named in re.findall(r"pip install '?pspo\[([a-z,]+)\]", text):
        assert set(named.split(",")) <= set(EXTRAS), named
    for target in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE):
        assert target in TARGETS, target
    for module in re.findall(r"python -m\s+(benchmarks\.\w+)", text):
        assert module in FORMER or (ROOT / f"{module.replace('.', '/')}.py").exists(), module


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_code_block_names_its_language(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= LANGUAGES


def test_few_code_blocks_are_skipped() -> None:
    reasons = [block.why_not for page in PAGES for block in blocks(page) if block.why_not]
    assert len(reasons) <= MOST_NOT_EXECUTED
    assert all(len(reason.split()) > 3 for reason in reasons)
