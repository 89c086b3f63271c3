"""How often intervals of off-policy evaluation contain the true return, on liquidation, where it is known.

    python -m benchmarks.ope RUNS-FOLDER [--datasets 3] [--transitions 100000] [--quick]

Policies are the final ones of all finished liquidation runs below RUNS-FOLDER. Each is evaluated on the dataset that it
was trained on (seed 0) and on new datasets of the same size that no policy was trained on (seeds 1, 2, ...). The true
return is the optimum minus the exact regret over simulated episodes: of the policy's mode, and of the stochastic policy
for methods that evaluate it. Every estimate is saved at once: after an interruption the same command continues.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import jax
import numpy as np
from jax.tree_util import Partial
from scipy.stats import spearmanr

from benchmarks.ope_figure import draw
from pspo.core.files import write_atomic
from pspo.core.progress import Lines, Reporter
from pspo.data import load_dataset
from pspo.envs.task import get_task
from pspo.evaluation.config import evaluation_config
from pspo.evaluation.density import BEHAVIOURS, has_density
from pspo.evaluation.ope import ESTIMATORS
from pspo.evaluation.ope.estimate_run import RunEstimates, estimate_return
from pspo.evaluation.ope.return_estimate import ReturnEstimate, contradictions
from pspo.evaluation.run_inputs import finite
from pspo.evaluation.simulator import actor_by_mode
from pspo.nets.actors import act
from pspo.policies.policy import FILE_NAME, load_policy, to_network
from pspo.runs.manifest import describe_machine

RESULTS = Path("benchmarks/results/ope.json")
FIGURE = Path("docs/images/ope-coverage.png")
TASK, TRAINING_SEED = "liquidation", 0
ENOUGH = 20  # policies, for a fraction to mean something
QUICK = {"transitions": 2000, "episodes": 2000, "datasets": 1}
QUICK_POLICIES = 2
OLD_KEYS = {
    "judgements": "estimates",
    "rows": "transitions",
    "log": "dataset",
    "logs": "datasets",
    "judges": "actions",
    "doubts": "warnings",
}
"""Keys of results of version 0.1."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, metavar="RUNS-FOLDER")
    parser.add_argument("--datasets", type=int, default=3, help="new datasets (default: %(default)s)")
    parser.add_argument("--transitions", type=int, default=100_000, help="per dataset (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=100_000, help="simulated per policy (default: %(default)s)")
    parser.add_argument("--confidence", type=float, default=0.9, help="of the intervals (default: %(default)s)")
    parser.add_argument("--results", type=Path, help=f"JSON file (default: {RESULTS})")
    parser.add_argument("--figure", type=Path, help=f"PNG file (default: {FIGURE})")
    parser.add_argument(
        "--quick", action="store_true", help="tiny, with results in a temporary folder: shows that it runs"
    )
    options = parser.parse_args(arguments)
    results, figure = RESULTS, FIGURE
    if options.quick:
        vars(options).update(QUICK)
        elsewhere = Path(mkdtemp(prefix="pspo-ope-"))
        results, figure = elsewhere / "ope.json", elsewhere / "ope.png"
    options.results, options.figure = options.results or results, options.figure or figure
    policies = find_policies(options.runs)[: QUICK_POLICIES if options.quick else None]
    if not policies:
        parser.error(f"there is no finished liquidation run below {options.runs}.")
    if len(policies) < ENOUGH and not options.quick:
        print(f"only {len(policies)} policies: fractions of fewer than {ENOUGH} mean little.")
    kept = study(policies, options)
    options.figure.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(options.figure, draw(points(kept)))
    print(table(kept["summary"]))
    print(f"\n{options.results}\n{options.figure}")


def find_policies(folder: Path) -> list[tuple[str, Path]]:
    """(name, run) of every finished run on the built-in dataset, by name."""
    runs = [path.parent for path in sorted(folder.rglob("result.json"))]
    configs = {run: json.loads((run / "config.json").read_text()) for run in runs if (run / FILE_NAME).exists()}
    return [(str(run.relative_to(folder)), run) for run in configs if configs[run]["dataset"] == TASK]


def study(policies: Sequence[tuple[str, Path]], options: argparse.Namespace) -> dict[str, Any]:
    """All true returns and estimates that are not there yet, each written as soon as it is there."""
    settings = {name: getattr(options, name) for name in ("transitions", "episodes", "confidence", "quick")}
    kept = _kept(options.results, settings)
    for name, run in policies:
        digest = hashlib.sha256((run / FILE_NAME).read_bytes()).hexdigest()[:16]
        if kept["policies"].get(name, {}).get("policy") != digest:
            kept["estimates"] = [row for row in kept["estimates"] if row["policy"] != name]
            kept["policies"][name] = {"policy": digest} | truth(run, options.episodes)
            _keep(options.results, kept)
    for seed in range(TRAINING_SEED, options.datasets + 1):  # one after the other: models of each are fitted once
        data = load_dataset(TASK, size=options.transitions, seed=seed)
        config = evaluation_config(data, "smoke" if options.quick else "laptop")
        for name, run in policies:
            if any((row["policy"], row["dataset"]) == (name, seed) for row in kept["estimates"]):
                continue
            known = {"behaviour": BEHAVIOURS[TASK], "config": config, "reporter": Reporter(Lines())}
            estimates = estimate_return(run, data, gamma=1.0, confidence=options.confidence, **known)
            kept["estimates"] += rows_of(name, seed, estimates)
            _keep(options.results, kept)
            values = ", ".join(f"{e.method} {e.value:.1f}" for e in estimates.estimates)
            print(f"dataset {seed}, {name}: {values}", flush=True)
    kept["summary"] = summary(kept)
    _keep(options.results, kept)
    return kept


def truth(run: Path, episodes: int) -> dict[str, float | None]:
    """Mean returns of the policy's mode and, if it is stochastic, of sampled actions, with their standard errors."""
    policy, task = load_policy(run), get_task(TASK)
    network = to_network(policy)
    noisy = lambda network, obs, key: act(network, policy.norm, obs, key)  # noqa: E731
    ways = {"mode": Partial(actor_by_mode(policy.norm), network)}
    ways |= {"sampled": Partial(noisy, network)} if has_density(network) else {}
    returns: dict[str, float | None] = {}
    for name, way in ways.items():
        regret = task.simulate(way, jax.random.PRNGKey(1), episodes, stochastic=name == "sampled").regret
        assert regret is not None, "liquidation's optimum is known"
        assert task.optimal_return is not None
        returns[name] = float(task.optimal_return - regret.mean())
        returns[f"{name}_stderr"] = float(regret.std() / episodes**0.5)
    return returns


def rows_of(name: str, seed: int, estimates: RunEstimates) -> list[dict[str, Any]]:
    """One row per estimate: what the table and the figure need."""
    return [
        {
            "policy": name,
            "dataset": seed,
            "method": e.method,
            "actions": e.actions,
            **{end: finite(float(f"{getattr(e, end):.6g}")) for end in ("value", "low", "high")},
            "warnings": len(e.warnings),
            "effective": finite(e.numbers.get("effective_episodes", e.numbers.get("effective_models"))),
        }
        for e in estimates.estimates
    ]


def points(kept: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows with the true return of each, and whether another method contradicts it."""
    pairs = contradicted(kept["estimates"])
    return [
        row
        | {
            "truth": kept["policies"][row["policy"]][row["actions"]],
            "contradicted": (row["policy"], row["dataset"], row["method"]) in pairs,
        }
        for row in kept["estimates"]
    ]


def contradicted(rows: Iterable[dict[str, Any]]) -> set[tuple[str, int, str]]:
    """(policy, dataset, method) of estimates that another of the same policy and dataset excludes."""
    groups: dict[tuple[str, int], list[ReturnEstimate]] = {}
    for row in rows:
        low, high = (
            row[end] if row[end] is not None else default for end, default in (("low", -np.inf), ("high", np.inf))
        )
        warnings = row["warnings"] * ["a warning"]  # only their number is kept
        estimate = ReturnEstimate(row["method"], row["value"], low, high, row["actions"], warnings=warnings)
        groups.setdefault((row["policy"], row["dataset"]), []).append(estimate)
    return {
        (*which, estimate.method)
        for which, estimates in groups.items()
        for pair in contradictions(estimates)
        for estimate in pair
    }


def summary(kept: dict[str, Any]) -> list[dict[str, Any]]:
    """Per method, on the training dataset and on new ones."""
    rows_of_table = []
    for method in (info.title for info in ESTIMATORS.values()):
        for datasets, new in (("training", False), ("new", True)):
            rows = [r for r in points(kept) if r["method"] == method and (r["dataset"] != TRAINING_SEED) == new]
            if rows:
                rows_of_table.append({"method": method, "datasets": datasets} | measures(rows))
    return rows_of_table


def measures(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Estimates without an interval are counted separately: they neither contain the true return nor miss it."""
    closed = [r for r in rows if None not in (r["value"], r["low"], r["high"])]
    true = np.array([r["truth"] for r in closed])
    value, low, high = (np.array([r[end] for r in closed]) for end in ("value", "low", "high"))
    holds = (low <= true) & (true <= high)
    trusted = np.array([r["warnings"] == 0 and not r["contradicted"] for r in closed], bool)
    return finite(
        {
            "estimates": len(rows),
            "without_interval": len(rows) - len(closed),
            "coverage": _mean(holds),
            "contradicted": sum(r["contradicted"] for r in closed),
            "trusted": int(trusted.sum()),
            "coverage_of_trusted": _mean(holds[trusted]),
            "too_high": int((low > true).sum()),
            "too_low": int((high < true).sum()),
            "median_width": float(np.median(high - low)) if closed else None,
            "bias": _mean(value - true),
            "mean_error": _mean(np.abs(value - true)),
            "rank_correlation": rank_correlation(closed),
        }
    )


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def rank_correlation(rows: Sequence[dict[str, Any]]) -> float | None:
    """Spearman's over the policies on one dataset, mean over datasets; None if there are too few to rank."""
    each = []
    for dataset in sorted({r["dataset"] for r in rows}):
        pairs = np.array([(r["value"], r["truth"]) for r in rows if r["dataset"] == dataset])
        if len(pairs) > 2 and np.ptp(pairs, axis=0).min() > 0:
            each.append(float(spearmanr(*pairs.T)[0]))  # pyright: ignore[reportArgumentType]
    return float(np.mean(each)) if each else None


def table(measured: Iterable[dict[str, Any]]) -> str:
    """The summary as a Markdown table."""
    lines = [
        "| method | datasets | coverage | coverage without warnings | too high, too low "
        "| no interval | median width | bias | mean error | rank correlation |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in measured:
        percent = lambda share: "" if share is None else f"{100 * share:.0f} %"  # noqa: E731
        number = lambda value: "" if value is None else f"{value:.2f}"  # noqa: E731
        closed = row["estimates"] - row["without_interval"]
        lines.append(
            f"| {row['method']} | {row['datasets']} | {percent(row['coverage'])} of {closed} "
            f"| {percent(row['coverage_of_trusted'])} of {row['trusted']} | {row['too_high']}, {row['too_low']} "
            f"| {row['without_interval']} | {number(row['median_width'])} | {number(row['bias'])} "
            f"| {number(row['mean_error'])} | {number(row['rank_correlation'])} |"
        )
    return "\n".join(lines)


def _kept(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    fresh = {"command": "python -m benchmarks.ope RUNS-FOLDER", "settings": settings, "machine": describe_machine()}
    if not path.exists():
        return fresh | {"policies": {}, "estimates": [], "summary": []}
    kept = json.loads(path.read_text(), object_hook=lambda part: {OLD_KEYS.get(k, k): v for k, v in part.items()})
    if kept["settings"] != settings:
        raise SystemExit(f"{path} was made with {kept['settings']}, not with {settings}: name another --results.")
    return kept


def _keep(path: Path, kept: dict[str, Any]) -> None:
    """One line per row, so that differences show."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f'"{name}": {json.dumps(kept[name])}' for name in ("command", "settings", "machine")]
    listed = [f"{json.dumps(name)}: {json.dumps(policy)}" for name, policy in kept["policies"].items()]
    lines.append('"policies": {\n' + ",\n".join(listed) + "\n}")
    for name in ("estimates", "summary"):
        lines.append(f'"{name}": [\n' + ",\n".join(json.dumps(row) for row in kept[name]) + "\n]")
    write_atomic(path, "{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
