"""Random cases for the theory tests: hypothesis picks sizes and seeds, a NumPy generator fills the arrays.

Hypothesis drives the shapes, the discount and the seed only: shrinking a Dirichlet draw entry by entry tells nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from pspo.theory import FiniteEnsemble, random_distribution, random_ensemble


@dataclass
class Case:
    rng: np.random.Generator
    ensemble: FiniteEnsemble
    posterior: np.ndarray  # any distribution per (s, a): the claims for a fixed posterior do not ask where it is from
    mu: np.ndarray
    policy: np.ndarray
    alpha: float

    @property
    def shape(self) -> tuple[int, int]:
        return self.ensemble.n_states, self.ensemble.n_actions

    def some_policy(self, concentration: float = 1.0) -> np.ndarray:
        return random_distribution(self.rng, self.shape, concentration)

    def some_q(self, scale: float = 1.0) -> np.ndarray:
        return self.rng.uniform(-scale, scale, size=self.shape)

    def some_posterior(self, concentration: float = 1.0) -> np.ndarray:
        return np.moveaxis(random_distribution(self.rng, (*self.shape, self.ensemble.n_models), concentration), -1, 0)


def make_case(
    seed: int,
    n_models: int = 3,
    n_states: int = 4,
    n_actions: int = 3,
    gamma: float = 0.9,
    concentration: float = 1.0,
    alpha: float = 0.5,
) -> Case:
    rng = np.random.default_rng(seed)
    ensemble = random_ensemble(
        rng, n_models=n_models, n_states=n_states, n_actions=n_actions, gamma=gamma, concentration=concentration
    )
    case = Case(rng, ensemble, np.empty(0), np.empty(0), np.empty(0), alpha)
    case.posterior, case.mu, case.policy = case.some_posterior(), case.some_policy(), case.some_policy()
    return case


def cases(max_gamma: float = 0.95, min_actions: int = 1) -> st.SearchStrategy[Case]:
    return st.builds(
        make_case,
        seed=st.integers(0, 2**32 - 1),
        n_models=st.integers(1, 4),
        n_states=st.integers(1, 5),
        n_actions=st.integers(min_actions, 4),
        gamma=st.sampled_from([g for g in (0.0, 0.3, 0.7, 0.9, 0.95) if g <= max_gamma]),
        concentration=st.sampled_from([0.1, 1.0, 10.0]),
        alpha=st.sampled_from([0.05, 0.5, 3.0]),
    )


def sup(array: np.ndarray) -> float:
    return float(np.abs(array).max())
