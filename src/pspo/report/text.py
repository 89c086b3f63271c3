"""Tables for the terminal."""

from __future__ import annotations

from typing import Any

ROWS = (
    ("score", "normalised score", "score_stderr"),
    ("score_by_regret", "score by exact regret", None),
    ("optimal_score", "  of at most", None),
    ("return_mean", "mean return", "return_stderr"),
    ("return_std", "spread of returns", None),
    ("cvar10", "mean of worst 10 %", None),
    ("regret", "regret", "regret_stderr"),
    ("episodes", "episodes", None),
    ("imagined_return", "return its models promise", None),
    ("posterior_entropy", "posterior entropy (1 = uniform)", None),
    ("steps", "iterations", None),
    ("seconds", "seconds", None),
)


def result_table(result: dict[str, Any]) -> None:
    """Print a result as a table; what it does not have is left out."""
    from rich.console import Console
    from rich.table import Table

    title = " ".join(str(result[name]) for name in ("algo", "dataset", "preset") if name in result)
    table = Table("", "value", "± standard error", title=f"{title} seed {result['seed']}" if "seed" in result else None)
    for name, label, error in ROWS:
        if result.get(name) is not None:
            table.add_row(label, _number(result[name]), _number(result[error]) if error else "")
    Console().print(table)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
