"""Functions, settings and files that the documentation names exist in the source."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, name_of

SRC = ROOT / "src" / "pspo"
ALGORITHM_PAGES = sorted((DOCS / "algorithms").glob("*.md"))
TABLE = re.compile(r"^\|[^\n]*function[^\n]*\|\n\|[-|]+\|\n((?:\|[^\n]*\|\n)+)", re.MULTILINE)
FILE = re.compile(r"`([a-z_/]+\.(?:py|toml))`")


@cache
def defined() -> set[str]:
    """Names of all functions and classes."""
    trees = [ast.parse(path.read_text()) for path in SRC.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def named_functions(page: str) -> set[str]:
    """Names in the last column of tables with a column of functions; `risk` there is a setting."""
    rows = [row for table in TABLE.findall(page) for row in table.splitlines()]
    names = {name for row in rows for name in re.findall(r"`(\w+)`", row.strip("| ").rsplit(" | ", 1)[-1])}
    return {name for name in names if name != "risk"}


def exists(name: str) -> bool:
    """A path below src/pspo or the repository, or the name of a file of a folder that the table has named before."""
    return (SRC / name).exists() or (ROOT / name).exists() or ("/" not in name and any(SRC.rglob(name)))


@pytest.mark.parametrize("page", ALGORITHM_PAGES, ids=name_of)
def test_functions_of_algorithm_pages_exist(page: Path) -> None:
    assert named_functions(page.read_text()) - defined() == set()


def test_algorithm_pages_name_functions() -> None:
    named = {page.stem for page in ALGORITHM_PAGES if named_functions(page.read_text())}
    assert named == {page.stem for page in ALGORITHM_PAGES} - {"README"}


def test_files_of_the_architecture_page_exist() -> None:
    named = FILE.findall((DOCS / "architecture.md").read_text())
    assert len(named) > 60
    assert [name for name in named if not exists(name)] == []


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    assert [line for line in lines if len(line) > 120] == []


def test_a_missing_function_or_file_is_noticed() -> None:
    page = "| equation | function |\n|---|---|\n| Q | `no_such_function` |\n"
    assert named_functions(page) - defined() == {"no_such_function"}
    assert not exists("training/no_such_file.py")
