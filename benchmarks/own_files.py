"""A user's own table, as good as the built-in dataset: `python -m benchmarks.own_files [csv parquet]`.

The liquidation dataset as a user would have it: one row per step with an episode's number, the state, the action, the
reward and whether the task ended there; no next states, no name of a task, so no simulator and a learned end. Each
format is trained with the settings of the liquidation preset and then evaluated in the simulator, unknown to training.
What is kept: benchmarks/results/own-files-FORMAT.json, to be compared with liquidation-pspo.json.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import claims
from pspo.algorithms.registry import preset

FORMATS = ("csv", "parquet")
SETTINGS = [f"{name}={value}" for name, value in preset("pspo", "laptop", "liquidation").items()]
EPISODES = 100_000


def main() -> None:
    parser = claims.claim_parser(__doc__)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=f"default: all of {', '.join(FORMATS)}")
    parser.set_defaults(seeds=2)
    options = claims.parse(parser, table)
    claims.require_variants(parser, options.formats, FORMATS)
    folder = claims.runs_folder(options, "own-files")
    folder.mkdir(parents=True, exist_ok=True)
    for ending in options.formats or FORMATS:
        measure(ending, options, folder)
    print(table(options.results))


def write_table(path: Path) -> None:
    """Rows in order, under a user's own names; the last row of an episode says nothing about what followed."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    from pspo.data import load_dataset

    data = load_dataset("liquidation")
    lengths = data.episode_lengths()
    columns = {"episode": np.repeat(np.arange(len(lengths)), lengths)}
    columns |= {name: data.obs[:, i] for i, name in enumerate(("time", "inventory", "price"))}
    columns |= {"sell": data.action[:, 0], "reward": data.reward, "terminal": data.terminal}
    write = pyarrow.csv.write_csv if path.suffix == ".csv" else pyarrow.parquet.write_table
    write(pa.table(columns), path)


def measure(ending: str, options: Any, folder: Path) -> None:
    file = folder / f"log.{ending}"
    write_table(file)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    runs = [train_and_evaluate(file, seed, folder / f"{ending}-{seed}") for seed in seeds]
    scores = [run["judged"]["score_by_regret"] for run in runs]
    result = {
        "format": ending,
        "command": f"python -m benchmarks.own_files {ending} --first-seed {seeds.start} --seeds {len(seeds)}",
        "runs": shlex.join(["pspo", *train_words(Path(file.name), seeds.start)]),
        "seeds": list(seeds),
        "score_by_regret": {"mean": float(np.mean(scores)), "each": scores},
        "each": runs,
    }
    claims.keep(result, options.results, f"own-files-{ending}")


def train_words(file: Path, seed: int) -> list[str]:
    words = ["train", str(file), "--obs", "time,inventory,price", "--action", "sell", "--seed", str(seed)]
    return words + [word for setting in SETTINGS for word in ("--set", setting)]


def train_and_evaluate(file: Path, seed: int, out: Path) -> dict[str, Any]:
    pspo = [sys.executable, "-m", "pspo"]
    subprocess.run([*pspo, *train_words(file, seed), "--out", str(out)], check=True)
    evaluate = [*pspo, "evaluate", str(out), "--task", "liquidation", "--episodes", str(EPISODES), "--json"]
    output = subprocess.run(evaluate, check=True, stdout=subprocess.PIPE, text=True).stdout
    result = json.loads((out / "result.json").read_text()) | {"dataset": file.name}
    return {"result": result, "judged": json.loads(output)}


def table(results: Path) -> str:
    lines = ["| file | score by exact regret | each seed | end of rollouts |", "|---|---|---|---|"]
    for ending in FORMATS:
        path = results / f"own-files-{ending}.json"
        if path.exists():
            result = json.loads(path.read_text())
            each = ", ".join(f"{score:.2f}" for score in result["score_by_regret"]["each"])
            end = result["each"][0]["result"]["termination"]
            lines.append(f"| {ending} | {result['score_by_regret']['mean']:.2f} | {each} | {end} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
