"""Sizes of functions and files in the source: what fits on a screen is read; what does not is skimmed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "pspo"
LONGEST_FUNCTION, LONGEST_FILE = 60, 400


def functions(source: str) -> Iterator[tuple[str, int]]:
    """Name and number of lines of every function, decorators not counted."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_function_is_longer_than_a_screen() -> None:
    long = {
        f"{path.relative_to(SOURCE).as_posix()} {name}": lines
        for path in sorted(SOURCE.rglob("*.py"))
        for name, lines in functions(path.read_text())
        if lines > LONGEST_FUNCTION
    }
    assert not long, f"split {long}"


def test_no_file_is_longer_than_a_few_screens() -> None:
    lines = {path.relative_to(SOURCE).as_posix(): path.read_text().count("\n") for path in SOURCE.rglob("*.py")}
    long = {name: count for name, count in lines.items() if count > LONGEST_FILE}
    assert not long, f"split {long}"


def test_a_planted_function_is_measured() -> None:
    body = "\n".join(["    x = 1"] * LONGEST_FUNCTION)
    assert dict(functions(f"@cache\nasync def f():\n{body}\n\n\nclass A:\n    def g(self): pass")) == {
        "f": LONGEST_FUNCTION + 1,
        "g": 1,
    }
