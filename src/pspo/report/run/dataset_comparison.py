"""For the practitioner first: is the policy better than the dataset, where does it act differently, is that covered?

All of it is read from comparison.json, which the end of training writes; pages of older runs lack these parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pspo.report.canvas import BLUE, GREY, svg
from pspo.report.charts import Line, lines
from pspo.report.markup import JOINED, figure, number, paragraph, percent, section, table, text
from pspo.report.run.contents import Contents

CLASSES = {"better": "better", "worse": "worse"}
MANY_NEW_ACTIONS = 0.1  # as `pspo ope` warns
MOST_OBS = 6  # columns of a state in the table of rows
MOST_CATEGORIES = 8  # rows of a table


def verdict_box(contents: Contents) -> str:
    """The verdict and its reasons, at the top of the page."""
    comparison = contents.comparison
    if "headline" not in comparison:
        return ""
    kind = CLASSES.get(comparison.get("verdict", ""), "open")
    reasons = "".join(f"<li>{text(reason)}</li>" for reason in comparison.get("reasons", []))
    return (
        f'<div class="verdict {kind}"><p class="headline">{text(comparison["headline"])}</p>'
        f"{_returns(comparison)}<ul>{reasons}</ul></div>"
    )


def _returns(comparison: dict[str, Any]) -> str:
    """Both returns in the same unit."""
    if "dataset" not in comparison:
        return ""
    how = "in the simulator" if comparison.get("basis") == "simulator" else "estimated"
    rows = [("the dataset", _interval(comparison["dataset"]))]
    rows.append((f"the policy, {how}", _interval(comparison["policy"]) if "policy" in comparison else "not estimated"))
    return table(["mean return", comparison.get("quantity", "")], rows)


def _interval(interval: dict[str, float]) -> str:
    if "value" not in interval:
        return "not known"
    if "low" not in interval or "high" not in interval:
        return f"{number(interval['value'])} (no interval)"
    ends = f"{number(interval['low'])} to {number(interval['high'])}"
    return f"{number(interval['value'])} (90{JOINED}% interval {ends})"


def comparison_section(contents: Contents) -> str:
    """Where the policy differs from the dataset, and whether the data cover it."""
    comparison = contents.comparison
    if not comparison.get("actions"):
        return ""
    return section(
        "comparison",
        "Where the policy differs from the dataset",
        paragraph(*_most_words(comparison)),
        table(
            ["action", "dataset’s mean", "policy’s mean", "mean difference", "of its range", "policy higher", "lower"],
            [_action_row(entry) for entry in comparison["actions"]],
        ),
        _by_state(comparison),
        _rows(comparison, contents),
        "<h3>Coverage</h3>",
        paragraph(*_coverage(comparison)),
    )


def _most_words(comparison: dict[str, Any]) -> list[str]:
    most = max(comparison["actions"], key=lambda entry: entry["share_of_range"])
    return [
        f"The policy’s action, by its mode, beside the logged one in {comparison.get('compared_rows', 0):,} states of "
        "the dataset.",
        f"It differs most in {most['name']}: on average by {number(most['mean_difference'])}, "
        f"{percent(most['share_of_range'])} of the range.",
    ]


def _action_row(entry: dict[str, Any]) -> list[str]:
    means = [number(entry[name]) for name in ("dataset_mean", "policy_mean", "mean_difference")]
    return [entry["name"], *means, *(percent(entry[name], 0) for name in ("share_of_range", "higher", "lower"))]


def _by_state(comparison: dict[str, Any]) -> str:
    """How both actions depend on the columns that explain most of the difference."""
    panels, words, tables = [], [], []
    for i, part in enumerate(comparison.get("by_state", [])):
        ranges = [group for group in part["groups"] if "low" in group]
        most = max(part["groups"], key=lambda group: group["share"])
        words.append(
            f"The difference depends on {part['column']}: {percent(most['share'], 0)} of it lies where that is "
            f"{_where(most, ranges)} (mean {part['action']} of the policy {number(most['policy'])}, of the dataset "
            f"{number(most['dataset'])})."
        )
        if ranges:
            panels.append(_curves(part, ranges, f"difference-{i}"))
        else:
            tables.append(_categories(part))
    if not words:
        return paragraph("The difference does not depend on any single observation column.")
    caption = "Means in groups of equally many states, along the columns that the difference depends on most."
    return paragraph(*words) + "".join(tables) + figure(panels, caption)


def _where(group: dict[str, Any], ranges: list[dict[str, Any]]) -> str:
    if "low" not in group:
        return group["label"]
    ends = [end for other in ranges for end in (other["low"], other["high"])]
    low, high = (_distinct(group[end], ends) for end in ("low", "high"))
    return low if low == high else f"{low} to {high}"


def _distinct(value: float, among: list[float]) -> str:
    """A number with the digits in which it differs from others: those of 1,700,000,060.25 are not the first four."""
    span = max(among) - min(among)
    if span == 0.0 or abs(value) < 100.0 * span:
        return number(value)
    return number(value, decimals=int(np.clip(2 - np.floor(np.log10(span)), 0, 9)))


def _curves(part: dict[str, Any], ranges: list[dict[str, Any]], name: str) -> str:
    middle = np.array([0.5 * (group["low"] + group["high"]) for group in ranges])
    logged, own = (np.array([group[which] for group in ranges]) for which in ("dataset", "policy"))
    drawn = lines(
        [Line(middle, own, BLUE, "policy", marker="o"), Line(middle, logged, GREY, "dataset", marker="o")],
        f"{part['action']} by {part['column']}",
        x_label=part["column"],
        y_label=f"mean {part['action']}",
    )
    return svg(drawn, name, f"Mean {part['action']} along {part['column']}.")


def _categories(part: dict[str, Any]) -> str:
    """The categories with most of the difference."""
    groups = sorted(part["groups"], key=lambda group: -group["share"])[:MOST_CATEGORIES]
    body = [[g["label"], number(g["dataset"]), number(g["policy"]), percent(g["share"], 0)] for g in groups]
    action = part["action"]
    return table([part["column"], f"dataset’s mean {action}", f"policy’s mean {action}", "of the difference"], body)


def _rows(comparison: dict[str, Any], contents: Contents) -> str:
    rows = comparison.get("rows", [])
    if not rows:
        return ""
    names = comparison.get("obs_names", [])[:MOST_OBS]
    columns = [[value for value in column if not isinstance(value, str | None)] for column in _columns(rows)]
    head = ["row", *names, *(f"{a['name']}, {who}" for a in comparison["actions"] for who in ("dataset", "policy"))]
    body = [
        [
            f"{entry['row']:,}",
            *(_observed(value, columns[i]) for i, value in enumerate(entry["obs"][: len(names)])),
            *(number(v) for pair in zip(entry["dataset"], entry["policy"], strict=False) for v in pair),
        ]
        for entry in rows
    ]
    command = f"<code>pspo inspect {text(contents.run.path)} --row N</code>"
    hint = f"<p>The largest differences, one of each episode. {command} explains one.</p>"
    return f"<h3>Rows to inspect</h3>{hint}{table(head, body)}"


def _columns(rows: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    return zip(*(entry["obs"] for entry in rows), strict=False)


def _observed(value: Any, column: list[float]) -> str:
    if value is None:
        return "missing"
    return value if isinstance(value, str) else _distinct(value, column)


def _coverage(comparison: dict[str, Any]) -> list[str]:
    share = comparison.get("new_actions")
    if share is None:
        return ["There are too few rows to tell how often the policy’s action is unlike any in the data."]
    words = [f"In {percent(share, 1)} of the dataset’s states the policy’s action is unlike any in the data there."]
    if share > MANY_NEW_ACTIONS:
        words.append("No method can tell what follows in those states: train with more caution (--caution high).")
    else:
        words.append("Elsewhere the data show what follows similar actions.")
    return words
