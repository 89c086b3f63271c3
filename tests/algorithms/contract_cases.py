"""For each algorithm: small settings with which it must learn the tiny task, what breaks it, and the score between."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
from tiny_task import tiny_log

from pspo.algorithms import get_algorithm
from pspo.config import build, preset
from pspo.data.batches import Log, device_log
from pspo.data.dataset import Dataset
from pspo.display import silent
from pspo.training import compile_chunk

CHUNK = 20

COMMON: dict[str, Any] = {"width": 32, "depth": 2, "gamma": 0.5, "chunk": CHUNK, "steps": 1000}
ROWS: dict[str, Any] = {"batch": 64, "rewards": "raw", "states": "features"}


@dataclass(frozen=True)
class Learner:
    settings: dict[str, Any]
    broken: dict[str, Any]
    """What takes the algorithm's key term away."""
    at_least: float
    """The score that it reaches, and that the broken one misses by a wide margin."""
    chunks: int = 20
    common: dict[str, Any] = field(default_factory=lambda: COMMON | ROWS)


QUICK = {"actor_rate": 3e-3, "critic_rate": 3e-3, "target_rate": 0.05}

MODELS = {"model.pool": 3, "model.width": 32, "model.steps": 400, "active": 3, "real_batch": 32, "synthetic_batch": 32}

LEARNERS = {
    "pspo": Learner(
        MODELS
        | {"alpha": 0.6, "critic_rate": 3e-3, "policy_rate": 3e-3, "reference.steps": 300, "reference.width": 32},
        {"reference_term": False},
        1.04,
        common=COMMON,
    ),
    "bc": Learner({"rate": 3e-3}, {"rate": 0.0}, 0.95),
    "td3bc": Learner(QUICK | {"alpha": 0.5}, {"imitation": 0.0}, 1.2),
    "iql": Learner(QUICK | {"temperature": 20.0}, {"temperature": 0.0}, 1.2),
    "dmg": Learner(QUICK | {"imitation": 2.0}, {"imitation": 0.0}, 1.2),
    "oraac": Learner(
        QUICK
        | {"reach": 0.2, "risk": "neutral", "vae_steps": 300, "vae_width": 32, "vae_rate": 3e-3, "actor_width": 32},
        {"vae_steps": 0},
        1.1,
        chunks=30,
    ),
    "epq": Learner(
        QUICK | {"conservatism": 5.0, "samples": 2, "cloning_steps": 100, "neighbours": 5, "vae.width": 16},
        {"conservatism": 0.0},
        0.95,
        chunks=30,
    ),
    "cql": Learner(QUICK | {"conservatism": 1.0, "samples": 2}, {"conservatism": 0.0}, 0.95, chunks=30),
}


@dataclass(frozen=True)
class Case:
    """An algorithm ready to run on some data."""

    module: Any
    config: Any
    parts: Any
    log: Log
    chunk: Any
    init: Any

    def start(self, seed: int) -> Any:
        return self.init(self.log, jax.random.PRNGKey(seed))

    def go_on(self, state: Any) -> tuple[Any, dict[str, jax.Array]]:
        return self.chunk(state, self.parts.arrays, self.log, length=CHUNK)


def make_case(algo: str, data: Dataset, **changes: Any) -> Case:
    """`changes` are settings on top of the learner's own."""
    module, learner = get_algorithm(algo), LEARNERS[algo]
    values = preset(algo, "smoke", None) | learner.common | learner.settings | changes
    config = build(module.Config, values)
    parts, _ = module.prepare(config, data, 0, silent)
    log = device_log(data, parts.norm, config.gamma)
    init = jax.jit(lambda log, key: module.init(config, parts, log, key))
    return Case(module, config, parts, log, compile_chunk(module, config, parts), init)


@cache
def usual(algo: str) -> Case:
    return make_case(algo, tiny_log())


@cache
def trained(algo: str) -> tuple[Any, ...]:
    """The state at the start and after every chunk."""
    case = usual(algo)
    states = [case.start(0)]
    for _ in range(LEARNERS[algo].chunks):
        states.append(case.go_on(states[-1])[0])
    return tuple(states)
