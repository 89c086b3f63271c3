"""docs/adding.md and docs/examples.md: what they show is what the files hold."""

from __future__ import annotations

import re

from test_awac import LEARNER

from pspo.algorithms import CONTRACT
from tests.examples.example_cases import ROOT, registered

__all__ = ["registered"]

PAGE = (ROOT / "docs" / "adding.md").read_text()
EXAMPLES = (ROOT / "docs" / "examples.md").read_text()


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL)


def test_the_pieces_of_the_page_are_the_file() -> None:
    *pieces, _ = blocks(PAGE, "python")  # the last one uses it
    assert len(pieces) >= 6
    assert "\n\n\n".join(pieces) + "\n" == (ROOT / "examples" / "awac.py").read_text()


def test_the_table_names_the_contract() -> None:
    named = re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE)
    assert set(CONTRACT) <= set(named)


def test_the_line_about_learning_is_the_tests_own() -> None:
    (line,) = (block for block in blocks(PAGE, "text") if block.startswith("LEARNER"))
    made = {"Learner": lambda *given, **named: (given, named)}
    exec(line, made)
    given, named = made["LEARNER"]
    assert given == (LEARNER.settings, LEARNER.broken, LEARNER.at_least)
    assert named == {"chunks": LEARNER.chunks}


def test_every_script_is_on_the_page_of_examples() -> None:
    scripts = sorted(path.name for path in (ROOT / "examples").glob("*.py") if path.stem not in ("__init__", "awac"))
    assert scripts == sorted(re.findall(r"^## \[(\w+\.py)\]", EXAMPLES, re.MULTILINE))


def test_the_page_of_examples_shows_what_they_print() -> None:
    """The words that a script prints whatever it finds."""
    shown = "\n".join(blocks(EXAMPLES, "text"))
    for name in ("own_csv", "compare_two", "export_and_serve"):
        text = (ROOT / "examples" / f"{name}.py").read_text()
        *_, last = re.findall(r'print\(f"(.*)"\)', text)
        constant = [part for part in re.split(r"\{[^}]*\}", last) if len(part) > 12]
        assert constant
        for part in constant:
            assert part.strip() in shown, part
