"""The options of `pspo train` that say how to read a dataset: used by its parser, and to print the command of a run."""

from __future__ import annotations

from typing import Any


def option_name(role: str) -> str:
    """The option for a column's role: next_obs is --next-obs."""
    return f"--{role.replace('_', '-')}"


def source_words(columns: dict[str, Any] | None, task: str | None) -> list[list[str]]:
    """`columns` and `task` as words of a command line: lists of words that belong together."""
    given = dict(columns or {})
    discrete = given.pop("discrete", None)
    words = [[option_name(role), p if isinstance(p, str) else ",".join(p)] for role, p in given.items()]
    if discrete:
        words.append(["--discrete" if "yes" in discrete else "--continuous"])
    return [*words, *([["--task", task]] if task else [])]
