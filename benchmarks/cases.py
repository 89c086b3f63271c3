"""The two sizes that are measured, built without fitting anything: speed does not depend on the weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from pspo.algorithms import pspo
from pspo.config import build, flatten, preset
from pspo.data.batches import Log, device_log
from pspo.data.dataset import Dataset
from pspo.data.normalise import fit_normaliser
from pspo.data.sources import load_dataset
from pspo.dynamics.ensemble import ensemble
from pspo.dynamics.fit import fit_targets
from pspo.dynamics.prediction_range import prediction_range
from pspo.dynamics.termination import Known, Never, Termination
from pspo.envs.task import get_task
from pspo.estimate import Shape, random_dataset
from pspo.experiments.overhead import HOPPER, ROWS
from pspo.nets.policies import mixture_policy


@dataclass(frozen=True)
class Case:
    """One size: what training would hold in its hands after `prepare`."""

    name: str
    config: pspo.Config
    dataset: Dataset
    parts: pspo.Parts
    log: Log

    @cached_property
    def start(self) -> tuple[pspo.State, pspo.Context, pspo.Batch]:
        """Inputs of the first update. Compiled in one piece and kept: dozens of small programs take far longer."""

        def make(log: Log, key: Array) -> tuple[pspo.State, pspo.Context, pspo.Batch]:
            init_key, draw_key = jax.random.split(key)
            state = pspo.init(self.config, self.parts, log, init_key)
            state, context = pspo.imagine(self.config, self.parts, log, state)
            return state, context, pspo.draw(self.config, log, draw_key)

        return jax.jit(make)(self.log, jax.random.PRNGKey(0))

    @property
    def state(self) -> pspo.State:
        return self.start[0]

    def facts(self) -> dict[str, Any]:
        """What the numbers of this case belong to."""
        sizes = {"obs": self.dataset.obs_dim, "action": self.dataset.action_dim, "features": self.parts.norm.features}
        return {**sizes, "rows": self.dataset.size, "settings": flatten(self.config)}


def liquidation() -> Case:
    """The laptop preset as `make demo` trains it, on fewer rows."""
    config = build(pspo.Config, preset("pspo", "laptop", "liquidation"))
    dataset = load_dataset("liquidation", size=ROWS)
    return _case("liquidation laptop", config, dataset, Known(get_task("liquidation").terminated))


def hopper() -> Case:
    task = get_task("hopper")
    dataset = random_dataset(Shape(ROWS, task.obs_dim, task.action_dim), episode=1000)
    return _case("Hopper size", build(pspo.Config, HOPPER), dataset, Never())


def smoke() -> Case:
    """A tiny size, for tests and `--quick`."""
    config = build(pspo.Config, preset("pspo", "smoke", "liquidation"))
    dataset = load_dataset("liquidation", size=1000)
    return _case("liquidation smoke", config, dataset, Known(get_task("liquidation").terminated))


def _case(name: str, config: pspo.Config, dataset: Dataset, ends: Termination) -> Case:
    norm = fit_normaliser(dataset, config.gamma)
    _, mean, std = fit_targets(dataset, norm)
    features, actions = norm.features, dataset.action_dim

    def make(key: Array) -> pspo.Arrays:
        model, mu = config.model, config.reference
        model_key, mu_key = jax.random.split(key)
        pool = ensemble(model_key, model.pool, features + actions, model.width, model.depth, mean, std)
        policy = mixture_policy(mu_key, features, actions, mu.width, mu.depth, mu.components)
        return pspo.Arrays(pool, jnp.zeros(model.pool), policy, ends)

    arrays = jax.jit(make)(jax.random.PRNGKey(0))
    parts = pspo.Parts(arrays, norm, prediction_range(dataset, norm))
    return Case(name, config, dataset, parts, device_log(dataset, norm, config.gamma))
