"""What is judged: a policy, the log it is judged by, and the return that is meant."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jax import Array

from pspo.core.errors import UserError
from pspo.data.batches import DeviceDataset, device_dataset
from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser, fit_normaliser
from pspo.policies.policy import Policy, to_network

LONGEST_EPISODE = 1000
ENDS_BY_ITSELF = 0.99  # of the log's episodes: then the plain sum of rewards is what is meant


class Subject(NamedTuple):
    """A policy in the units of the log that judges it."""

    network: Any
    policy_norm: Normaliser  # the policy's own
    norm: Normaliser  # of critics and models
    data: Dataset
    device_data: DeviceDataset
    gamma: float
    horizon: int

    def act(self, obs: Array, key: Array | None = None) -> Array:
        """Raw observations to actions in the log's units; no key, no noise.

        Where the policy's bounds are wider than the log's, they lie outside of [-1, 1]: the policy is judged by what it
        does, not by what the log would have allowed.
        """
        raw = self.policy_norm.from_unit(self.network.unit_action(self.policy_norm.encode(obs), key))
        return self.norm.unit_action(raw)

    @property
    def starts(self) -> np.ndarray:
        """(episodes, obs_dim): where the log's episodes began."""
        return self.data.obs[self.data.episode_starts]

    @property
    def cut(self) -> np.ndarray:
        """(episodes,) bool: the log stops before the episode does, by a time-out or with its last row."""
        return ~self.data.terminal[self.data.episode_end]


def make_subject(
    policy: Policy, data: Dataset, gamma: float | None, trained_with: float, units: float | None = None
) -> Subject:
    """`gamma` is the discount of the return that is meant; without one `usual_gamma` decides.

    `units` is the discount of the returns whose spread is the unit of rewards. It says nothing about the return, but
    models are found in the cache by it (default: `trained_with`).
    """
    if (policy.obs_dim, policy.action_dim) != (data.obs_dim, data.action_dim):
        raise UserError(
            f"the policy takes {policy.obs_dim} numbers and gives {policy.action_dim}, and '{data.name}' has "
            f"{data.obs_dim} and {data.action_dim}: name the data it was trained on."
        )
    meant = usual_gamma(data, trained_with) if gamma is None else gamma
    if not 0.0 < meant <= 1.0:
        raise UserError(f"gamma={meant} is out of range: it must be above 0 and at most 1.")
    norm = fit_normaliser(data, trained_with if units is None else units)
    horizon = int(min(data.episode_lengths().max(), LONGEST_EPISODE))
    return Subject(to_network(policy), policy.norm, norm, data, device_dataset(data, norm, meant), meant, horizon)


def usual_gamma(data: Dataset, trained_with: float) -> float:
    """1 where episodes end by themselves; else that of training, as a cut-off episode says nothing of what follows."""
    ended = data.terminal[data.episode_end].mean()
    return 1.0 if ended >= ENDS_BY_ITSELF else trained_with
