"""A table as sortable HTML, as Markdown, and as LaTeX with booktabs."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape

from pspo.report.markup import text
from pspo.report.summary.section import Cell, Column, ReportTable


def as_html(table: ReportTable) -> str:
    body = "".join(_html_row(table, row) for row in table.rows)
    foot = "".join(_html_row(table, row) for row in table.foot)
    foot = f"<tfoot>{foot}</tfoot>" if foot else ""
    words = _caption(table, "Small")
    caption = f"<figcaption>{text(words)}</figcaption>" if words else ""
    return (
        f'<figure class="table"><div class="scroll" tabindex="0" role="region" aria-label="{text(table.title)}">'
        f'<table class="sortable" id="table-{text(table.name)}">{html_head(table.columns)}'
        f"<tbody>{body}</tbody>{foot}</table></div>{caption}</figure>"
    )


def _caption(table: ReportTable, where: str) -> str:
    return f"{table.caption} {where}: {table.beside}." if table.beside else table.caption


def html_head(columns: list[Column]) -> str:
    """The page's script turns these into buttons; without it they are plain text."""
    heads = [f'<th scope="col" class="{c.kind}" data-kind="{c.kind}">{text(c.title)}</th>' for c in columns]
    return f"<thead><tr>{''.join(heads)}</tr></thead>"


def _html_row(table: ReportTable, row: list[Cell]) -> str:
    first, *others = zip(table.columns, row, strict=True)
    cells = [html_cell(*pair) for pair in others]
    return f'<tr><th scope="row" class="{first[0].kind}">{_html_content(first[1])}</th>{"".join(cells)}</tr>'


def html_cell(column: Column, cell: Cell) -> str:
    unknown = column.kind == "number" and cell.value is None
    classes = " ".join(filter(None, (column.kind, "best" if cell.best else "", "none" if unknown else "")))
    value = f' data-value="{cell.value!r}"' if column.kind == "number" and cell.value is not None else ""
    return f'<td class="{classes}"{value}>{_html_content(cell)}</td>'


def _html_content(cell: Cell) -> str:
    shown = f'<a href="#{text(cell.target)}">{text(cell.shown)}</a>' if cell.target else text(cell.shown)
    small = f"<small>{text(cell.beside)}</small>" if cell.beside else ""
    incomplete = f'<small class="incomplete">{text(cell.incomplete)}</small>' if cell.incomplete else ""
    return shown + small + incomplete


def html_command(command: str) -> str:
    """Lines break between options only."""
    pieces = [f"<span>{text(piece)}</span>" for piece in re.split(r" (?=--)", command)]
    return f'<pre class="command"><code>{" ".join(pieces)}</code></pre>'


def as_markdown(table: ReportTable) -> str:
    """Small print in brackets, missing seeds in parentheses."""
    heads = [markdown_text(column.title) for column in table.columns]
    sides = ["---:" if column.kind == "number" else ":---" for column in table.columns]
    rows = [[_markdown_cell(cell) for cell in row] for row in [*table.rows, *table.foot]]
    lines = [f"| {' | '.join(cells)} |" for cells in [heads, sides, *rows]]
    words = _caption(table, "In brackets")
    words = f"\n\n{markdown_text(words)}" if words else ""
    return f"## {markdown_text(table.title)}\n\n" + "\n".join(lines) + words + "\n"


def _markdown_cell(cell: Cell) -> str:
    shown = markdown_text(cell.shown)
    return _with_small_print(f"**{shown}**" if cell.best else shown, cell, markdown_text, r"\[{}\]")


def markdown_text(words: str) -> str:
    """Escaped, so that no name is read as markup."""
    return re.sub(r"([\\`*_{}\[\]#|~$])", r"\\\1", escape(" ".join(words.split()), quote=False))


def as_latex(table: ReportTable) -> str:
    sides = "".join("r" if column.kind == "number" else "l" for column in table.columns)
    rows = [[_latex_cell(cell) for cell in row] for row in table.rows]
    foot = [[_latex_cell(cell) for cell in row] for row in table.foot]
    body = [_latex_line([latex_text(column.title) for column in table.columns]), r"\midrule", *map(_latex_line, rows)]
    body += [r"\midrule", *map(_latex_line, foot)] if foot else []
    caption = latex_text(f"{table.title}. {_caption(table, 'In brackets')}".strip())
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption}}}",
            rf"\begin{{tabular}}{{{sides}}}",
            r"\toprule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _latex_line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(cell: Cell) -> str:
    shown = latex_text(cell.shown)
    return _with_small_print(rf"\textbf{{{shown}}}" if cell.best else shown, cell, latex_text, r"{{\footnotesize[{}]}}")


def _with_small_print(shown: str, cell: Cell, escaped: Callable[[str], str], brackets: str) -> str:
    words = [shown]
    words += [brackets.format(escaped(cell.beside))] if cell.beside else []
    words += [f"({escaped(cell.incomplete)})"] if cell.incomplete else []
    return " ".join(words)


LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # after \\\\, a bracket or a star would be read as its argument
    "*": "{*}",
    "]": "{]}",
    "\N{NO-BREAK SPACE}": "~",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "–": "--",
    "’": "'",
    "“": "``",
    "”": "''",
    "…": r"\ldots{}",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "γ": r"$\gamma$",
    "ε": r"$\epsilon$",
    "λ": r"$\lambda$",
    "μ": r"$\mu$",
    "π": r"$\pi$",
}


def latex_text(words: str) -> str:
    return "".join(LATEX.get(letter, " " if letter.isspace() else letter) for letter in words)
