"""How `pspo train` is told to read a dataset: options of the command line, there and back."""

from __future__ import annotations

from typing import Any


def option_name(role: str) -> str:
    """The option of a column's role: next_obs is --next-obs."""
    return f"--{role.replace('_', '-')}"


def source_words(columns: dict[str, Any] | None, task: str | None) -> list[list[str]]:
    """`columns` and `task` as words of a command line, in pieces that belong together."""
    pieces = [[option_name(role), p if isinstance(p, str) else ",".join(p)] for role, p in (columns or {}).items()]
    return [*pieces, *([["--task", task]] if task else [])]
