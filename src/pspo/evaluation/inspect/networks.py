"""The networks behind an inspection: models and critics as in `pspo ope`, and the reference policy mu."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.algorithms.pspo.posterior import PosteriorBackup, f_scale
from pspo.core.progress import Progress
from pspo.data.normalise import Normaliser
from pspo.dynamics.ensemble import Ensemble
from pspo.evaluation.config import EvaluationConfig
from pspo.evaluation.density import behaviour_policy
from pspo.evaluation.fitted_critics import load_or_fit_critics
from pspo.evaluation.models_and_critics import (
    ModelsAndCritics,
    PosteriorArrays,
    fitted_models_and_critics,
    own_models_and_critics,
    trained_pspo,
)
from pspo.evaluation.problem import EvaluationProblem
from pspo.runs.directory import Run

BLOCK = 500  # states per block: every model predicts what follows each of them

Posterior = Callable[[Array, Array, Array], PosteriorBackup]
"""(raw observations, unit actions, key) -> each model's prediction and posterior weight."""


class Networks(NamedTuple):
    evaluators: ModelsAndCritics
    reference: Any  # mu: a mixture policy, for discrete actions a categorical one
    posterior: Posterior

    @property
    def norm(self) -> Normaliser:
        return self.evaluators.norm

    @property
    def pool(self) -> Ensemble:
        return self.evaluators.arrays.pool

    def q(self, obs: np.ndarray, unit: np.ndarray) -> np.ndarray:
        """(critics, batch) in the dataset's units."""
        return self.evaluators.q(obs, unit)

    def combine(self, q: np.ndarray) -> np.ndarray:
        """Q from the values of all critics (critics, batch)."""
        return self.evaluators.combine(q)


def load_networks(
    problem: EvaluationProblem, run: Run, config: EvaluationConfig, compared: np.ndarray, progress: Progress
) -> Networks:
    """Those that PSPO trained the policy with, or others that are fitted to the dataset.

    `compared` are raw states of the dataset over which the scale of F is taken where PSPO's own is not known.
    """
    if trained := trained_pspo(run, problem.dataset, progress):
        evaluators = own_models_and_critics(trained)
        posterior = partial(_compiled(evaluators), evaluators.arrays, None)
        return Networks(evaluators, trained.setup.arrays.reference, posterior)
    reference = behaviour_policy(problem, config.pspo.reference, progress)
    critics = load_or_fit_critics(problem, config.fitted_q, progress)
    evaluators = fitted_models_and_critics(problem, config.pspo, critics, progress)
    posterior = partial(_compiled(evaluators), evaluators.arrays)
    actions = np.asarray(problem.act(jnp.asarray(compared)))
    scale = _mean_f_scale(partial(posterior, jnp.float32(1.0)), compared, actions)
    return Networks(evaluators, reference, partial(posterior, scale))


def _compiled(evaluators: ModelsAndCritics) -> Callable[..., PosteriorBackup]:
    """(arrays, scale of F, raw observations, unit actions, key)"""

    @jax.jit
    def posterior(
        arrays: PosteriorArrays, scale: Array | None, obs: Array, action: Array, key: Array
    ) -> PosteriorBackup:
        return evaluators.posterior(arrays, obs, action, key, scale)

    return posterior


def _mean_f_scale(posterior: Posterior, obs: np.ndarray, unit: np.ndarray) -> Array:
    """The scale of F over many states, in blocks of one size so that it compiles once; the remainder is left out."""
    size = min(BLOCK, len(obs))
    scales = []
    for first in range(0, len(obs) - size + 1, size):
        key = jax.random.fold_in(jax.random.PRNGKey(0), first)
        block = slice(first, first + size)
        scales.append(f_scale(posterior(jnp.asarray(obs[block]), jnp.asarray(unit[block]), key).f))
    return jnp.stack(scales).mean()
