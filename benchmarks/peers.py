"""TD3+BC, IQL and CQL beside d3rlpy's: same file, same hyperparameters, same steps, same simulator.

    python -m benchmarks.peers DATA-FOLDER/hopper-medium.hdf5 --peer-python PATH/bin/python [--algos td3bc iql cql]

PATH is an environment with d3rlpy (pip install d3rlpy). Policies of both are evaluated by their mode over 50 episodes
of the same seeds, every EVERY steps. Kept in benchmarks/results/peers-DATASET-ALGO.json: both curves for every seed,
their final scores, seconds, versions. `--table` prints what is kept.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import claims

EPISODES = 50
SETTINGS = {
    "td3bc": ["width=256", "states=zscore", "rewards=raw", "batch=256"],
    "iql": ["width=256", "states=zscore", "rewards=range", "batch=256"],
    "cql": [
        *("width=128", "depth=2", "states=zscore", "rewards=raw", "batch=128", "samples=4"),
        *("conservatism=10", "actor_lr=1e-4", "critic_lr=3e-4", "cloning_steps=0"),
    ],
}
"""The hyperparameters of benchmarks/peers_d3rlpy.py, on top of the preset."""


def main() -> None:
    parser = claims.claim_parser(__doc__)
    parser.add_argument("file", type=Path, nargs="?", metavar="TASK-LEVEL.hdf5")
    parser.add_argument("--peer-python", help="Python of an environment with d3rlpy")
    parser.add_argument("--algos", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--every", type=int, default=10_000)
    parser.set_defaults(seeds=2, first_seed=90)
    options = claims.parse(parser, table)
    if options.file is None or options.peer_python is None:
        parser.error("name the data file and --peer-python.")
    runs = claims.runs_folder(options, "peers")
    for algo in options.algos:
        compare(algo, options, runs)


def compare(algo: str, options: argparse.Namespace, runs: Path) -> None:
    dataset = options.file.stem
    task = dataset.split("-")[0]
    results: dict[str, Any] = {"d3rlpy": [], "pspo": []}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        results["d3rlpy"].append(run_peer(algo, seed, options, runs / f"d3rlpy-{algo}-{seed}", task))
        results["pspo"].append(run_own(algo, seed, options, runs / f"pspo-{algo}-{seed}", task))
    command = f"python -m benchmarks.peers DATA-FOLDER/{dataset}.hdf5 --peer-python PYTHON --algos {algo}"
    result = {
        "dataset": dataset,
        "algo": algo,
        "command": f"{command} --steps {options.steps} --first-seed {options.first_seed} --seeds {options.seeds}",
        "settings": SETTINGS[algo],
        "versions": peer_versions(options.peer_python),
        "runs": results,
    }
    claims.keep(result, options.results, f"peers-{dataset}-{algo}")
    print(table(options.results), flush=True)


def run_peer(algo: str, seed: int, options: argparse.Namespace, folder: Path, task: str) -> dict[str, Any]:
    script = Path(__file__).with_name("peers_d3rlpy.py")
    words = [str(options.file), algo, str(seed), str(options.steps), str(options.every), str(folder)]
    subprocess.run([options.peer_python, str(script), *words], check=True, capture_output=True)
    policies = sorted(folder.glob("*.npz"), key=lambda path: int(path.stem))
    curve = [[int(path.stem), score_of(path, task)] for path in policies]
    return {"seed": seed, "curve": curve, "seconds": float((folder / "seconds.txt").read_text())}


def score_of(path: Path, task: str) -> float:
    """Normalised score of a policy file by its mode."""
    from pspo.collecting.behaviour import load_behaviour
    from pspo.envs import mujoco
    from pspo.envs.task import get_task

    where = get_task(task)
    policy, _ = load_behaviour(path, where.obs_dim, where.action_dim)
    episodes = mujoco.play(task, lambda obs, _: policy.mode(obs), enumerate(range(EPISODES)))
    return round(float(where.normalised(np.mean([episode.total for episode in episodes]))), 2)


def run_own(algo: str, seed: int, options: argparse.Namespace, folder: Path, task: str) -> dict[str, Any]:
    settings = [*SETTINGS[algo], f"steps={options.steps}", f"evaluate_every={options.every}"]
    words = ["train", str(options.file), "--task", task, "--algo", algo, "--seed", str(seed), "--out", str(folder)]
    words += ["--episodes", str(EPISODES), "--quiet", "--set", f"evaluate_episodes={EPISODES}"]
    words += [word for setting in settings for word in ("--set", setting)]
    subprocess.run([sys.executable, "-m", "pspo", *words], check=True, capture_output=True)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    curve = [[row["step"], round(row["score"], 2)] for row in rows if "score" in row]
    seconds = json.loads((folder / "manifest.json").read_text())["timings"]["train"]
    return {"seed": seed, "curve": curve, "seconds": seconds}


def peer_versions(python: str) -> dict[str, str]:
    code = "import json, importlib.metadata as m; print(json.dumps({n: m.version(n) for n in ('d3rlpy', 'torch')}))"
    return json.loads(subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout)


def table(results: Path) -> str:
    lines = ["| data | algorithm | program | final, each seed | curves | seconds |", "|---|---|---|---|---|---|"]
    for path in sorted(results.glob("peers-*.json")):
        kept = json.loads(path.read_text())
        for program, runs in kept["runs"].items():
            finals = ", ".join(f"{run['curve'][-1][1]:.1f}" for run in runs)
            curves = "; ".join(", ".join(f"{score:.0f}" for _, score in run["curve"]) for run in runs)
            seconds = ", ".join(f"{run['seconds']:.0f}" for run in runs)
            lines.append(f"| {kept['dataset']} | {kept['algo']} | {program} | {finals} | {curves} | {seconds} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
