"""What `python -m benchmarks.ope_locomotion` prints: how each statistic ranks policies and finds collapsed ones.

A policy has collapsed if its true return is below half of the dataset's. A statistic's limit is chosen on the datasets
of TUNING, as the one that finds most collapsed policies and flags at most a twentieth of the others, and measured on
all other datasets. Statistics are compared with the dataset's own numbers, so that a limit can hold elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import spearmanr

Row = dict[str, Any]
TUNING = ("hopper-expert", "walker2d-medium", "walker2d-medium-replay")
COLLAPSED = 0.5  # of the dataset's mean return
ALLOWED = 0.05  # of the policies of TUNING that did not collapse may be flagged


def _way(way: str, of: Callable[[Sequence[float]], float] = np.mean, name: str = "return_1") -> Callable[[Row], float]:
    return lambda row: float(of(row[way][name])) / row["dataset_return"]


STATISTICS: dict[str, Callable[[Row], float]] = {
    "models, with their noise": _way("noise"),
    "models, without noise": _way("mean"),
    "the lowest model, without noise": _way("mean", np.min),
    "models, without noise, another at every step": _way("switch"),
    "models, without noise, until they leave the data": lambda row: (
        row["mean"]["return_inside"] / row["dataset_return"]
    ),
    "models, without noise, discounted by 0.99": _way("mean", name="return_0.99"),
    "mean disagreement on the path": lambda row: -row["disagreement"]["mean_ratio"],
    "path above the 0.9 quantile of disagreement": lambda row: -row["disagreement"]["above"][1],
    "path above the 0.99 quantile of disagreement": lambda row: -row["disagreement"]["above"][2],
    "models' own noise on the path": lambda row: -row["own_noise"]["mean_ratio"],
    "path beyond the 0.99 quantile of distance": lambda row: -row["distance"]["above"][2],
    "mean distance of the path": lambda row: -row["distance"]["mean_ratio"],
    "mean distance of the states": lambda row: -row["state_distance"]["mean_ratio"],
    "surprise of mu on the path": lambda row: -row["surprise"]["mean_difference"],
    "surprise of mu in logged states": lambda row: -row["logged_states_surprise"]["mean_difference"],
    "disagreement on actions in logged states": lambda row: -row["logged_states_disagreement"]["mean_ratio"],
    "distance of actions in logged states": lambda row: -row["logged_states_distance"]["above"][2],
    "steps outside the data": lambda row: -row["mean"]["left"],
}
"""By name: the larger, the better the policy should be."""

PRODUCT = "models, without noise, until they leave the data"
"""The statistic that `pspo ope` estimates by on long tasks, and warns by."""


def prepared(kept: dict[str, Any]) -> list[Row]:
    """Rows with the dataset's own return."""
    return [row | {"dataset_return": kept["datasets"][row["dataset"]]["mean_return"]} for row in kept["policies"]]


def collapsed(row: Row) -> bool:
    return bool(row["truth"] < COLLAPSED * row["dataset_return"])


def rank_correlations(rows: Sequence[Row], statistic: Callable[[Row], float]) -> dict[str, float]:
    """Spearman's, within each dataset."""
    correlations = {}
    for name in sorted({row["dataset"] for row in rows}):
        here = [row for row in rows if row["dataset"] == name]
        if len(here) > 2:
            correlation = spearmanr([statistic(row) for row in here], [row["truth"] for row in here])
            correlations[name] = float(correlation[0])  # pyright: ignore[reportArgumentType]
    return correlations


def regret(rows: Sequence[Row], statistic: Callable[[Row], float]) -> float:
    """Return lost by the policy with the largest statistic, as a share of the best one's; mean over datasets."""
    lost = []
    for name in sorted({row["dataset"] for row in rows}):
        here = [row for row in rows if row["dataset"] == name]
        best = max(row["truth"] for row in here)
        lost.append((best - max(here, key=statistic)["truth"]) / abs(best))
    return float(np.mean(lost))


def area(good: Sequence[float], bad: Sequence[float]) -> float:
    """Of the ROC curve: how often a good policy has the larger statistic; ties count half."""
    if not (len(good) and len(bad)):
        return float("nan")
    difference = np.asarray(good)[:, None] - np.asarray(bad)[None]
    return float((difference > 0).mean() + 0.5 * (difference == 0).mean())


