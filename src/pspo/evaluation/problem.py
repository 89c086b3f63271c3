"""What is evaluated: a policy, the dataset that it is evaluated on, and the return in question."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jax import Array

from pspo.core.errors import UserError
from pspo.data.batches import CUT_OFF, DeviceDataset, device_dataset
from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser, fit_normaliser
from pspo.policies.policy import Policy, to_network

LONGEST_EPISODE = 1000
MOSTLY_TERMINAL = 0.99  # fraction of episodes that end in a terminal state: then returns are not discounted


class EvaluatedReturn(NamedTuple):
    """The quantity that every method estimates, and in which the dataset's own episodes are measured."""

    gamma: float
    horizon: int  # steps; unless `bounded`, only the longest that is simulated
    bounded: bool  # rewards after `horizon` steps do not count; else all do, until the episode ends

    @property
    def words(self) -> str:
        steps = f"over {self.horizon} steps" if self.bounded else "until the episode ends"
        return f"sum of rewards {steps}" + ("" if self.gamma == 1.0 else f", discounted by {self.gamma:g}")


class EvaluationProblem(NamedTuple):
    """A policy in the units of the dataset that it is evaluated on."""

    network: Any
    policy_norm: Normaliser  # the policy's own
    norm: Normaliser  # the dataset's: the units of critics and models
    dataset: Dataset
    device_data: DeviceDataset
    gamma: float
    horizon: int
    bounded: bool = False  # rewards after `horizon` steps do not count
    on_training_data: bool = False  # the policy was trained on this very dataset

    def act(self, obs: Array, key: Array | None = None) -> Array:
        """Raw observations to actions in the dataset's units; without a key, the policy's mode.

        Where the policy's bounds are wider than the dataset's, actions may lie outside [-1, 1]: they are not clipped,
        since the policy is evaluated as it acts.
        """
        raw = self.policy_norm.from_unit(self.network.unit_action(self.policy_norm.encode(obs), key))
        return self.norm.unit_action(raw)

    @property
    def evaluated(self) -> EvaluatedReturn:
        return EvaluatedReturn(self.gamma, self.horizon, self.bounded)

    @property
    def starts(self) -> np.ndarray:
        """(episodes, obs_dim): the first states of the dataset's episodes."""
        return self.dataset.obs[self.dataset.episode_starts]

    @property
    def truncated(self) -> np.ndarray:
        """(episodes,) bool: the data stop before the episode does, by a time-out or at the last transition."""
        return ~self.dataset.terminal[self.dataset.episode_end]


def make_problem(
    policy: Policy,
    dataset: Dataset,
    evaluated: EvaluatedReturn,
    reward_gamma: float,
) -> EvaluationProblem:
    """`reward_gamma` is the discount of the returns whose standard deviation is the unit of rewards.

    It does not change the return, but the cache finds models by it.
    """
    if (policy.obs_dim, policy.action_dim) != (dataset.obs_dim, dataset.action_dim):
        raise UserError(
            f"the policy has {policy.obs_dim} observation and {policy.action_dim} action columns, and '{dataset.name}' "
            f"has {dataset.obs_dim} and {dataset.action_dim}: name the data it was trained on."
        )
    if policy.encoder != dataset.encoder:
        raise UserError(f"'{dataset.name}' is not encoded as the policy's data were: name the data it was trained on.")
    norm = fit_normaliser(dataset, reward_gamma)
    return EvaluationProblem(
        network=to_network(policy),
        policy_norm=policy.norm,
        norm=norm,
        dataset=dataset,
        device_data=device_dataset(dataset, norm, evaluated.gamma),
        gamma=evaluated.gamma,
        horizon=evaluated.horizon,
        bounded=evaluated.bounded,
    )


def return_to_evaluate(
    dataset: Dataset, training_gamma: float, gamma: float | None = None, horizon: int | None = None
) -> EvaluatedReturn:
    """The return that is estimated where the user leaves `gamma` or `horizon` open.

    - Episodes that end in terminal states: the plain sum of rewards until then.
    - Episodes that were all cut at the same length: the plain sum over that length, as the dataset shows no more.
    - Otherwise the return discounted as in training, over the length of the longest episode. Where the discount leaves
      nothing after it, as on long tasks, it is the return without a limit.

    A horizon that the user gives is a limit, and without `gamma` the plain sum of rewards.
    """
    if gamma is not None and not 0.0 < gamma <= 1.0:
        raise UserError(f"gamma={gamma} is out of range: it must be above 0 and at most 1.")
    if horizon is not None:
        if horizon < 1:
            raise UserError(f"horizon={horizon} is out of range: it must be at least 1.")
        return EvaluatedReturn(1.0 if gamma is None else gamma, int(horizon), True)
    longest, terminal = _longest(dataset), _mostly_terminal(dataset)
    if gamma is None:
        cut = cut_at_one_length(dataset) and training_gamma**longest > CUT_OFF
        gamma = 1.0 if terminal or cut else training_gamma
    return EvaluatedReturn(gamma, longest, not terminal and gamma**longest > CUT_OFF)


def return_without_limit(dataset: Dataset, training_gamma: float) -> EvaluatedReturn:
    """All rewards from a state on, discounted as in training unless episodes end in terminal states."""
    return EvaluatedReturn(1.0 if _mostly_terminal(dataset) else training_gamma, _longest(dataset), False)


def cut_at_one_length(dataset: Dataset) -> bool:
    """Whether all episodes that do not end in a terminal state have the same length, which none exceeds.

    The last one does not count if it is shorter: the end of the data cuts it, not a limit.
    """
    _, lengths = dataset.logged_rewards()
    cut = ~dataset.terminal[dataset.episode_end]
    if len(lengths) > 1 and lengths[-1] < lengths.max():
        cut[-1] = False
    return bool(cut.any() and (lengths[cut] == lengths.max()).all())


def _longest(dataset: Dataset) -> int:
    return int(min(dataset.logged_rewards()[1].max(), LONGEST_EPISODE))


def _mostly_terminal(dataset: Dataset) -> bool:
    return bool(dataset.terminal[dataset.episode_end].mean() >= MOSTLY_TERMINAL)
