"""A finished run directory made by hand: every file of a real run, with numbers that a test can predict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from pspo.algorithms.pspo.algorithm import Config
from pspo.algorithms.registry import preset
from pspo.core.config import build, flatten
from pspo.core.files import write_arrays, write_json
from pspo.data.normalise import Normaliser
from pspo.policies.heads import Net
from pspo.policies.policy import FILE_NAME, Policy

STEPS = (250, 500, 750, 1000)
SELLS_ABOVE = 1.7
POOL = 4


def threshold_policy(price: float = SELLS_ABOVE) -> Policy:
    """Sells everything above a price and nothing below it: one linear layer on (time, inventory, price)."""
    norm = Normaliser(
        obs_mean=np.array([0, 0, price], np.float32),
        obs_std=np.ones(3, np.float32),
        obs_low=np.zeros(3, np.float32),
        obs_high=np.array([20, 100, 5], np.float32),
        grid_column=np.zeros(0, np.int32),
        grid_points=np.zeros((0, 0), np.float32),
        action_low=np.full(1, -1, np.float32),
        action_high=np.full(1, 1, np.float32),
        reward_scale=np.float32(1),
    )
    weight = np.zeros((3, 3), np.float32)
    weight[2, 1] = 1000.0  # of the price on the mean: columns are logit, mean and log standard deviation
    net = Net((weight,), (np.zeros(3, np.float32),), "silu")
    return Policy("mixture", {"net": net}, {}, {"components": 1, "action_dim": 1}, norm, {"task": "liquidation"})


def diagnostics(rows: int = 300) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    uncertainty = random.normal(size=rows)
    return {
        "uncertainty": uncertainty.astype(np.float32),
        "td_target": (random.normal(size=rows) - 0.4 * uncertainty).astype(np.float32),
        "entropy": random.uniform(0.5, 1, size=rows).astype(np.float32),
        "member_weight": np.array([0.4, 0.3, 0.2, 0.1], np.float32),
    }


def metrics(scored: bool = True) -> list[dict[str, float]]:
    """Training metrics whose model estimate ends above the true score."""
    rows = []
    for i, step in enumerate(STEPS):
        row = {"step": step, "posterior_entropy": 1 - 0.02 * i, "effective_models": 3.9 - 0.1 * i}
        row |= {"kl_mu": 2.0 - 0.2 * i, "kl_target_policy": 0.05 / (i + 1), "lambda": 0.01 / (i + 1)}
        row |= {
            "critic_loss": 0.1 / (i + 1),
            "q_min": -0.1,
            "q_mean": 1.0 + i,
            "q_max": 5.0,
            "model_return": 130 + 3 * i,
        }
        if scored:
            row |= {
                "score": 95.0 + 2 * i,
                "score_by_regret": 94.5 + 2 * i,
                "target_policy_score_by_regret": 94.0 + 2 * i,
            }
        rows.append(row)
    return rows


def models() -> dict[str, Any]:
    levels = [0.25, 0.5, 0.75]
    return {
        "pool": {
            "holdout_log_likelihood": [2.1, 2.3, 2.2, 2.4],
            "calibration_levels": levels,
            "calibration_coverage": [0.3, 0.55, 0.8],
            "calibration_coverage_per_target": [[0.25, 0.5, 0.75], [0.35, 0.6, 0.85]],
            "calibration_error": 0.05,
            "k_step_error": [0.1, 0.2],
            "k_step_error_of_no_change": [0.4, 0.8],
        },
        "reference": {"holdout_log_likelihood": -0.5, "uniform_log_likelihood": -0.7},
    }


def result() -> dict[str, Any]:
    return {
        "steps": 1000,
        "seconds": 12.3,
        "episodes": 10_000,
        "return_mean": 134.3,
        "return_std": 50.0,
        "return_stderr": 0.5,
        "cvar10": 31.07,
        "score": 99.48,
        "score_stderr": 0.37,
        "regret": 1.5,
        "regret_stderr": 0.02,
        "score_by_regret": 100.72,
        "optimal_score": 101.83,
    }


def config(settings: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    values = {"algo": "pspo", "dataset": "liquidation", "task": "liquidation", "preset": "smoke", "seed": 3} | changed
    every = flatten(build(Config, preset("pspo", "smoke", values["task"]), settings or {}))
    return values | {"episodes": 10_000, "settings": every}


def write_run(path: Path, **replaced: Any) -> Path:
    """Write the files; a keyword replaces one of them, None leaves it out."""
    files: dict[str, Any] = {
        "config": config(),
        "manifest": {"pspo": "0.1.0", "threads": 1, "data_hash": "c0ffee", "timings": {"train": 11.1}},
        "result": result(),
        "models": models(),
        "metrics": metrics(),
        "diagnostics": diagnostics(),
        "policy": threshold_policy(),
    } | replaced
    path.mkdir(parents=True)
    for name in ("config", "manifest", "result", "models"):
        if files[name] is not None:
            write_json(path / f"{name}.json", files[name])
    if files["metrics"] is not None:
        (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in files["metrics"]))
    if files["diagnostics"] is not None:
        write_arrays(path / "diagnostics.safetensors", files["diagnostics"], {})
    if files["policy"] is not None:
        files["policy"].save(path / FILE_NAME)
    return path
