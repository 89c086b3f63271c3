"""HTML elements from plain text and numbers. All text is escaped here, and only here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

MINUS = "−"
JOINED = "\N{NO-BREAK SPACE}"
"""Keeps a number and its unit on one line."""


def text(value: Any) -> str:
    """Text as HTML."""
    return escape(str(value))


def number(value: float, decimals: int | None = None) -> str:
    """A number for people: grouped thousands, a real minus, four significant digits unless decimals are given."""
    if isinstance(value, float) and not math.isfinite(value):
        return "not a number"
    if decimals is not None:
        shown = f"{value:,.{decimals}f}"
    elif isinstance(value, int) or abs(value) >= 1000:
        shown = f"{value:,.0f}"
    else:
        shown = f"{value:.4g}"
    # No "-0.00".
    return shown.lstrip("-") if float(shown.replace(",", "")) == 0 else shown.replace("-", MINUS)


def with_error(value: float, error: float | None, decimals: int = 2) -> str:
    return number(value, decimals) + (f"{JOINED}±{JOINED}{number(error, decimals)}" if error is not None else "")


def percent(share: float, decimals: int = 1) -> str:
    return f"{number(100 * share, decimals)}{JOINED}%"


def paragraph(*sentences: str) -> str:
    """Plain sentences as one paragraph; empty ones are left out."""
    return f"<p>{text(' '.join(filter(None, sentences)))}</p>"


def missing(sentence: str) -> str:
    """A notice: what cannot be shown, and why."""
    return f'<p class="missing">{text(sentence)}</p>'


def figure(panels: Iterable[str | None], caption: str, columns: int = 2) -> str:
    """Panels side by side where there is room, with one caption; empty without panels."""
    drawn = [f'<div class="panel">{panel}</div>' for panel in panels if panel]
    if not drawn:
        return ""
    grid = f'<div class="panels across-{min(columns, len(drawn))}">{"".join(drawn)}</div>'
    return f"<figure>{grid}<figcaption>{text(caption)}</figcaption></figure>"


def section(name: str, title: str, *content: str) -> str:
    return f'<section id="section-{text(name)}"><h2>{text(title)}</h2>{"".join(content)}</section>'


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], marked: Iterable[int] = ()) -> str:
    """A table whose first column names the row; marked rows are highlighted, and `head` may be empty."""
    marked = set(marked)
    titles = "".join(f'<th scope="col">{text(title)}</th>' for title in head)
    top = f"<thead><tr>{titles}</tr></thead>" if head else ""
    body = []
    for i, (name, *cells) in enumerate(rows):
        mark = ' class="changed"' if i in marked else ""
        values = "".join(f"<td>{text(cell)}</td>" for cell in cells)
        body.append(f'<tr{mark}><th scope="row">{text(name)}</th>{values}</tr>')
    return f'<div class="scroll"><table>{top}<tbody>{"".join(body)}</tbody></table></div>'


def fold(summary: str, content: str) -> str:
    """Content that a click opens; works without scripts."""
    return f"<details><summary>{text(summary)}</summary>{content}</details>"
