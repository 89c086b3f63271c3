"""For each algorithm: small settings with which it must learn the tiny task, settings that break it, a threshold."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax

from pspo.algorithms import get_algorithm
from pspo.algorithms.registry import preset
from pspo.core.config import build
from pspo.core.progress import silent
from pspo.data.batches import DeviceDataset, device_dataset
from pspo.data.dataset import Dataset
from pspo.training.loop import compile_chunk
from tests.algorithms.tiny_task import tiny_dataset

CHUNK = 20

# One hidden layer: what these cases cost is mostly the time to compile them.
COMMON: dict[str, Any] = {"width": 32, "depth": 1, "gamma": 0.5, "chunk": CHUNK, "steps": 1000}
BATCH: dict[str, Any] = {"batch": 64, "rewards": "raw", "states": "features"}


@dataclass(frozen=True)
class Learner:
    settings: dict[str, Any]
    broken: dict[str, Any]
    """Settings that remove the algorithm's key term."""
    at_least: float
    """The score that it reaches, and that the broken one misses by a wide margin."""
    chunks: int = 20
    one_program: bool = False
    """The broken settings are numbers that programs only compute with: one program, compiled once, takes either."""
    common: dict[str, Any] = field(default_factory=lambda: COMMON | BATCH)


QUICK = {"actor_lr": 3e-3, "critic_lr": 3e-3, "tau": 0.05}

# The same models and discount for most, so that one pool serves them. MOPO alone learns where episodes end.
POOL = {"model.pool": 3, "model.width": 32, "model.steps": 400}
MODELS = POOL | {"active": 3, "real_batch": 32, "synthetic_batch": 32, "termination": "none"}
SHORT = {"starts": 200, "rollout_horizon": 1, "real_ratio": 0.5, "alpha": 0.1}
SYNTHETIC = POOL | SHORT | {"elites": 2, "termination": "none"}

LEARNERS = {
    "pspo": Learner(
        MODELS | {"alpha": 0.6, "critic_lr": 3e-3, "policy_lr": 3e-3, "reference.steps": 300, "reference.width": 32},
        {"reference_term": False},
        1.04,
        common=COMMON,
    ),
    "adm": Learner(
        QUICK
        | {
            "model.max_lag": 3,
            "model.width": 32,
            "model.steps": 400,
            "model.lr": 3e-3,
            "model.beta_nll": 0.5,
        }
        | SHORT
        | {"penalty": 20.0, "termination": "none"},
        {"penalty": 0.0},
        0.8,
        one_program=True,
    ),
    "bc": Learner({"lr": 3e-3}, {"lr": 0.0}, 0.95, one_program=True),
    "td3bc": Learner(QUICK | {"alpha": 0.5}, {"alpha": 1e4}, 1.2, one_program=True),
    "iql": Learner(QUICK | {"temperature": 20.0}, {"temperature": 0.0}, 1.2, one_program=True),
    "dmg": Learner(QUICK | {"imitation": 2.0}, {"imitation": 0.0}, 1.2, one_program=True),
    "oraac": Learner(
        QUICK
        | {
            "critic_lr": 6e-3,
            "reach": 0.2,
            "risk": "neutral",
            "vae_steps": 300,
            "vae_width": 32,
            "vae_lr": 3e-3,
            "actor_width": 32,
        },
        {"vae_steps": 0},
        1.1,
        chunks=30,
    ),
    "epq": Learner(
        {"actor_lr": 3e-3, "critic_lr": 3e-3, "target_tau": 0.05}
        | {"conservatism": 15.0, "samples": 2, "cloning_steps": 100, "vae.width": 16, "depth": 2}
        | {"support_threshold": 0.15, "ratio_temperature": 0.05, "neighbours": 20, "epsilon": 4.0, "zeta": 0.1},
        {"support_threshold": 0.0, "neighbours": 1},  # factor and weights of one: plain CQL, which stays at the average
        1.17,
        chunks=30,
    ),
    "combo": Learner(
        QUICK | SYNTHETIC | {"conservatism": 1.0, "samples": 2}, {"conservatism": 0.0}, 0.9, one_program=True
    ),
    "1r2r": Learner(
        QUICK | SYNTHETIC | {"cvar_alpha": 0.1, "candidates": 10, "cloning_steps": 200, "cloning_lr": 3e-3},
        {"risk": "neutral"},
        0.95,
        chunks=30,
    ),
    "mopo": Learner(
        QUICK | SYNTHETIC | {"penalty": 1.0, "termination": "learned"}, {"penalty": 0.0}, 0.9, one_program=True
    ),
    "morel": Learner(
        {"model.pool": 4, "model.width": 64, "model.depth": 3, "model.steps": 400, "model.lr": 1e-2}
        | {"elites": 4, "model.evaluate_every": 400, "model.batch": 128, "paths": 32, "rollout_horizon": 2}
        | {
            "termination": "none",
            "start_anywhere": 1.0,
            "cloning_steps": 300,
            "cloning_lr": 3e-3,
            "log_std": -2.5,
            "log_std_min": -3.0,
        }
        # Heavy damping: an ill-conditioned system turns roundings into steps that differ.
        | {"caution": 2.0, "halt_penalty": 3.0, "damping": 1.0, "cg_steps": 10},
        {"caution": 1e-3},
        1.1,
        chunks=12,
    ),
    "rambo": Learner(
        QUICK
        | SYNTHETIC
        | {"actor_lr": 1e-3, "adversary_weight": 1.0, "adversary_steps": 20, "adversary_lr": 3e-3}
        | {"cloning_steps": 200, "cloning_lr": 3e-3},
        {"adversary_weight": 0.0},
        0.9,
        chunks=30,
    ),
    "pmdb": Learner(
        MODELS | QUICK | {"depth": 2, "active": 10, "order": 2, "reference_tau": 0.02, "rollout_horizon": 10},
        {"order": 10},  # the best of the drawn models: optimism instead of pessimism
        0.9,
        chunks=30,
        common=COMMON,
    ),
    "cql": Learner(
        QUICK | {"conservatism": 1.0, "samples": 2}, {"conservatism": 0.0}, 0.95, chunks=30, one_program=True
    ),
}


