"""The MuJoCo data to measure on: `python -m benchmarks.mujoco_data BEHAVIOUR_FOLDER OUT_FOLDER`.

BEHAVIOUR_FOLDER holds policy files such as hopper-medium.npz. Every dataset has 200,000 transitions of seed 0. Existing
files are kept, and a collection that was stopped is resumed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pspo.collecting import collect
from pspo.core.errors import UserError
from pspo.core.progress import Lines, Reporter

TRANSITIONS, SEED = 200_000, 0

POLICIES = {
    "hopper-medium": ["hopper-medium"],
    "hopper-expert": ["hopper-expert"],
    "hopper-medium-expert": ["hopper-medium", "hopper-expert"],
    "hopper-random": [],
    "walker2d-medium": ["walker2d-medium"],
    "halfcheetah-medium": ["halfcheetah-medium"],
}


def main(words: list[str]) -> None:
    if len(words) != 2:
        raise SystemExit("usage: python -m benchmarks.mujoco_data BEHAVIOUR_FOLDER OUT_FOLDER")
    behaviour, out = map(Path, words)
    out.mkdir(parents=True, exist_ok=True)
    for name, policies in POLICIES.items():
        files = [behaviour / f"{policy}.npz" for policy in policies]
        with Lines() as progress:
            options = {"transitions": TRANSITIONS, "seed": SEED, "policies": files, "reporter": Reporter(progress)}
            print(collect(name, out / f"{name}.hdf5", **options), flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as problem:
        raise SystemExit(str(problem)) from None
