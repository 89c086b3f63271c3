"""The two sizes that are measured, built without fitting anything: speed does not depend on the weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from pspo.algorithms.pspo import algorithm as pspo
from pspo.algorithms.registry import preset
from pspo.core.config import build, flatten
from pspo.data.batches import DeviceDataset, device_dataset
from pspo.data.dataset import Dataset
from pspo.data.load import load_dataset
from pspo.data.normalise import fit_normaliser
from pspo.dynamics.ensemble import ensemble
from pspo.dynamics.fit import fit_targets
from pspo.dynamics.prediction_range import prediction_range
from pspo.dynamics.termination import KnownTermination, NeverTerminates, Termination
from pspo.envs.task import get_task
from pspo.experiments.overhead import HOPPER, TRANSITIONS
from pspo.nets.policies import mixture_policy
from pspo.training.cost import Shape, random_dataset


@dataclass(frozen=True)
class Case:
    """One size: what training has after `prepare`."""

    name: str
    config: pspo.Config
    dataset: Dataset
    setup: pspo.Setup
    device_data: DeviceDataset

    @cached_property
    def start(self) -> tuple[pspo.State, pspo.Context, pspo.Batch]:
        """Inputs of the first update. Compiled in one piece and kept: dozens of small programs take far longer."""

        def make(device_data: DeviceDataset, key: Array) -> tuple[pspo.State, pspo.Context, pspo.Batch]:
            init_key, draw_key = jax.random.split(key)
            state = pspo.init(self.config, self.setup, device_data, init_key)
            state, context, _ = pspo.begin_chunk(self.config, self.setup, device_data, state)
            return state, context, pspo.draw(self.config, device_data, draw_key)

        return jax.jit(make)(self.device_data, jax.random.PRNGKey(0))

    @property
    def state(self) -> pspo.State:
        return self.start[0]

    def info(self) -> dict[str, Any]:
        """Sizes and settings of this case."""
        sizes = {"obs": self.dataset.obs_dim, "action": self.dataset.action_dim, "features": self.setup.norm.features}
        return {**sizes, "rows": self.dataset.size, "settings": flatten(self.config)}


def liquidation() -> Case:
    """The laptop preset as `make demo` trains it, on fewer transitions."""
    config = build(pspo.Config, preset("pspo", "laptop", "liquidation"))
    dataset = load_dataset("liquidation", size=TRANSITIONS)
    return _case("liquidation laptop", config, dataset, KnownTermination(get_task("liquidation").terminated))


def hopper() -> Case:
    task = get_task("hopper")
    dataset = random_dataset(Shape(TRANSITIONS, task.obs_dim, task.action_dim), episode=1000)
    return _case("Hopper size", build(pspo.Config, HOPPER), dataset, NeverTerminates())


def smoke() -> Case:
    """A tiny size, for tests and `--quick`."""
    config = build(pspo.Config, preset("pspo", "smoke", "liquidation"))
    dataset = load_dataset("liquidation", size=1000)
    return _case("liquidation smoke", config, dataset, KnownTermination(get_task("liquidation").terminated))


def _case(name: str, config: pspo.Config, dataset: Dataset, terminated: Termination) -> Case:
    norm = fit_normaliser(dataset, config.gamma)
    _, mean, std = fit_targets(dataset, norm)
    features, actions = norm.features, dataset.action_dim

    def make(key: Array) -> pspo.Arrays:
        model, mu = config.model, config.reference
        model_key, mu_key = jax.random.split(key)
        shape = {"members": model.pool, "inputs": features + actions, "width": model.width, "depth": model.depth}
        pool = ensemble(model_key, **shape, target_mean=mean, target_std=std)
        policy = mixture_policy(mu_key, features, actions, mu.width, mu.depth, mu.components)
        return pspo.Arrays(pool, jnp.zeros(model.pool), policy, terminated)

    arrays = jax.jit(make)(jax.random.PRNGKey(0))
    setup = pspo.Setup(arrays, norm, prediction_range(dataset, norm))
    return Case(name, config, dataset, setup, device_dataset(dataset, norm, config.gamma))
