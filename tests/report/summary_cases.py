"""Results made by hand for the summary page: missing runs, names that try to inject markup, predictable numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pspo.report.records import Record, Results

HOSTILE = "<script>alert(1)</script>"
AWKWARD = r"A & B_1 | 100% of $x$ \ [y] `z` *w* ~^{#}"

DATASETS = ["hopper-medium", "walker2d-medium", "liquidation"]
TASKS = {"hopper-medium": "hopper", "walker2d-medium": "walker2d", "liquidation": "liquidation"}
METHODS = {"pspo": "PSPO", "hostile": HOSTILE, "awkward": AWKWARD}

SCORES: dict[tuple[str, str], list[float | None]] = {
    ("hopper-medium", "pspo"): [100.0, 104.0, 108.0, 96.0],
    ("hopper-medium", "hostile"): [50.0, 60.0, 40.0, 58.0],
    ("hopper-medium", "awkward"): [102.0, 102.06, 101.98, 102.0],
    ("walker2d-medium", "pspo"): [80.0, 82.0, 84.0, 86.0],
    ("walker2d-medium", "hostile"): [90.0, None, 70.5, None],
    ("walker2d-medium", "awkward"): [7.25, 8.0, -3.5, 120.0],
    ("liquidation", "pspo"): [101.61, 101.48, 101.44, 101.48],
    ("liquidation", "hostile"): [89.0, 91.0, 90.0, 90.5],
    ("liquidation", "awkward"): [None, None, None, None],
}
PUBLISHED = {
    "hopper-medium": {"pspo": [103.2, 1.5], "hostile": [68.0, 20.25]},
    "walker2d-medium": {"pspo": [88.1, 0.4]},
    "liquidation": {"pspo": [102.3, 1.5]},
}
MACHINE = {"pspo": "0.1.0", "python": "3.11.7", "platform": "Linux", "libraries": {"jax": "0.10.2"}, "cores": 2}


def curve(seed: int) -> list[dict[str, float]]:
    """The true score drops once, by 1 + seed; the estimate, in hopper's returns, starts below and ends above it."""
    true = [10.0, 60.0, 59.0 - seed, 90.0]
    estimate = [5.0, 50.0, 70.0, 100.0 + seed]
    raw = [-20.272305 + share / 100 * (3234.3 + 20.272305) for share in estimate]
    steps = (1000, 2000, 3000, 4000)
    rows = zip(steps, true, raw, strict=True)
    return [{"step": step, "score": score, "model_return": value} for step, score, value in rows]


def uncertainty_sample(seed: int) -> dict[str, list[float]]:
    random = np.random.default_rng(seed)
    uncertainty = random.normal(size=200)
    target = random.normal(size=200) - 0.5 * uncertainty
    return {"uncertainty": uncertainty.tolist(), "td_target": target.tolist()}


def record(dataset: str, method: str, seed: int, score: float | None) -> Record:
    if score is None:
        message = "the run diverged at iteration 3: lower the learning rate." if seed == 1 else ""
        command = f"pspo train {dataset} --algo {method} --seed {seed}"
        return Record(
            dataset, method, seed, status="failed" if message else "missing", message=message, command=command
        )
    return Record(
        dataset,
        method,
        seed,
        algo=method,
        preset="smoke",
        status="finished",
        run=f"runs/{dataset}-{method}-{seed}",
        command=f"pspo train {dataset} --algo {method} --preset smoke --seed {seed} --set 'name=<b>&'",
        result={
            "task": TASKS.get(dataset, "hopper"),
            "score": score,
            "cvar10": score / 2,
            "seconds": 90.0 + seed,
            "uncertainty_td_spearman": -0.3 + 0.01 * seed,
        },
        curve=curve(seed) if method == "pspo" and dataset == "hopper-medium" else [],
        uncertainty=uncertainty_sample(seed) if method == "pspo" else {},
    )


def made_up(scores: dict[tuple[str, str], list[float | None]] | None = None, **replaced: Any) -> Results:
    """Keywords replace fields of the results."""
    found = SCORES if scores is None else scores
    values: dict[str, Any] = {
        "title": f"Table 1: {HOSTILE}",
        "datasets": list(dict.fromkeys(dataset for dataset, _ in found)),
        "methods": {method: METHODS.get(method, method) for _, method in found},
        "records": [record(*pair, seed, score) for pair, row in found.items() for seed, score in enumerate(row)],
        "name": "table1",
        "first": "pspo",
        "command": "pspo experiment table1 --seeds 4",
        "published": PUBLISHED,
        "notes": ["Every seed is one run."],
        "machine": MACHINE,
    }
    return Results(**values | replaced)


def write_run_page(results: Results, folder: Path, index: int = 0) -> Path:
    """A page in the directory of a run."""
    place = folder / results.records[index].run / "report.html"
    place.parent.mkdir(parents=True)
    place.write_text("<!DOCTYPE html><title>The run itself</title><h1>Own page</h1>")
    return place
