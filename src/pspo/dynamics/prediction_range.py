"""The range of predictions, from the dataset: where columns saturate, how far states may go, which rewards occur.

A model is smooth: it predicts past the end of a counter and past the edge at which a sensor saturates. Only there is a
prediction corrected. A hopper that falls leaves the range of a dataset without falls, and the termination rule has to
see its torso angle as predicted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser

Array = Any  # a NumPy or JAX array

EDGE_REPEATS = 10  # transitions at exactly the least or greatest value of a column: more than chance
REACH = 1.0  # how far rollouts may leave the dataset, in ranges of a column: they stay finite
REWARD_MARGIN = 0.05  # of the range of rewards, on either side, as in PMDB's code


class PredictionRange(NamedTuple):
    """Limits of predicted observations and rewards."""

    edge_low: Array  # (obs_dim,): the value a column saturates at, -inf where it does not
    edge_high: Array
    far_low: Array  # (obs_dim,): limits of the states of a rollout
    far_high: Array
    reward_low: Array  # (), in the models' unit of rewards
    reward_high: Array

    def reached(self, norm: Normaliser, predicted: Array) -> Array:
        """The predicted observation with counters and saturation corrected: what the termination rule sees."""
        xp = predicted.__array_namespace__()
        return norm.snap(xp.clip(predicted, self.edge_low, self.edge_high))

    def clip(self, reached: Array) -> Array:
        """The state that the rollout continues from: finite, whatever the models predict."""
        return reached.__array_namespace__().clip(reached, self.far_low, self.far_high)

    def reward(self, predicted: Array) -> Array:
        """The predicted reward, clipped."""
        return predicted.__array_namespace__().clip(predicted, self.reward_low, self.reward_high)


def repeated_edges(obs: np.ndarray, norm: Normaliser) -> tuple[np.ndarray, np.ndarray]:
    """Which columns repeat their least value, and which their greatest."""
    low, high = ((obs == edge).sum(axis=0) >= EDGE_REPEATS for edge in (norm.obs_low, norm.obs_high))
    return low, high


def prediction_range(dataset: Dataset, norm: Normaliser) -> PredictionRange:
    """The range for models whose inputs and rewards are normalised by `norm`."""
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
    """The range of the dataset with a margin, (obs_dim,) each."""

    low: np.ndarray
    high: np.ndarray


def data_box(obs: np.ndarray, norm: Normaliser, margin: float) -> Box:
    """The range of every column, widened by `margin` of its width, and unbounded where the column saturates.

    A value that the dataset repeats at its edge is where a sensor saturates or a counter ends, as the velocities of
    hopper and walker2d do at 10. A smooth model predicts beyond it, which is no sign of an unknown state.
    """
    slack = margin * (norm.obs_high - norm.obs_low)
    low, high = repeated_edges(obs, norm)
    return Box(np.where(low, -np.inf, norm.obs_low - slack), np.where(high, np.inf, norm.obs_high + slack))


def outside(predicted: Array, box: Box) -> Array:
    """Whether any column of a prediction lies outside."""
    return ((predicted < box.low) | (predicted > box.high)).any(axis=-1)
