"""Transitions of a dataset on the device, in the units that networks take, and batches of them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.core.errors import UserError
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
    """All transitions of a dataset, with their returns-to-go."""

    transitions: Transitions
    early: Array  # indices of transitions, drawn with the weights gamma^t of the discounted objective
    to_go: Array  # discounted return from each transition to the end of its episode
    to_go_known: Array  # false where a time-out cuts off more than a small part of it


CUT_OFF = 0.05  # a return-to-go counts as known if the part that a time-out cuts off has less weight than this


def device_dataset(dataset: Dataset, norm: Normaliser, gamma: float) -> DeviceDataset:
    """Copy a dataset to the device."""
    if dataset.mapped_file is not None:
        raise UserError(
            f"the transitions of '{dataset.name}' do not fit into memory and stay in their file, from which algorithms "
            "without models can be trained and nothing else: give a part of the data, or allow more memory."
        )
    unit, reward = unit_actions(norm, dataset.action), scaled_rewards(norm, dataset.reward)
    parts = (dataset.obs, unit, reward, dataset.next_obs, dataset.terminal)
    to_go = (dataset.returns_to_go(gamma) / norm.reward_scale).astype(np.float32)
    returns = (early_transitions(dataset, gamma), to_go, returns_known(dataset, gamma))
    return DeviceDataset(Transitions(*(jnp.asarray(part) for part in parts)), *(jnp.asarray(part) for part in returns))


def unit_actions(norm: Normaliser, action: np.ndarray) -> np.ndarray:
    """Logged actions in [-1, 1], also where rounding reaches past the bounds."""
    return np.clip(norm.unit_action(action), -1.0, 1.0)


def scaled_rewards(norm: Normaliser, reward: np.ndarray) -> np.ndarray:
    """Logged rewards in the unit of the critics."""
    return reward / norm.reward_scale


def early_transitions(dataset: Dataset, gamma: float) -> np.ndarray:
    """(n,) indices of transitions, drawn with weights gamma^t."""
    weight = np.float64(gamma) ** dataset.ages()
    drawn = np.random.default_rng(0).choice(dataset.size, dataset.size, p=weight / weight.sum())
    return drawn.astype(np.int32)


def returns_known(dataset: Dataset, gamma: float) -> np.ndarray:
    """(n,) bool: the episode ends in a terminal state, or so much later that what follows its end hardly counts."""
    lengths = dataset.episode_lengths()
    last = np.repeat(dataset.episode_starts + lengths - 1, lengths)
    return dataset.terminal[last] | (np.float64(gamma) ** (last - np.arange(dataset.size) + 1) < CUT_OFF)


def pick_transitions(data: DeviceDataset, key: Array, count: int, early: float = 0.0) -> Array:
    """Indices with replacement: uniform, but the first fraction `early` of them drawn by gamma^t."""
    pick = jax.random.randint(key, (count,), 0, data.transitions.obs.shape[0])
    if early:
        pick = jnp.where(jnp.arange(count) < round(early * count), data.early[pick], pick)
    return pick


def sample_transitions(data: DeviceDataset, key: Array, count: int, early: float = 0.0) -> Transitions:
    """A batch of `count` transitions, drawn as by `pick_transitions`."""
    pick = pick_transitions(data, key, count, early)
    return Transitions(*(part[pick] for part in data.transitions))
