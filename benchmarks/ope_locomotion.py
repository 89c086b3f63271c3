"""Which estimates from the dataset alone tell a good policy from a collapsed one, on MuJoCo, where episodes are long.

    python -m benchmarks.ope_locomotion DATA-FOLDER POLICIES-FOLDER [DATASET ...] [--table]

POLICIES-FOLDER/DATASET holds policy files (`python -m benchmarks.ope_policies`) and links to finished runs. The truth
is the mean return of 20 episodes in the simulator, by the mode. Everything else comes from the dataset and from the
pool of models that `pspo ope` uses on it. Every policy is kept in benchmarks/results/ope-locomotion.json as soon as
it is measured: after an interruption the same command continues. `--table` prints and draws what is kept.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ope_locomotion_figure import draw
from benchmarks.ope_locomotion_summary import interval_error, prepared, product_sign, table
from benchmarks.policy_paths import Models, PolicyPaths
from pspo.algorithms.common.behaviour import load_or_fit_reference
from pspo.core.compute import keep_compiled_programs
from pspo.core.files import write_atomic
from pspo.core.progress import Lines, silent
from pspo.data import load_dataset
from pspo.data.dataset import Dataset
from pspo.envs.mujoco import play
from pspo.envs.task import get_task
from pspo.evaluation.config import evaluation_config
from pspo.evaluation.models_and_critics import pool_of_dataset
from pspo.evaluation.problem import EvaluatedReturn, make_problem
from pspo.policies.policy import load_policy
from pspo.runs.manifest import describe_machine

RESULTS = Path("benchmarks/results/ope-locomotion.json")
FIGURE = Path("docs/images/ope-locomotion.png")
EPISODES, TRUTH_SEED = 20, 77
ALL_REWARDS = EvaluatedReturn(1.0, 1000, True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", metavar="DATA-FOLDER")
    parser.add_argument("policies", type=Path, nargs="?", metavar="POLICIES-FOLDER")
    parser.add_argument("datasets", nargs="*", metavar="DATASET", help="default: all in POLICIES-FOLDER")
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON file (default: %(default)s)")
    parser.add_argument("--figure", type=Path, default=FIGURE, help="PNG file (default: %(default)s)")
    parser.add_argument("--table", action="store_true", help="only print and draw what is kept")
    options = parser.parse_args(arguments)
    if not options.table and options.policies is None:
        parser.error("name the folder of the data and that of the policies, or give --table.")
    keep_compiled_programs()
    kept = json.loads(options.results.read_text()) if options.results.exists() else {"datasets": {}, "policies": []}
    if not options.table:
        for name in options.datasets or sorted(path.name for path in options.policies.iterdir() if path.is_dir()):
            measure(name, options, kept)
    print(table(kept))
    rows = prepared(kept)
    kept["sign"] = product_sign(rows)
    kept["interval"] = interval_error(rows, kept["sign"]["limit"])
    keep(options.results, kept)
    write_atomic(options.figure, draw(rows, kept["sign"]["limit"]))
    print(f"\n{options.results}\n{options.figure}")


def measure(name: str, options: argparse.Namespace, kept: dict[str, Any]) -> None:
    """All policies on one dataset that are not kept yet."""
    files = [(path.stem if path.is_file() else path.name, path) for path in policies_in(options.policies / name)]
    done = {(row["dataset"], row["policy"], row["digest"]) for row in kept["policies"]}
    todo = [(policy, path) for policy, path in files if (name, policy, digest(path)) not in done]
    if not todo:
        return
    data = load_dataset(options.data / f"{name}.hdf5", task=name.split("-")[0])
    paths = None
    for policy, path in todo:
        problem = make_problem(load_policy(path), data, ALL_REWARDS, evaluation_config(data).pspo.gamma)
        paths = paths or PolicyPaths(problem, models_of(data, problem))
        row = {"dataset": name, "policy": policy, "digest": digest(path), "algo": load_policy(path).metadata["algo"]}
        row |= truth(path, name) | paths.statistics(load_policy(path), problem)
        old = [row for row in kept["policies"] if (row["dataset"], row["policy"]) != (name, policy)]
        kept["policies"] = sorted([*old, row], key=lambda row: (row["dataset"], row["policy"]))
        kept["datasets"][name] = about(data)
        kept["machine"] = describe_machine()
        keep(options.results, kept)
        noisy, calm = np.mean(row["noise"]["return_1"]), np.mean(row["mean"]["return_1"])
        print(
            f"{name}, {policy}: true {row['truth']:.0f} in {row['truth_length']:.0f} steps, with noise {noisy:.0f}, "
            f"without {calm:.0f}, disagreement x {row['disagreement']['mean_ratio']:.2f}",
            flush=True,
        )


def keep(path: Path, kept: dict[str, Any]) -> None:
    """With five digits, and a line for each policy."""
    rest = json.dumps({name: rounded(part) for name, part in kept.items() if name != "policies"}, indent=1)
    rows = ",\n".join(json.dumps(rounded(row)) for row in kept["policies"])
    write_atomic(path, f'{rest[:-2]},\n "policies": [\n{rows}\n ]\n}}\n')


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def policies_in(folder: Path) -> list[Path]:
    """Policy files, and runs."""
    return sorted(p for p in folder.iterdir() if p.suffix == ".safetensors" or (p / "policy.safetensors").exists())


def digest(path: Path) -> str:
    file = path if path.is_file() else path / "policy.safetensors"
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def models_of(data: Dataset, problem: Any) -> Models:
    """The pool and the reference policy of a PSPO run with its preset on these data."""
    config = evaluation_config(data).pspo
    with Lines() as progress:
        pool, terminated = pool_of_dataset(problem, config, progress)
    mu, _ = load_or_fit_reference(data, problem.norm, config.reference, 0, lambda *a: silent("", *a), config.gamma)
    return Models(pool, terminated, mu)


def truth(path: Path, dataset: str) -> dict[str, float]:
    """In the simulator, by the mode."""
    task, policy = get_task(dataset.split("-")[0]), load_policy(path)
    seeds = np.random.default_rng(TRUTH_SEED).integers(2**31, size=EPISODES).tolist()
    played = list(play(task.name, lambda obs, _: policy.act_encoded(obs), enumerate(seeds), EPISODES))
    returns = np.array([episode.total for episode in played])
    return {
        "truth": float(returns.mean()),
        "truth_stderr": float(returns.std() / EPISODES**0.5),
        "truth_length": float(np.mean([episode.length for episode in played])),
        "score": float(task.normalised(returns.mean())),
    }


def about(data: Dataset) -> dict[str, float]:
    returns = data.episode_returns()
    return {"transitions": data.size, "episodes": len(returns), "mean_return": float(returns.mean())}


if __name__ == "__main__":
    main()
