"""The example with company-like data: what policies truly earn, and whether the intervals of `pspo ope` hold the truth.

    python -m benchmarks.energy_storage [--runs FOLDER] [--days-seed S] [--quick]

Trains ten policies with default settings on the folder that examples/energy_storage.py writes, a fifth of the days held
out; reports which part of the gap between the rule behind the data and the optimum each closes, and evaluates each on
the held-out days, or on another record of them (--days-seed). What is finished is kept among the runs: after an
interruption the same command continues.
Writes benchmarks/results/energy-storage.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from timeit import default_timer
from typing import Any

import numpy as np

from benchmarks.claims import RESULTS, keep
from examples import energy_storage as storage
from pspo.core.terminal import show
from pspo.evaluation.ope.estimate_run import estimate_return
from pspo.evaluation.run_inputs import finite
from pspo.policies.policy import Policy, load_policy
from pspo.runs.manifest import describe_machine

COLUMNS = {
    "obs": "timestamp,site,forecast,price_ct,charge_pct,temperature_c",
    "action": "power_kw",
    "reward": "profit_eur",
    "episode": "site,day",
    "terminal": "day_over",
    "time": "timestamp",
    "propensity": "density",
    "cyclic": "hour_of_day",
    "action-low": "-50",
    "action-high": "50",
}
POLICIES = (
    *(("pspo", seed) for seed in (40, 41, 42)),
    *((algo, 40) for algo in ("bc", "td3bc", "iql", "cql", "mopo", "pmdb")),
    ("td3bc", 41),
)
HOLDOUT = 0.2
HEADLINE = "posterior models"
QUICK_POLICIES, QUICK_DAYS = (("pspo", 40), ("bc", 40)), 30


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="keep the data and the runs here")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON file (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=100, help="simulations of each day (default: %(default)s)")
    parser.add_argument("--days-seed", type=int, metavar="S", help="estimate from another record of the held-out days")
    parser.add_argument("--quick", action="store_true", help="tiny, with results among the runs: shows that it runs")
    options = parser.parse_args(arguments)
    options.runs = options.runs or Path(tempfile.mkdtemp(prefix="pspo-energy-storage-"))
    if options.quick:
        options.results, options.repeats = options.runs, 2
    policies, days = (QUICK_POLICIES, QUICK_DAYS) if options.quick else (POLICIES, storage.DAYS)
    data = options.runs / "storage"
    if not data.exists():
        storage.write_folder(storage.record(days), data)
    dates = held_out_dates(days)
    others = other_days(options.runs, dates, options.days_seed)
    kept_as = "measured.json" if others is None else f"measured-days-{options.days_seed}.json"
    known = {"year": None if days == storage.DAYS else storage.FIRST_DAY + np.arange(days), "held_out": dates}
    result: dict[str, Any] = {
        "command": "python -m benchmarks.energy_storage"
        + ("" if others is None else f" --days-seed {options.days_seed}"),
        "machine": describe_machine(),
        "repeats": options.repeats,
        "held_out": [str(dates[0]), str(dates[-1])],
        "rule": {name: storage.mean_return(storage.rule_with_noise, options.repeats, d) for name, d in known.items()},
        "optimum": {name: storage.mean_return(storage.optimum, options.repeats, d) for name, d in known.items()},
        "policies": {},
    }
    for algo, seed in policies:
        run = train(data, algo, seed, options.runs / f"{algo}-{seed}", "smoke" if options.quick else "laptop")
        measured = run / kept_as
        if not measured.exists():
            measured.write_text(json.dumps(finite(measure(run, others, known, options.repeats, result))))
        result["policies"][f"{algo}-{seed}"] = json.loads(measured.read_text())
        result["summary"] = summary(result["policies"])
        name = "energy-storage" if others is None else f"energy-storage-days-{options.days_seed}"
        keep(finite(result), options.results, name)
    print_table(result)
    return result


def held_out_dates(days: int) -> np.ndarray:
    """The last fifth of the days, as all sites have a row for each."""
    first = round((1.0 - HOLDOUT) * days)
    return storage.FIRST_DAY + np.arange(first, days)


def other_days(runs: Path, dates: np.ndarray, seed: int | None) -> Path | None:
    """The folder of another record of these days: other weather, prices and noise. None where none is wanted."""
    if seed is None:
        return None
    folder = runs / f"days-{seed}"
    if not folder.exists():
        storage.write_folder(storage.record(len(dates), seed, dates[0]), folder)
    return folder


def train(data: Path, algo: str, seed: int, run: Path, preset: str) -> Path:
    """`pspo train`, unless it has finished before; its time is kept in the run."""
    if (run / "seconds.json").exists():
        return run
    words = ["train", str(data), "--algo", algo, "--seed", str(seed), "--holdout", str(HOLDOUT), "--quiet"]
    words += [word for role, patterns in COLUMNS.items() for word in (f"--{role}={patterns}",)]
    words += ["--preset", preset, "--out", str(run)]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), default_timer()
    subprocess.run([sys.executable, "-m", "pspo", *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    seconds = {"wall": round(default_timer() - start, 1), "processor": round(processor, 1)}
    (run / "seconds.json").write_text(json.dumps(seconds))
    return run


def measure(
    run: Path, data: Path | None, known: dict[str, np.ndarray | None], repeats: int, result: dict[str, Any]
) -> dict[str, Any]:
    """Of one policy: its true returns, the part of the gap that it closes, and every estimate beside the truth. They
    are from its hold-out, or from `data`."""
    policy, dates = load_policy(run), known["held_out"]
    estimates = estimate_return(run, data)
    ways = {"mode": storage.by_name(policy)}
    if any(estimate.actions == "sampled" for estimate in estimates.estimates):
        ways["sampled"] = sampled(policy)
    truth = {name: storage.mean_return(act, repeats, dates) for name, act in ways.items()}
    year = storage.mean_return(ways["mode"], repeats, known["year"])
    low, high = result["rule"]["year"], result["optimum"]["year"]
    return {
        "return": year,
        "gap_closed": (year - low) / (high - low),
        "seconds": json.loads((run / "seconds.json").read_text()),
        "quantity": estimates.quantity,
        "held_out_return": truth,
        "dataset_return": estimates.dataset_return,
        "estimates": [
            {
                "method": estimate.method,
                "actions": estimate.actions,
                "value": estimate.value,
                "low": estimate.low,
                "high": estimate.high,
                "holds": bool(estimate.low <= truth[estimate.actions] <= estimate.high),
                "warnings": len(estimate.warnings),
            }
            for estimate in estimates.estimates
        ],
    }


def sampled(policy: Policy) -> storage.Act:
    return lambda state, random: np.asarray(policy.sample(storage.seen(state, random), random))[:, 0]


def summary(policies: dict[str, Any]) -> dict[str, Any]:
    rows = [row for policy in policies.values() for row in policy["estimates"]]
    methods = dict.fromkeys(row["method"] for row in rows)
    by_method = {method: [row for row in rows if row["method"] == method] for method in methods}
    return {
        "pspo_gap_closed": [policy["gap_closed"] for name, policy in policies.items() if name.startswith("pspo")],
        "intervals_that_hold": {m: f"{sum(r['holds'] for r in of)} of {len(of)}" for m, of in by_method.items()},
        "of_those_without_a_warning": {
            method: f"{sum(r['holds'] for r in of if not r['warnings'])} of {sum(not r['warnings'] for r in of)}"
            for method, of in by_method.items()
        },
    }


def print_table(result: dict[str, Any]) -> None:
    show("| policy | true return | gap closed | on held-out days | posterior models | holds | minutes |")
    show("|---|---|---|---|---|---|---|")
    for name, policy in result["policies"].items():
        estimate = next(row for row in policy["estimates"] if row["method"] == HEADLINE)
        show(
            f"| {name} | {policy['return']:.2f} | {100 * policy['gap_closed']:.0f} % "
            f"| {policy['held_out_return']['mode']:.2f} | {estimate['low']:.2f} to {estimate['high']:.2f} "
            f"| {'yes' if estimate['holds'] else 'no'} | {policy['seconds']['processor'] / 60:.1f} |"
        )
    show(f"rule {result['rule']['year']:.2f}, optimum {result['optimum']['year']:.2f}; {result['summary']}")


if __name__ == "__main__":
    main()
