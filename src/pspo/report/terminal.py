"""Results as tables in the terminal."""

from __future__ import annotations

from typing import Any

from pspo.core.terminal import console

ROWS = (
    ("score", "normalised score", "score_stderr"),
    ("score_by_regret", "score by exact regret", None),
    ("optimal_score", "  optimum", None),
    ("return_mean", "mean return", "return_stderr"),
    ("return_std", "standard deviation of returns", None),
    ("cvar10", "mean of worst 10 %", None),
    ("regret", "regret", "regret_stderr"),
    ("episodes", "episodes", None),
    ("model_return", "model-estimated return", None),
    ("dataset_return", "  the dataset's own", None),
    ("model_steps", "  horizon of both, in steps", None),
    ("posterior_entropy", "posterior entropy (1 = uniform)", None),
    ("steps", "iterations", None),
    ("seconds", "seconds", None),
)
SHOWN_SEEDS = 5


def result_table(result: dict[str, Any]) -> None:
    """Print a result as a table; rows that it lacks are left out."""
    from rich.table import Table

    title = " ".join(str(result[name]) for name in ("algo", "dataset", "preset") if name in result)
    table = Table("", "value", "± standard error", title=f"{title} seed {result['seed']}" if "seed" in result else None)
    for name, label, error in ROWS:
        if result.get(name) is not None:
            table.add_row(label, _number(result[name]), _number(result[error]) if error else "")
    console().print(table)


def seeds_table(summary: dict[str, Any]) -> None:
    """Print mean and standard deviation over seeds, and each seed's number where there are few."""
    from rich.table import Table

    title = " ".join(str(summary[name]) for name in ("algo", "dataset", "preset"))
    seeds = summary["seeds"]
    shown = [f"seed {seed}" for seed in seeds] if len(seeds) <= SHOWN_SEEDS else []
    table = Table("", "mean", "± std over seeds", *shown, title=title)
    for name, label, _ in ROWS:
        if name in summary:
            numbers = summary[name]
            std = _number(numbers["std"]) if len(seeds) > 1 else ""
            whole = all(isinstance(each, int) for each in numbers["each"]) and float(numbers["mean"]).is_integer()
            mean = _number(int(numbers["mean"]) if whole else numbers["mean"])
            table.add_row(label, mean, std, *map(_number, numbers["each"] if shown else ()))
    console().print(table)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