@dataclass(frozen=True)
class Case:
    """An algorithm ready to run on some data."""

    module: Any
    config: Any
    setup: Any
    device_data: DeviceDataset
    chunk: Any
    init: Any
    numbers: dict[str, float]
    """Settings that are arguments of the program."""

    def start(self, seed: int) -> Any:
        return self.init(self.device_data, jax.random.PRNGKey(seed))

    def run_chunk(self, state: Any, **numbers: float) -> tuple[Any, dict[str, jax.Array]]:
        return self.chunk(self.numbers | numbers, state, self.setup.arrays, self.device_data)


def make_case(algo: str, data: Dataset, **changes: Any) -> Case:
    """The learner's settings with `changes`."""
    module, learner = get_algorithm(algo), LEARNERS[algo]
    values = preset(algo, "smoke", None) | learner.common | learner.settings | changes
    config = build(module.Config, values)
    setup, _ = module.prepare(config, data, 0, silent)
    device_data = device_dataset(data, setup.norm, config.gamma)
    init = jax.jit(lambda device_data, key: module.init(config, setup, device_data, key))
    numbers = {name: getattr(config, name) for name in learner.broken} if learner.one_program else {}

    @jax.jit
    def chunk(numbers: dict[str, Any], state: Any, arrays: Any, device_data: DeviceDataset) -> Any:
        program = compile_chunk(module, dataclasses.replace(config, **numbers), setup)
        return program(state, arrays, device_data, length=CHUNK)

    return Case(module, config, setup, device_data, chunk, init, numbers)


@cache
def usual(algo: str) -> Case:
    return make_case(algo, tiny_dataset())


@cache
def trained(algo: str) -> tuple[Any, ...]:
    """The state at the start and after every chunk."""
    case = usual(algo)
    states = [case.start(0)]
    for _ in range(LEARNERS[algo].chunks):
        states.append(case.run_chunk(states[-1])[0])
    return tuple(states)
