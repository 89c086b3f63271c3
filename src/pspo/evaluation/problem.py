"""What is evaluated: a policy, the dataset that it is evaluated on, and the return in question."""

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
MOSTLY_TERMINAL = 0.99  # fraction of episodes that end in a terminal state: then returns are not discounted


class EvaluationProblem(NamedTuple):
    """A policy in the units of the dataset that it is evaluated on."""

    network: Any
    policy_norm: Normaliser  # the policy's own
    norm: Normaliser  # the dataset's: the units of critics and models
    dataset: Dataset
    device_data: DeviceDataset
    gamma: float
    horizon: int

    def act(self, obs: Array, key: Array | None = None) -> Array:
        """Raw observations to actions in the dataset's units; without a key, the policy's mode.

        Where the policy's bounds are wider than the dataset's, actions may lie outside [-1, 1]: they are not clipped,
        since the policy is evaluated as it acts.
        """
        raw = self.policy_norm.from_unit(self.network.unit_action(self.policy_norm.encode(obs), key))
        return self.norm.unit_action(raw)

    @property
    def starts(self) -> np.ndarray:
        """(episodes, obs_dim): the first states of the dataset's episodes."""
        return self.dataset.obs[self.dataset.episode_starts]

    @property
    def truncated(self) -> np.ndarray:
        """(episodes,) bool: the data stop before the episode does, by a time-out or at the last transition."""
        return ~self.dataset.terminal[self.dataset.episode_end]


def make_problem(
    policy: Policy, dataset: Dataset, gamma: float | None, training_gamma: float, reward_gamma: float | None = None
) -> EvaluationProblem:
    """`gamma` is the discount of the return in question; without one `default_gamma` decides.

    `reward_gamma` is the discount of the returns whose standard deviation is the unit of rewards. It does not change
    the return, but the cache finds models by it (default: `training_gamma`).
    """
    if (policy.obs_dim, policy.action_dim) != (dataset.obs_dim, dataset.action_dim):
        raise UserError(
            f"the policy has {policy.obs_dim} observation and {policy.action_dim} action columns, and '{dataset.name}' "
            f"has {dataset.obs_dim} and {dataset.action_dim}: name the data it was trained on."
        )
    discount = default_gamma(dataset, training_gamma) if gamma is None else gamma
    if not 0.0 < discount <= 1.0:
        raise UserError(f"gamma={discount} is out of range: it must be above 0 and at most 1.")
    norm = fit_normaliser(dataset, training_gamma if reward_gamma is None else reward_gamma)
    return EvaluationProblem(
        network=to_network(policy),
        policy_norm=policy.norm,
        norm=norm,
        dataset=dataset,
        device_data=device_dataset(dataset, norm, discount),
        gamma=discount,
        horizon=int(min(dataset.episode_lengths().max(), LONGEST_EPISODE)),
    )


def default_gamma(dataset: Dataset, training_gamma: float) -> float:
    """1 where episodes end in terminal states; else that of training, as truncated episodes do not show the rest."""
    terminal = dataset.terminal[dataset.episode_end].mean()
    return 1.0 if terminal >= MOSTLY_TERMINAL else training_gamma
