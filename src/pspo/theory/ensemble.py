"""A finite ensemble of Markov decision processes: small enough that every quantity of the paper is a finite sum.

Shapes used everywhere in this package: N models, S states, A actions.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FiniteEnsemble:
    """N transition models that share states, actions, reward and discount; arrays are copied and made read-only."""

    transitions: Array  # (N, S, A, S): T_i(s' | s, a)
    reward: Array  # (S, A): r(s, a)
    prior: Array  # (N,): P(T_i)
    gamma: float  # discount, in [0, 1)
    initial: Array  # (S,): rho_0

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "gamma":
                array = np.array(getattr(self, field.name), dtype=np.float64)
                array.flags.writeable = False
                object.__setattr__(self, field.name, array)
        if self.reward.ndim != 2:
            raise ValueError(f"reward must have shape (S, A), got {self.reward.shape}")
        if not 0.0 <= self.gamma < 1.0:
            raise ValueError(f"gamma must lie in [0, 1), got {self.gamma}")
        n_states, n_actions = self.reward.shape
        n_models = self.prior.size
        _require_distribution("transitions", self.transitions, (n_models, n_states, n_actions, n_states))
        _require_distribution("prior", self.prior, (n_models,))
        _require_distribution("initial", self.initial, (n_states,))

    @property
    def n_models(self) -> int:
        return self.prior.size

    @property
    def n_states(self) -> int:
        return self.reward.shape[0]

    @property
    def n_actions(self) -> int:
        return self.reward.shape[1]

    @property
    def value_bound(self) -> float:
        """R_max / (1 - gamma): no discounted sum of these rewards is larger in size."""
        return float(np.abs(self.reward).max()) / (1.0 - self.gamma)


def random_ensemble(
    rng: np.random.Generator,
    *,
    n_models: int = 3,
    n_states: int = 4,
    n_actions: int = 3,
    gamma: float = 0.9,
    concentration: float = 1.0,
    reward_scale: float = 1.0,
) -> FiniteEnsemble:
    """Dirichlet transitions and uniform rewards in [-reward_scale, reward_scale].

    A small concentration makes transitions nearly deterministic and the models disagree; a large one makes them alike.
    """
    return FiniteEnsemble(
        transitions=random_distribution(rng, (n_models, n_states, n_actions, n_states), concentration),
        reward=rng.uniform(-reward_scale, reward_scale, size=(n_states, n_actions)),
        prior=random_distribution(rng, (n_models,)),
        gamma=gamma,
        initial=random_distribution(rng, (n_states,)),
    )


def random_distribution(rng: np.random.Generator, shape: tuple[int, ...], concentration: float = 1.0) -> Array:
    """Independent Dirichlet draws along the last axis; a policy is the case shape = (S, A).

    Every entry is kept above 1e-6, so that logarithms stay finite and every policy has full support.
    """
    draws = rng.dirichlet(np.full(shape[-1], concentration), size=shape[:-1])
    draws = np.maximum(draws, 1e-6)
    return draws / draws.sum(axis=-1, keepdims=True)


def _require_distribution(name: str, array: Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    # Written so that a NaN fails too: it compares false with everything.
    if not (np.all(array >= 0.0) and np.all(np.abs(array.sum(axis=-1) - 1.0) <= 1e-9)):
        raise ValueError(f"{name} must be non-negative and sum to one along its last axis")
