"""The one exception that is the user's to fix: a sentence that says what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input. The command line prints its message in one line and exits with code 2."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """An error for a misspelt name that suggests the nearest known one."""
    known = sorted(known)
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"known are: {', '.join(known)}."
    return UserError(f"unknown {kind} '{name}': {hint}")


class Diverged(Exception):
    """Training left the finite numbers. The command line prints its message and exits with code 3."""
