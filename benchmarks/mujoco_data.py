"""The MuJoCo data to measure on: `python -m benchmarks.mujoco_data BEHAVIOUR_FOLDER OUT_FOLDER [--transitions N]`.

BEHAVIOUR_FOLDER holds policy files such as hopper-medium.npz. Sizes are D4RL's: 1,000,000 transitions of seed 0, and
2,000,000 of two policies; `--transitions 200000` makes the smaller datasets of the first rounds. Existing files are
kept, and a collection that was stopped is resumed. Replay datasets come from a learner:
`pspo collect hopper-medium-replay`, `pspo collect hopper-full-replay`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pspo.collecting import collect
from pspo.core.errors import UserError
from pspo.core.progress import Lines, Reporter

TRANSITIONS, SEED = 1_000_000, 0
TASKS = ("hopper", "walker2d", "halfcheetah")
LABELS: dict[str, tuple[str, ...]] = {
    "medium": ("medium",),
    "expert": ("expert",),
    "random": (),
    "medium-expert": ("medium", "expert"),
}
POLICIES = {f"{task}-{label}": [f"{task}-{p}" for p in used] for label, used in LABELS.items() for task in TASKS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("behaviour", type=Path, metavar="BEHAVIOUR_FOLDER")
    parser.add_argument("out", type=Path, metavar="OUT_FOLDER")
    parser.add_argument("--transitions", type=int, metavar="N", help="of every dataset, instead of D4RL's sizes")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, policies in POLICIES.items():
        files = [options.behaviour / f"{policy}.npz" for policy in policies]
        size = options.transitions or TRANSITIONS * max(len(policies), 1)
        with Lines() as progress:
            words = {"transitions": size, "seed": SEED, "policies": files, "reporter": Reporter(progress)}
            print(collect(name, options.out / f"{name}.hdf5", **words), flush=True)


if __name__ == "__main__":
    try:
        main()
    except UserError as problem:
        raise SystemExit(str(problem)) from None
