"""What a prediction may be, by what the dataset shows: where columns saturate, how far they reach, which rewards occur.

A model is smooth: it predicts past the end of a counter and past the edge at which a sensor saturates. There the
prediction is corrected. Nowhere else: a hopper that falls leaves the range of a dataset without falls, and its torso
angle has to reach the termination rule as predicted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser

Array = Any  # a NumPy or JAX array

EDGE_REPEATS = 10  # transitions at exactly the least or greatest value of a column: chance does not do that
REACH = 1.0  # ranges of a column beyond either end: rollouts that have left the dataset stay finite
REWARD_MARGIN = 0.05  # of the range of rewards, on either side, as in PMDB's code


class PredictionRange(NamedTuple):
    edge_low: Array  # (obs_dim,): the value a column saturates at, -inf where it does not
    edge_high: Array
    far_low: Array  # (obs_dim,): how low a state of a rollout may be
    far_high: Array
    reward_low: Array  # (), in the models' unit of rewards
    reward_high: Array

    def reached(self, norm: Normaliser, predicted: Array) -> Array:
        """The observation that was reached, as a termination rule is to see it: counters and saturation corrected."""
        xp = predicted.__array_namespace__()
        return norm.snap(xp.clip(predicted, self.edge_low, self.edge_high))

    def keep(self, reached: Array) -> Array:
        """The same as a state to continue from: finite, whatever the models have predicted."""
        return reached.__array_namespace__().clip(reached, self.far_low, self.far_high)

    def reward(self, predicted: Array) -> Array:
        return predicted.__array_namespace__().clip(predicted, self.reward_low, self.reward_high)


def repeated_edges(obs: np.ndarray, norm: Normaliser) -> tuple[np.ndarray, np.ndarray]:
    """Which columns repeat their least value, and which their greatest."""
    low, high = ((obs == edge).sum(axis=0) >= EDGE_REPEATS for edge in (norm.obs_low, norm.obs_high))
    return low, high


def prediction_range(dataset: Dataset, norm: Normaliser) -> PredictionRange:
    """`norm` is the models': of what they see, and of the rewards they predict."""
    low, high = repeated_edges(dataset.obs, norm)
    reach = REACH * (norm.obs_high - norm.obs_low)
    lowest, highest = float(dataset.reward.min()), float(dataset.reward.max())
    margin = REWARD_MARGIN * (highest - lowest)
    f32 = np.float32
    return PredictionRange(
        edge_low=np.where(low, norm.obs_low, -np.inf).astype(f32),
        edge_high=np.where(high, norm.obs_high, np.inf).astype(f32),
        far_low=(norm.obs_low - reach).astype(f32),
        far_high=(norm.obs_high + reach).astype(f32),
        reward_low=np.asarray((lowest - margin) / norm.reward_scale, f32),
        reward_high=np.asarray((highest + margin) / norm.reward_scale, f32),
    )


class Box(NamedTuple):
    """(obs_dim,) each: the range of the dataset with a margin."""

    low: np.ndarray
    high: np.ndarray


def data_box(obs: np.ndarray, norm: Normaliser, margin: float) -> Box:
    """The range of every column, widened by `margin` of its width, and open where the column itself is bounded.

    An edge that the dataset repeats is where a sensor saturates or a counter ends, as hopper's and walker2d's
    velocities do at 10. A prediction beyond it means the edge: a smooth model cannot know where to stop.
    """
    slack = margin * (norm.obs_high - norm.obs_low)
    low, high = repeated_edges(obs, norm)
    return Box(np.where(low, -np.inf, norm.obs_low - slack), np.where(high, np.inf, norm.obs_high + slack))


def outside(predicted: Array, box: Box) -> Array:
    """Whether any column of a prediction lies outside."""
    return ((predicted < box.low) | (predicted > box.high)).any(axis=-1)
