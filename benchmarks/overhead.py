"""The paper's table of overhead: milliseconds per training iteration and per action, for every algorithm in one run."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax

from benchmarks import cases
from benchmarks.timing import Machine, Work, summary
from pspo.algorithms import ALGORITHMS, get_algorithm
from pspo.config import build, flatten, preset
from pspo.data.batches import device_log
from pspo.data.dataset import Dataset
from pspo.display import silent
from pspo.envs.task import get_task
from pspo.estimate import RECIPES, Shape, own_cache, random_dataset
from pspo.policy import Policy, from_network
from pspo.training import compile_chunk

STEPS = 10  # per call of a compiled loop
SIZES = ("width", "depth", "batch", "critics", "samples", "action_samples", "active", "next_pairs", "model.width")
"""What a step's cost depends on, and what the result keeps of the settings."""


def overhead(machine: Machine, quick: bool) -> dict[str, Any]:
    """The authors' networks and batches on data of Hopper's size; PSPO as in the rest of this benchmark."""
    task = get_task("hopper")
    dataset = random_dataset(Shape(cases.ROWS if not quick else 500, task.obs_dim, task.action_dim), episode=100)
    works: dict[str, Work] = {}
    policies: dict[str, Policy] = {}
    settings: dict[str, Any] = {}
    algorithms = ALGORITHMS if not quick else ("bc",)  # compiling all of them takes a minute
    for algo in algorithms:
        works[algo], policies[algo], settings[algo] = _algorithm(algo, dataset, quick)
    steps = machine.measure(works, per_call=STEPS)
    actions = machine.measure({algo: partial(policy, dataset.obs[0]) for algo, policy in policies.items()})
    return {
        algo: {
            "iteration_milliseconds": summary(steps[algo].seconds * 1e3),
            "inference_milliseconds": summary(actions[algo].seconds * 1e3),
            "settings": {name: settings[algo][name] for name in SIZES if name in settings[algo]},
        }
        for algo in algorithms
    }


def _algorithm(algo: str, dataset: Dataset, quick: bool) -> tuple[Work, Policy, dict[str, Any]]:
    """Training iterations, a policy to act with, and the settings."""
    module = get_algorithm(algo)
    config = build(module.Config, preset(algo, "smoke" if quick else "paper", "hopper", "hopper-medium"))
    if algo == "pspo" and not quick:
        config = build(module.Config, cases.HOPPER)
    with own_cache():  # what was fitted for so few steps must not be found by anyone
        parts, _ = module.prepare(_barely_fitted(config), dataset, 0, silent)
    log = device_log(dataset, parts.norm, config.gamma)
    state = jax.jit(lambda log, key: module.init(config, parts, log, key))(log, jax.random.PRNGKey(0))
    chunk = compile_chunk(module, config, parts)
    policy = from_network(module.policies(state)["policy"], parts.norm, {})
    return partial(chunk, state, parts.arrays, log, length=STEPS), policy, flatten(config)


def _barely_fitted(config: Any) -> Any:
    """The same networks after a few steps: speed does not depend on the weights."""
    few = {part: {"steps": 2, "evaluate_every": 1} for part in RECIPES.values() if hasattr(config, part)}
    return dataclasses.replace(
        config, **{part: dataclasses.replace(getattr(config, part), **short) for part, short in few.items()}
    )
