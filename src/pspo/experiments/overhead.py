"""The paper's overhead table: milliseconds per training iteration and per action, all methods in one process.

Some algorithms begin every chunk with rollouts. These are timed with fewer starts, scaled to the preset's number, and
divided among the iterations of a chunk.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pspo.algorithms import ALGORITHMS, get_algorithm, preset
from pspo.algorithms.contract import Algorithm
from pspo.core.config import build, flatten
from pspo.core.errors import UserError
from pspo.core.progress import silent
from pspo.data.batches import DeviceDataset, device_dataset
from pspo.data.dataset import Dataset
from pspo.envs.task import get_task
from pspo.experiments.declarations import get_experiment, get_method
from pspo.experiments.timing import FULL, QUICK, Machine, Work, summary
from pspo.policies.policy import Policy, from_network
from pspo.report.published import published
from pspo.report.records import Results
from pspo.runs.manifest import describe_machine
from pspo.training.cost import FITTED, Shape, random_dataset, temporary_cache
from pspo.training.loop import compile_chunk

ITERATIONS = 10  # per call of a compiled loop
LONG_ITERATIONS = ("morel",)  # where an iteration is a whole batch of episodes: one per call
AT_CHUNK_START = {"starts": 500, "adversary_steps": 5}
"""Settings that size the work at the start of a chunk, and how much of it is timed: the cost is proportional."""
SIZES = (
    *("width", "depth", "batch", "critics", "samples", "action_samples", "active", "next_pairs", "candidates", "paths"),
    *("starts", "rollout_horizon", "chunk", "adversary_steps", "model.pool", "model.width", "model.depth"),
)
"""Settings that an iteration's cost depends on: the result keeps these."""
# The size of D4RL's Hopper with the networks of the offline model-based literature. `depth` counts hidden layers.
HOPPER = {
    "model.pool": 10,
    "model.width": 256,
    "model.depth": 4,
    "model.batch": 256,
    "active": 10,
    "width": 256,
    "depth": 3,
    "critics": 2,
    "reference.width": 256,
    "reference.depth": 2,
    "action_samples": 8,
    "real_batch": 128,
    "synthetic_batch": 128,
    "next_pairs": 1,
    "termination": "none",
}
TRANSITIONS = 10_000
SHARED = ("active", "width", "depth", "real_batch", "synthetic_batch", "next_pairs", "termination")
EQUAL = {
    "pspo": HOPPER,
    # Its closest relative, with the same ensemble, networks, batches and samples; it counts both kinds of action.
    "pmdb": {name: value for name, value in HOPPER.items() if name in SHARED or name.startswith("model.")}
    | {"action_samples": 2 * HOPPER["action_samples"]},
}
"""Sizes in place of the preset's for the two algorithms whose ratio the paper reports."""


def overhead_results(
    methods: Sequence[str] | None, preset_name: str, command: str, message: Callable[[str], None]
) -> Results:
    """The overhead table of the given methods; by default the paper's five."""
    experiment = get_experiment("overhead")
    wanted = list(dict.fromkeys(methods or experiment.methods))
    for method in wanted:
        if get_method(method).settings:
            raise UserError(f"'{method}' costs the same as its algorithm: name algorithms.")
    effort, transitions = (QUICK, 500) if preset_name == "smoke" else (FULL, TRANSITIONS)
    costs = overhead(Machine(effort), wanted, preset_name, transitions, message)
    return Results(
        title=experiment.title,
        datasets=[],
        methods={method: get_method(method).label for method in wanted},
        records=[],
        name="overhead",
        shows=list(experiment.shows),
        first=experiment.first if experiment.first in wanted else "",
        command=command,
        published=published()[experiment.published],
        notes=[_note_on_sizes(wanted, preset_name)],
        machine=describe_machine(),
        costs=costs,
    )


def _note_on_sizes(wanted: Sequence[str], preset_name: str) -> str:
    equal = [get_method(method).label for method in wanted if method in EQUAL]
    note = f"Networks and batches are those of the preset “{preset_name}” for data of Hopper’s size."
    if len(equal) == 2:
        note += f" {' and '.join(equal)} have the same ensemble, networks, batches and numbers of samples."
    return note


