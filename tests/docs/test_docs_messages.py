"""Troubleshooting quotes only messages that exist, and messages about data say by themselves what to do."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.docs.pages import DOCS, ROOT

SRC = ROOT / "src" / "pspo"
PAGE = DOCS / "troubleshooting.md"
GAP = "…"
SAID_BY = {"UserError", "Finding", "Diverged"}
# Frames around other messages, and two that state what is allowed instead.
WITHOUT_ADVICE = ("in '", "column '", "the … of a liquidation dataset is a whole number")


@cache
def quoted() -> list[str]:
    """The messages of the page's tables: code in the first column."""
    rows = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    return [row for row in rows if " " in row]


def quotes(message: str, text: str) -> bool:
    """Whether a text contains the parts of a quoted message, in order."""
    at = 0
    return all((at := text.find(part, at) + len(part)) >= len(part) for part in message.split(GAP))


def text_of(node: ast.AST) -> str | None:
    """A string of the source, with a gap for every expression in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else GAP for part in node.values)
    return None


def strings_of(path: Path) -> list[str]:
    found = [text_of(node) for node in ast.walk(ast.parse(path.read_text()))]
    return [text for text in found if text and " " in text]


def messages_in(path: Path) -> list[str]:
    """Messages that a file raises or reports, by a call or a variable `message`."""
    tree = ast.parse(path.read_text())
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") in SAID_BY]
    named = [n.value for n in ast.walk(tree) if isinstance(n, ast.Assign) and "message" in map(ast.unparse, n.targets)]
    found = [text_of(node) for node in (*(a for call in calls for a in call.args), *named)]
    return [text for text in found if text and " " in text]


def test_every_quoted_message_is_in_the_source() -> None:
    sources = [text for path in SRC.rglob("*.py") for text in strings_of(path)]
    sources += (ROOT / "Makefile").read_text().replace("$(PYTHON)", GAP).splitlines()
    assert len(quoted()) > 50
    missing = [message for message in quoted() if not any(quotes(message, text) for text in sources)]
    assert missing == []


def test_every_message_about_data_says_what_to_do() -> None:
    """In one sentence: what is wrong, a colon, and the remedy. The page leaves such messages out."""
    messages = {text for path in (SRC / "data").rglob("*.py") for text in messages_in(path)}
    assert len(messages) > 80
    silent = [text for text in messages if not re.search(r": \S", text)]
    assert [text for text in silent if not text.startswith(WITHOUT_ADVICE)] == []


def test_a_message_that_does_not_exist_is_noticed() -> None:
    assert quotes("no column fits '…' (…)", f"no column fits '{GAP}' ({GAP}) among {GAP}.")
    assert not quotes("no column fits (…) '…'", f"no column fits '{GAP}' ({GAP}) among {GAP}.")
