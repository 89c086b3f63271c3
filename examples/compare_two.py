"""Is one algorithm better than another? Several seeds of both on liquidation, and the statistics of their scores.

`python examples/compare_two.py [ALGO ALGO] [--preset smoke] [--seeds 4]`. Statistics: pspo.report.statistics.
"""

import argparse

from rich.console import Console
from rich.table import Table

import pspo
from pspo.report.statistics import average, bootstrap_interval, mean_and_std, probability_of_improvement
from pspo.training.monitor import SILENT

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("algorithms", nargs="*", default=["td3bc", "iql"], metavar="ALGO")
parser.add_argument("--preset", default="laptop")
parser.add_argument("--seeds", type=int, default=4)
parser.add_argument("--steps", type=int, default=2000, help="iterations; fewer than in the preset, as this is a demo")
options = parser.parse_args()
if len(options.algorithms) != 2:
    parser.error(f"this compares two algorithms, not {len(options.algorithms)}.")
settings, episodes = ({}, 200) if options.preset == "smoke" else ({"steps": options.steps}, 10_000)


def score(algo: str, seed: int) -> float:
    """Score of the final policy over fresh episodes, by exact regret, which has less noise."""
    how = {"settings": settings, "episodes": episodes, "monitor": SILENT}
    run = pspo.train("liquidation", algo, options.preset, seed=seed, **how)
    print(f"{algo} seed {seed}: {run.result['score_by_regret']:.1f}", flush=True)
    return run.result["score_by_regret"]


scores = {algo: [score(algo, seed) for seed in range(options.seeds)] for algo in options.algorithms}

table = Table("algorithm", "mean", "std", "95 % interval of the mean", "seeds")
for algo, values in scores.items():
    mean, std = mean_and_std(values)
    interval = bootstrap_interval(average, [values])
    ends = f"{interval.low:.1f} to {interval.high:.1f}" if interval else "needs two seeds"
    table.add_row(algo, f"{mean:.1f}", "unknown" if std is None else f"{std:.1f}", ends, str(len(values)))
Console(width=100).print(table)

first, second = scores
result = probability_of_improvement([scores[first]], [scores[second]])
ends = f" (95 % interval {result.interval.low:.2f} to {result.interval.high:.2f})" if result.interval else ""
print(f"A run of {first} is better than a run of {second} with probability {result.probability:.2f}{ends}.")
