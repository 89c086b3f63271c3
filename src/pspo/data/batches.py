"""Rows of a dataset on the device, in the units that networks take."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser


class Rows(NamedTuple):
    """Raw observations, unit actions, normalised rewards, true terminals (time-outs keep their value)."""

    obs: Array
    action: Array
    reward: Array
    next_obs: Array
    terminal: Array


def device_rows(dataset: Dataset, norm: Normaliser) -> Rows:
    unit = np.clip(norm.unit_action(dataset.action), -1.0, 1.0)
    parts = (dataset.obs, unit, dataset.reward / norm.reward_scale, dataset.next_obs, dataset.terminal)
    return Rows(*(jnp.asarray(part) for part in parts))


def sample_rows(rows: Rows, key: Array, count: int) -> Rows:
    """`count` rows, uniformly, with replacement."""
    pick = jax.random.randint(key, (count,), 0, rows.obs.shape[0])
    return Rows(*(part[pick] for part in rows))
