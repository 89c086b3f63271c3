"""PSPO on the MuJoCo tasks: `python -m benchmarks.locomotion DATA-FOLDER [DATASET ...] [--variant uniform-posterior]`.

DATA-FOLDER holds what `python -m benchmarks.mujoco_data` collected (hopper-medium.hdf5 and so on). Each dataset is
`pspo train FILE --seeds N`, final policies, 50 episodes each by the mode. What is kept, in
benchmarks/results/mujoco/DATASET-VARIANT.json: command, mean, std, every seed's numbers and curve, and beside them
the behaviour's own mean, the mean of its best tenth of episodes, and the score of mu by its mode, with which every
policy starts. `--table` prints what is kept. benchmarks/results/locomotion-*.json are of an earlier preset, on 150,000
to 200,000 transitions.
"""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import claims

EPISODES = 50
VARIANTS: dict[str, list[str]] = {
    "pspo": [],
    "uniform-posterior": ["posterior=uniform"],
    "no-reference": ["reference_term=false"],
    "twice-as-long": ["steps=24000"],
    "no-caution": ["critic_value=mean", "box=none", "clip_targets=false", "kl_limit=0"],
}


def main() -> None:
    parser = claims.claim_parser(__doc__)
    parser.add_argument("folder", type=Path, nargs="?", metavar="DATA-FOLDER")
    parser.add_argument("datasets", nargs="*", default=["hopper-medium"], metavar="DATASET")
    parser.add_argument("--variant", default="pspo")
    parser.set_defaults(first_seed=500)  # those below had been seen when the preset was made
    options = claims.parse(parser, table)
    if options.folder is None:
        parser.error("name the folder that `python -m benchmarks.mujoco_data` wrote to.")
    claims.require_variants(parser, [options.variant], VARIANTS)
    runs = claims.runs_folder(options, "locomotion")
    for dataset in options.datasets:
        measure(dataset, options, runs / f"{dataset}-{options.variant}")


def measure(dataset: str, options: argparse.Namespace, folder: Path) -> None:
    file = options.folder / f"{dataset}.hdf5"
    task = dataset.split("-")[0]
    words = claims.train_words([str(file), "--task", task], options, EPISODES, VARIANTS[options.variant])
    summary = claims.run(words, folder) | {"dataset": dataset}  # a path says nothing elsewhere
    runs = [folder / f"seed-{seed}" for seed in summary["seeds"]]
    seeds = f"--first-seed {options.first_seed} --seeds {options.seeds}"
    result = {
        "dataset": dataset,
        "variant": options.variant,
        "command": f"python -m benchmarks.locomotion DATA-FOLDER {dataset} --variant {options.variant} {seeds}",
        "runs": shlex.join(["pspo", *words[:1], f"{dataset}.hdf5", *words[2:]]),
        "manifest": claims.manifest(folder, summary),
        "beside": compare(file, task, runs[0]),
        "summary": summary,
        "curves": {run.name: curve(run) for run in runs},
    }
    claims.keep(result, options.results / "mujoco", f"{dataset}-{options.variant}")
    print(table(options.results))


def curve(run: Path) -> list[dict[str, float]]:
    names = ("step", "score", "model_return", "posterior_entropy", "kl_mu")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: round(row[name], 3) for name in names} for row in rows if "score" in row]


def compare(file: Path, task: str, run: Path) -> dict[str, float]:
    """Normalised scores to compare the learned policy with."""
    from pspo.algorithms.common.behaviour import load_or_fit_reference
    from pspo.algorithms.pspo.algorithm import Config
    from pspo.core.config import build
    from pspo.core.progress import silent
    from pspo.data import load_dataset
    from pspo.data.normalise import fit_normaliser
    from pspo.envs.task import get_task
    from pspo.evaluation.simulator import evaluate
    from pspo.policies.policy import from_network

    data, where = load_dataset(file, task=task), get_task(task)
    config = build(Config, json.loads((run / "config.json").read_text())["settings"])
    norm = fit_normaliser(data, config.gamma)
    mu, _ = load_or_fit_reference(data, norm, config.reference, 0, lambda *a: silent("", *a), config.gamma)
    cloned: Any = from_network(mu, norm, {"task": task})
    returns = np.sort(data.episode_returns())[::-1]
    return {
        "transitions": data.size,
        "behaviour": float(where.normalised(returns.mean())),
        "best_tenth": float(where.normalised(returns[: max(1, len(returns) // 10)].mean())),
        "reference": evaluate(cloned, EPISODES, 0).score,
    }


def table(results: Path) -> str:
    lines = [
        "| data | transitions | variant | PSPO | each seed | behaviour | its best tenth | mu | minutes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for path in sorted((results / "mujoco").glob("*.json")):
        result = json.loads(path.read_text())
        score, beside = result["summary"]["score"], result["beside"]
        each = ", ".join(f"{value:.1f}" for value in score["each"])
        minutes = result["summary"]["seconds"]["mean"] / 60
        lines.append(
            f"| {result['dataset']} | {beside['transitions']:,} | {result['variant']} "
            f"| {score['mean']:.1f} ± {score['std']:.1f} | {each} "
            f"| {beside['behaviour']:.1f} | {beside['best_tenth']:.1f} | {beside['reference']:.1f} | {minutes:.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