def split(rows: Sequence[Row], statistic: Callable[[Row], float]) -> tuple[np.ndarray, np.ndarray]:
    """The statistic of the good policies, and of those that collapsed."""
    value, bad = np.array([statistic(row) for row in rows]), np.array([collapsed(row) for row in rows], bool)
    return value[~bad], value[bad]


def limit(good: np.ndarray) -> float:
    """The largest limit below which at most ALLOWED of the good ones lie."""
    return float(np.sort(good)[int(ALLOWED * len(good))])


def flagged(good: np.ndarray, bad: np.ndarray, below: float) -> tuple[float, float]:
    """The share of collapsed policies that are found, and of good ones that are flagged."""
    return float((bad < below).mean()) if len(bad) else float("nan"), float((good < below).mean())


def product_sign(rows: Sequence[Row]) -> dict[str, Any]:
    """The sign of a collapse that `pspo ope` warns by: its limit from the tuning datasets, counts over all policies."""
    tuning, statistic = [row for row in rows if row["dataset"] in TUNING], STATISTICS[PRODUCT]
    below = float(f"{limit(split(tuning, statistic)[0]):.2g}")
    good, bad = split(rows, statistic)
    counts = {"collapsed": [int((bad < below).sum()), len(bad)], "others": [int((good < below).sum()), len(good)]}
    return {"limit": below} | counts


def relative_errors(rows: Sequence[Row], below: float) -> np.ndarray:
    """|estimate - truth| / |estimate| of the policies without the sign."""
    pairs = [(STATISTICS[PRODUCT](row), row["truth"] / row["dataset_return"]) for row in rows]
    return np.array([abs(value - true) / abs(value) for value, true in pairs if value >= below])


def interval_error(rows: Sequence[Row], below: float) -> dict[str, float]:
    """What `pspo ope` widens intervals by, and how often such 90 % intervals hold on the held-out datasets."""
    tuning, held_out = (
        relative_errors([row for row in rows if (row["dataset"] in TUNING) == part], below) for part in (True, False)
    )
    error = float(f"{np.quantile(tuning, 0.9):.2g}")
    return {"error": error, "held_out": len(held_out), "holds": int((held_out <= error).sum())}


def worse_called(rows: Sequence[Row], statistic: Callable[[Row], float]) -> float:
    """How often "worse than the dataset", a return below the dataset's, is called right."""
    return float(np.mean([(statistic(row) < 1.0) == (row["truth"] < row["dataset_return"]) for row in rows]))


def summary(kept: dict[str, Any]) -> list[dict[str, Any]]:
    """One entry per statistic."""
    rows = prepared(kept)
    tuning = [row for row in rows if row["dataset"] in TUNING]
    held_out = [row for row in rows if row["dataset"] not in TUNING]
    entries = []
    for name, statistic in STATISTICS.items():
        below = limit(split(tuning, statistic)[0])
        entry: dict[str, Any] = {"statistic": name, "spearman": rank_correlations(rows, statistic)}
        entry |= {"regret": regret(rows, statistic), "area": area(*split(rows, statistic)), "limit": below}
        for part, of in (("tuning", tuning), ("held_out", held_out)):
            if of:
                entry[part] = flagged(*split(of, statistic), below)
        if statistic(rows[0]) >= 0:  # a return
            entry["worse_called"] = worse_called(rows, statistic)
        entries.append(entry)
    return entries


def table(kept: dict[str, Any]) -> str:
    rows, entries = prepared(kept), summary(kept)
    names = sorted({row["dataset"] for row in rows})
    lines = []
    for name in names:
        here = [row for row in rows if row["dataset"] == name]
        lines.append(f"{name}: {len(here)} policies, {sum(map(collapsed, here))} of them collapsed")
    lines += [
        "",
        f"| statistic | {' | '.join(names)} | regret | area | held out: found, flagged | worse called right |",
    ]
    lines.append("|---" * (len(names) + 5) + "|")
    for e in entries:
        each = " | ".join(f"{e['spearman'].get(name, float('nan')):.2f}" for name in names)
        held_out = "{:.2f}, {:.2f}".format(*e["held_out"]) if "held_out" in e else ""
        worse = f"{e['worse_called']:.2f}" if "worse_called" in e else ""
        lines.append(f"| {e['statistic']} | {each} | {e['regret']:.2f} | {e['area']:.2f} | {held_out} | {worse} |")
    sign = product_sign(rows)
    lines += ["", f"sign of a collapse, {PRODUCT}: {sign}"]
    lines += [f"error of estimates without it, as a share of them: {interval_error(rows, sign['limit'])}"]
    return "\n".join(lines)
