"""hopper-medium over all seeds of today's preset: `python -m benchmarks.eight_seeds`, from kept results alone.

Two rounds of four seeds: benchmarks/results/locomotion-hopper-medium-*.json (70 to 73), and docs/paper/table3
(80 to 83). What it prints stands in docs/results.md.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from benchmarks.claims import RESULTS
from pspo.report import records
from pspo.report.statistics import mean_and_std, paired_t_test

ABLATIONS = Path(__file__).parents[1] / "docs" / "paper" / "table3"


def scores(claim: str, method: str) -> np.ndarray:
    """One per seed, the round of 70 to 73 first."""
    first = json.loads((RESULTS / f"locomotion-hopper-medium-{claim}.json").read_text())["summary"]["score"]["each"]
    return np.concatenate([first, second(method)])


def second(method: str) -> np.ndarray:
    return records.load(ABLATIONS).scores("hopper-medium", method)


def compare(name: str, ours: np.ndarray, theirs: np.ndarray) -> str:
    """Seed by seed."""
    apart = ours - theirs
    test = paired_t_test([np.array([v]) for v in ours], [np.array([v]) for v in theirs])
    error = apart.std(ddof=1) / len(apart) ** 0.5
    each = ", ".join(f"{v:.1f}" for v in apart)
    return f"PSPO less {name}: {apart.mean():.1f} ± {error:.1f} (standard error; {each}), one-sided p = {test.p:.2f}"


def main() -> None:
    pspo, uniform = scores("pspo", "pspo"), scores("uniform-posterior", "average-utilisation")
    for name, each in (("PSPO", pspo), ("uniform posterior", uniform)):
        mean, std = mean_and_std(each)
        print(f"{name}: {mean:.1f} ± {std:.1f} over {len(each)} seeds ({', '.join(f'{v:.1f}' for v in each)})")
    print(compare("uniform posterior", pspo, uniform))
    print(compare("without regularisation, seeds 80 to 83", second("pspo"), second("without-regularisation")))


if __name__ == "__main__":
    main()
