"""A table as data, before it becomes HTML, Markdown or LaTeX: every number with its value and the runs behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pspo.report.markup import number

Kind = Literal["number", "text", "fixed"]


@dataclass(frozen=True)
class Cell:
    shown: str
    value: float | None = None
    """What numbers are sorted by; None comes last."""
    beside: str = ""
    """Smaller: the paper's number, or an interval."""
    lacking: str = ""
    """What is missing behind the number."""
    best: bool = False
    target: str = ""
    """Name of the place on the page where the runs behind it are."""


@dataclass(frozen=True)
class Column:
    title: str
    kind: Kind = "number"
    """Numbers and texts can be sorted; what is fixed cannot."""


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    columns: list[Column]
    rows: list[list[Cell]]
    foot: list[list[Cell]] = field(default_factory=list)
    """Rows that stay where they are."""
    caption: str = ""
    beside: str = ""
    """What stands smaller beside numbers, for a reader: `the paper’s`."""


@dataclass(frozen=True)
class Part:
    """A section of the page."""

    name: str
    title: str
    sentences: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    """As HTML; they stand above the tables."""
    tables: list[Table] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    """What cannot be shown, and why."""


NOTHING = Cell("–")
"""Where a column does not apply."""


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def measured(value: float, decimals: int, beside: str = "", target: str = "", unit: str = "") -> Cell:
    """A number with its own value; one that is none is said and sorted last."""
    shown = number(value, decimals)
    return Cell(shown + unit, value, beside, target=target) if math.isfinite(value) else Cell(shown, target=target)


def mark_best(cells: Sequence[Cell], decimals: int) -> list[Cell]:
    """The highest values stand out, with all that look the same; nothing does where there is no choice."""
    known = [cell.value for cell in cells if cell.value is not None]
    if len(known) < 2:
        return list(cells)
    top = number(max(known), decimals)
    return [replace(c, best=c.value is not None and number(c.value, decimals) == top) for c in cells]
