"""The paper's table of overhead: milliseconds per training iteration and per action, for every algorithm in one run.

    python -m benchmarks.overhead [--out FILE]      (`make bench` has it too)

Algorithms that begin every chunk with rollouts pay for them there: what a round costs is measured on fewer starts,
scaled to the preset's number, and shared out over the iterations of a chunk.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import cases
from benchmarks.timing import FULL, Machine, Work, summary
from pspo.algorithms import ALGORITHMS, get_algorithm
from pspo.config import build, flatten, preset
from pspo.data.batches import Log, device_log
from pspo.data.dataset import Dataset
from pspo.display import silent
from pspo.envs.task import get_task
from pspo.estimate import RECIPES, Shape, own_cache, random_dataset
from pspo.manifest import describe_machine
from pspo.policy import Policy, from_network
from pspo.training import compile_chunk

STEPS = 10  # per call of a compiled loop
LONG_STEPS = ("morel",)  # an iteration is a whole round of episodes there: one per call
ROUND = {"starts": 500, "adversary_steps": 5}
"""What a chunk may begin with, and how much of it is timed: the cost is proportional to each."""
SIZES = (
    *("width", "depth", "batch", "critics", "samples", "action_samples", "active", "next_pairs", "candidates", "paths"),
    *("starts", "rollout_horizon", "chunk", "adversary_steps", "form", "model.pool", "model.width", "model.depth"),
)
"""What a step's cost depends on, and what the result keeps of the settings."""
SHARED = ("active", "width", "depth", "real_batch", "synthetic_batch", "next_pairs", "termination")
EQUAL = {
    "pspo": cases.HOPPER,
    # Its closest relative, with the same ensemble, networks, batches and samples; it counts both kinds of actions.
    "pmdb": {name: value for name, value in cases.HOPPER.items() if name in SHARED or name.startswith("model.")}
    | {"action_samples": 2 * cases.HOPPER["action_samples"]},
}


def overhead(machine: Machine, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """The authors' networks and batches on data of Hopper's size; PSPO and PMDB as in the rest of this benchmark."""
    task = get_task("hopper")
    dataset = random_dataset(Shape(cases.ROWS if not quick else 500, task.obs_dim, task.action_dim), episode=100)
    algorithms = ALGORITHMS if not quick else ("bc", "mopo")  # compiling all of them takes minutes
    found = {}
    for algo in algorithms:
        say(f"overhead: {algo}")
        found[algo] = _measure(machine, algo, dataset, quick)
    return found


def _measure(machine: Machine, algo: str, dataset: Dataset, quick: bool) -> dict[str, Any]:
    """Iterations, rounds of rollouts and actions of one algorithm."""
    values = preset(algo, "smoke" if quick else "paper", "hopper", "hopper-medium")
    config = build(get_algorithm(algo).Config, values if quick else values | EQUAL.get(algo, {}))
    if hasattr(get_algorithm(algo), "imagine") and hasattr(config, "cloning_steps"):
        config = dataclasses.replace(config, cloning_steps=1)  # before the first iteration, and not timed
    least = {name: 1 for name in ROUND if hasattr(config, name)}
    length = 1 if algo in LONG_STEPS else STEPS
    work, policy = _iterations(algo, dataset, dataclasses.replace(config, **least), length)
    step = machine.measure({algo: work}, per_call=length)[algo].seconds
    rounds = {name: _rounds(machine, algo, dataset, config, least, name) for name in least}
    action = machine.measure({algo: partial(policy, dataset.obs[0])})[algo].seconds
    settings = flatten(config)
    return {
        "iteration_milliseconds": summary((step + sum(rounds.values()) / config.chunk) * 1e3),
        "rollouts_milliseconds": sum(rounds.values()) / config.chunk * 1e3,
        "inference_milliseconds": summary(action * 1e3),
        "settings": {name: settings[name] for name in SIZES if name in settings},
    }


def _rounds(machine: Machine, algo: str, dataset: Dataset, config: Any, least: dict[str, int], name: str) -> float:
    """Seconds at the beginning of every chunk that go with the setting `name`."""
    count = min(ROUND[name], getattr(config, name))
    few = dataclasses.replace(config, **least | {name: count})
    module, parts, log, state = _made(algo, dataset, few)
    late = state._replace(step=jnp.int32(config.chunk))  # RAMBO's adversary begins with the second chunk
    begin = jax.jit(lambda arrays, log, state: module.imagine(few, parts._replace(arrays=arrays), log, state))
    seconds = machine.measure({name: partial(begin, parts.arrays, log, late)})[name].seconds
    return float(np.median(seconds)) / count * getattr(config, name)


def _iterations(algo: str, dataset: Dataset, config: Any, length: int) -> tuple[Work, Policy]:
    module, parts, log, state = _made(algo, dataset, config)
    chunk = compile_chunk(module, config, parts)
    policy = from_network(module.policies(state)["policy"], parts.norm, {})
    return partial(chunk, state, parts.arrays, log, length=length), policy


def _made(algo: str, dataset: Dataset, config: Any) -> tuple[ModuleType, Any, Log, Any]:
    """Module, parts, log and a first state, nothing of it fitted for more than a few steps."""
    module = get_algorithm(algo)
    with own_cache():  # what was fitted for so few steps must not be found by anyone
        parts, _ = module.prepare(_barely_fitted(config), dataset, 0, silent)
    log = device_log(dataset, parts.norm, config.gamma)
    state = jax.jit(lambda log, key: module.init(config, parts, log, key))(log, jax.random.PRNGKey(0))
    return module, parts, log, state


def _barely_fitted(config: Any) -> Any:
    """The same networks after a few steps: speed does not depend on the weights."""
    few = {part: {"steps": 2, "evaluate_every": 1} for part in RECIPES.values() if hasattr(config, part)}
    return dataclasses.replace(
        config, **{part: dataclasses.replace(getattr(config, part), **short) for part, short in few.items()}
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description="Only the table of overhead.")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/overhead.json"))
    options = parser.parse_args()
    found = overhead(Machine(FULL), False, lambda text: print(text, flush=True))
    command = f"NPROC={describe_machine()['threads']} python -m benchmarks.overhead"
    options.out.write_text(json.dumps({"command": command, "machine": describe_machine(), **found}, indent=1) + "\n")
    for algo, cost in found.items():
        iteration, action = cost["iteration_milliseconds"]["median"], cost["inference_milliseconds"]["median"]
        print(f"{algo:8} {iteration:10.2f} ms an iteration {action:8.3f} ms an action")


if __name__ == "__main__":
    main()
