"""Text from elsewhere on the terminal: shown, never interpreted."""

from __future__ import annotations

import ast
import io
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from pspo.core import terminal
from pspo.core.terminal import console, printable, readable_output, show, show_error, show_note, show_warning


@given(st.text())
def test_no_control_character_is_printed(text: str) -> None:
    shown = printable(text)
    assert all(unicodedata.category(c) != "Cc" or c in "\n\t" for c in shown)
    assert not set(shown) & set("\u202a\u202e\u2066\u2069\x1b\x9b\x7f\r")
    assert printable(shown) == shown


def test_ordinary_text_stays() -> None:
    assert printable("90 % ± 3\n\tλ [bold] 😀 obs[0]") == "90 % ± 3\n\tλ [bold] 😀 obs[0]"
    assert printable("\x1b[31mred\x07") == "\\x1b[31mred\\x07"


def test_lines_go_where_they_should(capsys) -> None:
    show("a\x1bb")
    show("c", error=True)
    assert capsys.readouterr() == ("a\\x1bb\n", "c\n")


def test_notes_warnings_and_errors_have_one_form_and_one_line(capsys) -> None:
    show_note("a\x1b")
    show_warning("b")
    show_error("d\ne\r")
    assert capsys.readouterr() == ("", "pspo: note: a\\x1b\npspo: warning: b\npspo: error: d\\ne\\r\n")


def test_tables_take_brackets_and_escapes_as_text(capsys) -> None:
    table = Table("x[/nope]", title="[link=http://a]t\x1b]8;;http://b\x1b")
    table.add_row(":smile: [red]y\x1b[2J")
    console().print(table, "[/z]")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    for text in ("x[/nope]", "[link=http://a]t", ":smile: [red]y\\x1b[2J", "[/z]"):
        assert text in shown.replace("\n", "").replace(" ", "").replace(text.replace(" ", ""), text)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_an_encoding_lacks_is_replaced(encoding: str, monkeypatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    with readable_output():
        show("± λ … \ud800")
        stream.flush()
    written = stream.buffer.getvalue().decode(encoding)  # pyright: ignore[reportAttributeAccessIssue]
    assert written == ("+- " if encoding == "ascii" else "± ") + "\\u03bb ... \\ud800\n"
    assert stream.errors == "strict"


def test_notes_warnings_and_errors_have_one_form_everywhere() -> None:
    """Only `_show_line` writes the level."""
    own = [
        f"{path.name} {node.value!r}"
        for path in sorted(Path(terminal.__file__).parents[1].rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node.value == "pspo: " or node.value.lower().startswith(("note: ", "warning: ", "warning for ", "error: "))
    ]
    assert own == ["terminal.py 'pspo: '"], own
