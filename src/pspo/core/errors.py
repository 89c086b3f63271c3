"""Errors that a user can fix, in one sentence each: what is wrong, where, and what to do; and their exit codes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TypeVar

P = TypeVar("P")


class UserError(Exception):
    """Bad input. The command line prints its message in one line and exits with code 2."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for an unknown name; it suggests the nearest known one."""
    known = sorted(known)
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"known are: {', '.join(known)}."
    return UserError(f"unknown {kind} '{name}': {hint}")


def not_empty(path: P) -> P:
    """A path as it is given: an empty one, as from a shell's unset variable, must not count as none."""
    if isinstance(path, str) and not path.strip():
        raise UserError("the path to write to is empty: name a file or a folder, or omit --out.")
    return path


class Diverged(Exception):
    """Training produced numbers that are not finite. The command line prints its message and exits with code 3."""


PROBLEM, DIVERGED = 2, 3
"""Exit codes of commands and of worker processes."""

EXPECTED = (UserError, Diverged, OSError, MemoryError)
"""What is reported in one sentence; anything else is a bug and keeps its traceback."""


def exit_code_and_message(problem: BaseException) -> tuple[int, str]:
    """How a command or a worker reports one of the `EXPECTED` errors."""
    if isinstance(problem, Diverged):
        return DIVERGED, str(problem)
    if isinstance(problem, UserError):
        return PROBLEM, str(problem)
    if isinstance(problem, MemoryError):
        return PROBLEM, "there is not enough memory: use less data or a larger machine."
    if isinstance(problem, OSError):
        where = f" {problem.filename}" if problem.filename else ""
        return PROBLEM, f"cannot read or write{where}: {problem.strerror or problem}."
    raise problem
