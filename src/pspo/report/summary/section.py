"""A section of the summary page as data: sentences, figures, and tables that become HTML, Markdown and LaTeX."""

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
    """Numbers are sorted by it; None comes last."""
    beside: str = ""
    """In small print: the paper's number, or an interval."""
    incomplete: str = ""
    """What is missing from the number, such as seeds."""
    best: bool = False
    target: str = ""
    """Anchor of the runs that the number comes from."""


@dataclass(frozen=True)
class Column:
    title: str
    kind: Kind = "number"
    """Columns of numbers and text can be sorted, fixed ones cannot."""


@dataclass(frozen=True)
class ReportTable:
    name: str
    title: str
    columns: list[Column]
    rows: list[list[Cell]]
    foot: list[list[Cell]] = field(default_factory=list)
    """Rows that are not sorted."""
    caption: str = ""
    beside: str = ""
    """What the small print beside numbers is."""


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    name: str
    title: str
    sentences: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    """As HTML; shown above the tables."""
    tables: list[ReportTable] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    """What cannot be shown, and why."""


EMPTY = Cell("–")
"""Where a column does not apply."""


def counted(count: int, what: str) -> str:
    """1 run, 2 runs."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def measured(value: float, decimals: int, beside: str = "", target: str = "", unit: str = "") -> Cell:
    """A number; one that is not finite is shown as such and sorted last."""
    shown = number(value, decimals)
    return Cell(shown + unit, value, beside, target=target) if math.isfinite(value) else Cell(shown, target=target)


def mark_best(cells: Sequence[Cell], decimals: int) -> list[Cell]:
    """Mark the highest value and all that are printed the same; nothing in a row of one."""
    known = [cell.value for cell in cells if cell.value is not None]
    if len(known) < 2:
        return list(cells)
    top = number(max(known), decimals)
    return [replace(c, best=c.value is not None and number(c.value, decimals) == top) for c in cells]
