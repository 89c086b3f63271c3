"""Text on the terminal. Names of files and columns come from elsewhere: they are shown, never interpreted.

Control characters (which could move the cursor, colour or hide text) are shown as \\x1b, and so are characters that the
terminal's encoding lacks. Rich's markup is off: brackets are brackets.
"""

from __future__ import annotations

import codecs
import contextlib
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

# C0 but tab and newline, DEL, C1, and marks that reorder the text around them.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_IN_ASCII = {"±": "+-", "×": "x", "−": "-", "–": "-", "—": "-", "…": "...", "’": "'", "“": '"', "”": '"'}
READABLE = "pspo-readable"
NARROWEST = 60  # columns of a table


def printable(text: str) -> str:
    """The text with control characters made visible; newlines and tabs stay."""
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def in_one_line(text: str) -> str:
    """A sentence stays one, also where a name in it has a line break."""
    return text.replace("\r", "\\r").replace("\n", "\\n")


def show(text: object = "", *, error: bool = False) -> None:
    """Print a line: results to stdout, messages to stderr."""
    stream = sys.stderr if error else sys.stdout
    if stream is not None:  # closed from the start (`2>&-`): `print` would take stdout instead
        print(printable(str(text)), file=stream, flush=error)


def show_note(sentence: str) -> None:
    """What is worth knowing and needs no action."""
    _show_line("note", sentence)


def show_warning(sentence: str) -> None:
    """What may be wrong although the command continues."""
    _show_line("warning", sentence)


def show_error(sentence: str) -> None:
    """What ended the command, or one of its runs."""
    _show_line("error", sentence)


def _show_line(level: str, sentence: str) -> None:
    """On stderr, the same form in every command, and one line whatever the names in it contain."""
    show(f"pspo: {level}: {in_one_line(sentence)}", error=True)


def console(stderr: bool = False) -> Console:
    """Where tables are printed."""
    from rich.console import Console

    class PlainConsole(Console):
        """Every text that Rich lays out passes through here, also the cells of tables."""

        def render_str(self, text: str, **options: Any) -> Any:
            options |= {"markup": False, "emoji": False}
            return super().render_str(printable(text), **options)

    made = PlainConsole(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not stderr and made.width < NARROWEST:
        made.width = NARROWEST  # the terminal wraps the lines; Rich would leave out digits
    return made


@contextlib.contextmanager
def readable_output() -> Iterator[None]:
    """Inside, stdout and stderr replace what their encoding lacks; a C locale is no reason to fail."""
    changed: list[tuple[Any, Any]] = []
    streams: list[Any] = [sys.stdout, sys.stderr]
    for stream in streams:
        if hasattr(stream, "reconfigure"):
            changed.append((stream, stream.errors))
            stream.reconfigure(errors=READABLE)
    try:
        yield
    finally:
        for stream, errors in changed:
            with contextlib.suppress(OSError, ValueError):  # a closed pipe: there is nothing left to write
                stream.reconfigure(errors=errors)


def _replace(problem: UnicodeError) -> tuple[str, int]:
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    lacking = problem.object[problem.start : problem.end]
    return "".join(_IN_ASCII.get(c) or c.encode("ascii", "backslashreplace").decode() for c in lacking), problem.end


codecs.register_error(READABLE, _replace)
