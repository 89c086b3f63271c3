"""Rows of a dataset on the device, in the units that networks take."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser


class Transitions(NamedTuple):
    """Raw observations, unit actions, normalised rewards, true terminals (time-outs keep their value)."""

    obs: Array
    action: Array
    reward: Array
    next_obs: Array
    terminal: Array


class DeviceDataset(NamedTuple):
    """All rows of a dataset, and what is known of each from the episode around it."""

    transitions: Transitions
    early: Array  # row numbers, each as often as the discounted objective weighs it: by gamma^t since its episode began
    to_go: Array  # the log's own discounted return from each row on
    to_go_known: Array  # false where a time-out cuts off more than a little of it


CUT_OFF = 0.05  # a return-to-go counts as known when the weight of what a time-out cut off is below this


def device_dataset(dataset: Dataset, norm: Normaliser, gamma: float) -> DeviceDataset:
    unit = np.clip(norm.unit_action(dataset.action), -1.0, 1.0)
    parts = (dataset.obs, unit, dataset.reward / norm.reward_scale, dataset.next_obs, dataset.terminal)
    to_go = (dataset.returns_to_go(gamma) / norm.reward_scale).astype(np.float32)
    around = (early_transitions(dataset, gamma), to_go, returns_known(dataset, gamma))
    return DeviceDataset(Transitions(*(jnp.asarray(part) for part in parts)), *(jnp.asarray(part) for part in around))


def early_transitions(dataset: Dataset, gamma: float) -> np.ndarray:
    """(n,) row numbers drawn with weights gamma^t."""
    weight = np.float64(gamma) ** dataset.ages()
    drawn = np.random.default_rng(0).choice(dataset.size, dataset.size, p=weight / weight.sum())
    return drawn.astype(np.int32)


def returns_known(dataset: Dataset, gamma: float) -> np.ndarray:
    """(n,) bool: the episode ended by itself, or so far ahead that its end hardly counts."""
    lengths = dataset.episode_lengths()
    last = np.repeat(dataset.episode_starts + lengths - 1, lengths)
    return dataset.terminal[last] | (np.float64(gamma) ** (last - np.arange(dataset.size) + 1) < CUT_OFF)


def pick_transitions(log: DeviceDataset, key: Array, count: int, early: float = 0.0) -> Array:
    """Row numbers with replacement: uniformly, but the first fraction `early` of them by gamma^t."""
    pick = jax.random.randint(key, (count,), 0, log.transitions.obs.shape[0])
    if early:
        pick = jnp.where(jnp.arange(count) < round(early * count), log.early[pick], pick)
    return pick


def sample_transitions(log: DeviceDataset, key: Array, count: int, early: float = 0.0) -> Transitions:
    pick = pick_transitions(log, key, count, early)
    return Transitions(*(part[pick] for part in log.transitions))