def overhead(
    machine: Machine, algorithms: Sequence[str], preset_name: str, transitions: int, message: Callable[[str], None]
) -> dict[str, Any]:
    """What an iteration and an action cost on data of Hopper's size, by algorithm."""
    task = get_task("hopper")
    dataset = random_dataset(Shape(transitions, task.obs_dim, task.action_dim), episode=100)
    costs = {}
    for algo in algorithms:
        message(f"overhead: {algo}")
        costs[algo] = _measure(machine, algo, dataset, preset_name)
    return costs


def _measure(machine: Machine, algo: str, dataset: Dataset, preset_name: str) -> dict[str, Any]:
    """Iterations, work at the start of chunks, and actions of one algorithm."""
    values = preset(algo, preset_name, "hopper", "hopper-medium")
    equal = EQUAL.get(algo, {}) if preset_name != "smoke" else {}
    config = build(get_algorithm(algo).Config, values | equal)
    settings = flatten(config)
    if _is_model_based(algo) and "cloning_steps" in settings:
        config = dataclasses.replace(config, cloning_steps=1)  # before the first iteration, and not timed
        settings = flatten(config)
    least = {name: 1 for name in AT_CHUNK_START if name in settings}
    length = 1 if algo in LONG_ITERATIONS else ITERATIONS
    work, policy = _iterations(algo, dataset, dataclasses.replace(config, **least), length)
    step = machine.measure({algo: work}, per_call=length)[algo].seconds
    starts = {name: _chunk_start(machine, algo, dataset, config, least, name) for name in least}
    action = machine.measure({algo: partial(policy, dataset.obs[0])})[algo].seconds
    return {
        "iteration_milliseconds": summary((step + sum(starts.values()) / config.chunk) * 1e3),
        "rollouts_milliseconds": sum(starts.values()) / config.chunk * 1e3,
        "inference_milliseconds": summary(action * 1e3),
        "settings": {name: settings[name] for name in SIZES if name in settings},
    }


def _is_model_based(algo: str) -> bool:
    return algo in ALGORITHMS and "model-based" in ALGORITHMS[algo].tags


def _chunk_start(machine: Machine, algo: str, dataset: Dataset, config: Any, least: dict[str, int], name: str) -> float:
    """Seconds at the start of every chunk that are due to the setting `name`."""
    count = min(AT_CHUNK_START[name], getattr(config, name))
    few = dataclasses.replace(config, **least | {name: count})
    module, setup, device_data, state = _prepared(algo, dataset, few)
    late = state._replace(step=jnp.int32(config.chunk))  # RAMBO's adversary starts with the second chunk
    begin = jax.jit(
        lambda arrays, device_data, state: module.begin_chunk(few, setup._replace(arrays=arrays), device_data, state)
    )
    seconds = machine.measure({name: partial(begin, setup.arrays, device_data, late)})[name].seconds
    return float(np.median(seconds)) / count * getattr(config, name)


def _iterations(algo: str, dataset: Dataset, config: Any, length: int) -> tuple[Work, Policy]:
    module, setup, device_data, state = _prepared(algo, dataset, config)
    chunk = compile_chunk(module, config, setup)
    policy = from_network(module.policies(state)["policy"], setup.norm, {})
    return partial(chunk, state, setup.arrays, device_data, length=length), policy


def _prepared(algo: str, dataset: Dataset, config: Any) -> tuple[Algorithm, Any, DeviceDataset, Any]:
    """Module, setup, dataset and a first state; models are fitted for a few steps only."""
    module = get_algorithm(algo)
    with temporary_cache():  # real runs must not find models fitted for so few steps
        setup, _ = module.prepare(_barely_fitted(config), dataset, 0, silent)
    device_data = device_dataset(dataset, setup.norm, config.gamma)
    state = jax.jit(lambda device_data, key: module.init(config, setup, device_data, key))(
        device_data, jax.random.PRNGKey(0)
    )
    return module, setup, device_data, state


def _barely_fitted(config: Any) -> Any:
    """The same networks after a few steps: speed does not depend on the weights."""
    recipes = {field.name for field in dataclasses.fields(config)} & set(FITTED.values())
    return dataclasses.replace(
        config, **{name: dataclasses.replace(getattr(config, name), steps=2, evaluate_every=1) for name in recipes}
    )
