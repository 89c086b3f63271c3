"""What Q is to be compared with: the dataset's own returns, and its own backups once the critics have converged."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pspo.data.dataset import Dataset
from pspo.evaluation.fitted_critics import FittedQ, transition_values
from pspo.evaluation.inspect.networks import BLOCK, Networks
from pspo.evaluation.problem import EvaluationProblem


class Convergence(NamedTuple):
    """How far Q is from its own backups r + gamma V(s'), in the dataset's units."""

    residual: float  # mean over the dataset of backup minus Q
    shift: float  # what Q would still change by, if the residual stayed: once for every step that counts
    q_std: float  # of Q between states of the dataset: what the shift is compared with

    @property
    def converged(self) -> bool:
        return bool(abs(self.shift) <= self.q_std)


def convergence_of(problem: EvaluationProblem, networks: Networks, compared: np.ndarray) -> Convergence:
    """Fitted critics on the dataset's transitions; PSPO's own on the backups of its models, as they were trained.

    `compared` are raw states of the dataset.
    """
    evaluators = networks.evaluators
    own = np.asarray(problem.act(jnp.asarray(compared)))
    q = networks.q(compared, own).mean(0)
    if evaluators.own:
        size = min(BLOCK, len(compared))
        count = len(compared) // size * size  # blocks of one size, so that it compiles once
        key, scale = jax.random.PRNGKey(1), float(networks.norm.reward_scale)
        targets = [
            np.asarray(
                networks.posterior(jnp.asarray(compared[i : i + size]), jnp.asarray(own[i : i + size]), key).target
            )
            for i in range(0, count, size)
        ]
        residual = float((scale * np.concatenate(targets).astype(np.float64) - q[:count]).mean())
    else:
        fitted = FittedQ(evaluators.critic, np.ones((len(networks.q(compared[:1], own[:1])), 0)))
        residual = float(transition_values(problem, fitted).td_error(problem).mean())
    steps = steps_that_count(problem.dataset, evaluators.gamma)
    return Convergence(residual, steps * residual, float(q.std()))


def steps_that_count(dataset: Dataset, gamma: float) -> float:
    """The discounted number of steps after a state: without a discount, those to the end of the episode."""
    if gamma < 1.0:
        return 1.0 / (1.0 - gamma)
    return float((np.repeat(dataset.episode_lengths(), dataset.episode_lengths()) - dataset.ages()).mean())


def mean_return_from(dataset: Dataset, index: np.ndarray, gamma: float) -> float | None:
    """The dataset's own mean return from these transitions on, in the unit of Q; None if nothing bounds it.

    A cut episode continues at the dataset's mean reward; without a discount it is left out.
    """
    lengths = dataset.episode_lengths()
    last = np.repeat(dataset.episode_starts + lengths - 1, lengths)[index]
    cut = ~dataset.terminal[last]
    returns = dataset.returns_to_go(gamma)[index]
    if gamma == 1.0:
        return float(returns[~cut].mean()) if (~cut).any() else None
    rest = dataset.reward.mean(dtype=np.float64) / (1.0 - gamma)
    return float((returns + np.where(cut, np.float64(gamma) ** (last - index + 1) * rest, 0.0)).mean())
