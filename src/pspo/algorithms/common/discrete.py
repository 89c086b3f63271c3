"""What algorithms share where actions are discrete: their labels, and sums over all of them instead of samples.

Actions are one-hot vectors. Critics and models take them like any other action, so that Q of all labels is one batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser
from pspo.nets.categorical import CategoricalPolicy, categorical_policy, feature_mask


@dataclass(frozen=True)
class Labels:
    """The discrete actions of a dataset, as networks see them: constants of a run."""

    count: int
    mask: np.ndarray  # (rules, 4), over features


def labels_of(dataset: Dataset, norm: Normaliser) -> Labels | None:
    """None where actions are quantities."""
    if not dataset.discrete:
        return None
    mask = feature_mask(dataset.action_mask, np.asarray(norm.obs_mean), np.asarray(norm.obs_std))
    return Labels(len(dataset.action_labels), mask)


def new_policy(key: Array, norm: Normaliser, labels: Labels, width: int, depth: int, **shape: Any) -> CategoricalPolicy:
    return categorical_policy(key, norm.features, labels.count, labels.mask, width, depth, **shape)


def all_actions(labels: int, batch: int) -> Array:
    """(labels, batch, labels): every label as a one-hot action of every state."""
    return jnp.broadcast_to(jnp.eye(labels)[:, None], (labels, batch, labels))
