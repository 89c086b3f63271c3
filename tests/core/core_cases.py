"""Small data and policies for the core tests."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np

from pspo.data import Dataset
from pspo.data.normalise import Normaliser, fit_normaliser
from pspo.nets.mlp import MLP
from pspo.nets.policies import MixturePolicy

LOW, HIGH = np.array([-1.0, 2.0], np.float32), np.array([3.0, 2.5], np.float32)


def small_dataset(rows: int = 200, seed: int = 0, **changes: Any) -> Dataset:
    """Two observation columns, the second a step counter of five; two actions with bounds that are not symmetric."""
    rng = np.random.default_rng(seed)
    obs = np.stack([rng.normal(size=rows), np.arange(rows) % 5], axis=1).astype(np.float32)
    timeout = np.arange(rows) % 5 == 4
    fields = {
        "obs": obs,
        "action": rng.uniform(LOW, HIGH, size=(rows, 2)),
        "reward": rng.normal(size=rows),
        "next_obs": np.roll(obs, -1, axis=0),
        "terminal": np.zeros(rows, bool),
        "timeout": timeout,
        "action_low": LOW,
        "action_high": HIGH,
    }
    return Dataset(**(fields | changes))


def small_norm() -> Normaliser:
    return fit_normaliser(small_dataset())


def lively_network(norm: Normaliser, components: int = 3, seed: int = 0) -> MixturePolicy:
    """A policy network whose outputs depend strongly on the observation; made by NumPy, which compiles nothing."""
    rng, dim = np.random.default_rng(seed), norm.action_low.shape[0]
    sizes = [norm.features, 8, 8, components * (1 + 2 * dim)]
    weights = [rng.normal(scale=0.7, size=shape) for shape in pairwise(sizes)]
    biases = [rng.normal(scale=0.5, size=size) for size in sizes[1:]]
    net = MLP(*([jnp.asarray(a, jnp.float32) for a in layers] for layers in (weights, biases)), "silu")
    return MixturePolicy(net, components, dim)
