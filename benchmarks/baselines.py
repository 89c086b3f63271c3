"""All algorithms under one protocol: `python -m benchmarks.baselines liquidation [ALGO ...]`, or MuJoCo data
`python -m benchmarks.baselines DATA-FOLDER/hopper-medium.hdf5 [ALGO ...] --seeds 2`.

Each is `pspo train DATASET --algo ALGO --preset laptop`, final policies without noise, 100,000 episodes on
liquidation and 50 on MuJoCo. What is kept, in benchmarks/results/baselines-DATASET-ALGO.json: command, mean, std,
every seed's numbers and curve. `--table` prints it, beside PSPO's own claims, the row that the paper prints for
liquidation, and its exact optimum.
"""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from benchmarks import claims
from pspo.algorithms import ALGORITHMS
from pspo.envs.task import get_task
from pspo.report.published import published

PSPO = {"liquidation": "liquidation-pspo", "hopper-medium": "locomotion-hopper-medium-pspo"}
"""Kept results of PSPO, to compare the others with."""


def main() -> None:
    parser = claims.claim_parser(__doc__)
    parser.add_argument("dataset", nargs="?", help="liquidation, or the path of a file TASK-LEVEL.hdf5")
    parser.add_argument("algorithms", nargs="*", metavar="ALGO", help="default: every one but PSPO")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings")
    parser.add_argument("--variant", default="", metavar="NAME", help="what a run with --set is kept as")
    parser.add_argument("--preset", default="laptop")
    options = claims.parse(parser, table)
    if options.dataset is None:
        parser.error("name a dataset: liquidation, or the path of a file such as DATA/hopper-medium.hdf5.")
    if bool(options.settings) != bool(options.variant):
        parser.error("--set and --variant go together: changed settings are kept under another name.")
    claims.require_variants(parser, options.algorithms, ALGORITHMS)
    runs = claims.runs_folder(options, "baselines")
    for algo in options.algorithms or [name for name in ALGORITHMS if name != "pspo"]:
        measure(algo, options, runs / "-".join(filter(None, (Path(options.dataset).stem, algo, options.variant))))


def measure(algo: str, options: argparse.Namespace, folder: Path) -> None:
    name = Path(options.dataset).stem
    built_in = options.dataset == "liquidation"
    what = [options.dataset, *([] if built_in else ["--task", name.split("-")[0]]), "--algo", algo]
    what += ["--preset", options.preset]
    words = claims.train_words(what, options, 100_000 if built_in else 50, options.settings)
    summary = claims.run(words, folder) | {"dataset": name}  # a path says nothing elsewhere
    seeds = f"--first-seed {options.first_seed} --seeds {options.seeds}"
    source = name if built_in else f"DATA-FOLDER/{name}.hdf5"
    changed = "".join(f" --set {setting}" for setting in options.settings)
    changed += f" --variant {options.variant}" if options.variant else ""
    result = {
        "dataset": name,
        "algo": algo,
        "variant": options.variant,
        "command": f"python -m benchmarks.baselines {source} {algo} {seeds}{changed}",
        "runs": shlex.join(["pspo", *words[:1], source, *words[2:]]),
        "manifest": claims.manifest(folder, summary),
        "summary": summary,
        "curves": {f"seed-{seed}": curve(folder / f"seed-{seed}") for seed in summary["seeds"]},
    }
    claims.keep(result, options.results, "-".join(filter(None, ("baselines", name, algo, options.variant))))
    print(table(options.results))


def curve(run: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    names = ("step", "score", "score_by_regret", "q_mean")
    return [{name: round(row[name], 3) for name in names if name in row} for row in rows if "score" in row]


def table(results: Path) -> str:
    """One Markdown table per dataset."""
    kept = [json.loads(path.read_text()) for path in sorted(results.glob("baselines-*.json"))]
    for dataset, name in PSPO.items():
        if (claim := results / f"{name}.json").exists():
            kept.append(json.loads(claim.read_text()) | {"dataset": dataset, "algo": "pspo", "variant": ""})
    tables = []
    for dataset in sorted({result["dataset"] for result in kept}):
        best = get_task(dataset.split("-")[0]).optimal_score
        last = "" if best is None else " the optimum |"
        lines = [f"{dataset}:", "", f"| algorithm | score | each seed | the paper | iterations | minutes |{last}"]
        lines.append("|---" * (6 + bool(last)) + "|")
        of_it = sorted(
            (result for result in kept if result["dataset"] == dataset), key=lambda result: -_score(result)["mean"]
        )
        lines += [_line(result) + ("" if best is None else f" {best:.2f} |") for result in of_it]
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def _score(result: dict[str, Any]) -> dict[str, Any]:
    """By exact regret where an optimum is known: the same with less noise."""
    return result["summary"].get("score_by_regret") or result["summary"]["score"]


def _line(result: dict[str, Any]) -> str:
    summary = result["summary"]
    score = _score(result)
    each = ", ".join(f"{value:.1f}" for value in score["each"])
    paper = published()["table2"].get(result["dataset"], {}).get(result["algo"], [None])[0]
    name = f"{result['algo']}, {result['variant']}" if result.get("variant") else result["algo"]
    if result.get("variant"):
        paper = None  # the paper's number stands beside the preset
    return (
        f"| {name} | {score['mean']:.1f} ± {score['std']:.1f} | {each} | {'' if paper is None else paper} "
        f"| {summary['steps']['mean']:,.0f} | {summary['seconds']['mean'] / 60:.1f} |"
    )


if __name__ == "__main__":
    main()
