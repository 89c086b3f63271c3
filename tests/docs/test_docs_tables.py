"""Tables of the pages are tables on the site, too, and list what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pspo.cli.main import BROKEN_PIPE, INTERRUPTED, TERMINATED
from pspo.core.errors import DIVERGED, PROBLEM
from tests.docs.pages import DOCS, PAGES, name_of


def orphans(page: str) -> list[str]:
    """Table rows without a heading of their table: a blank line above them makes them plain text."""
    page = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"(?:^\|.*\n?)+", page, re.MULTILINE)
    return [block.splitlines()[0] for block in blocks if not re.search(r"\A\|.*\n\|[-:| ]+\|$", block, re.MULTILINE)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_table_has_a_heading(page: Path) -> None:
    assert orphans(page.read_text()) == []


def test_a_planted_blank_line_is_found() -> None:
    table = "| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert orphans(table + "text\n" + table) == []
    assert orphans(table + "\n| 3 | 4 |\n") == ["| 3 | 4 |"]


def test_the_table_of_exit_codes_is_complete() -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert codes == {0, PROBLEM, DIVERGED, INTERRUPTED, BROKEN_PIPE, TERMINATED}
