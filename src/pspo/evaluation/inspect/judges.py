"""Who speaks of a state: PSPO's own critics, reference and models, or others that are fitted to the log."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.algorithms.common.behaviour import load_or_fit_reference
from pspo.algorithms.pspo import algorithm as pspo
from pspo.algorithms.pspo.diagnostics import whole_pool
from pspo.algorithms.pspo.posterior import PosteriorBackup, f_scale
from pspo.algorithms.pspo.rollout import active_posterior
from pspo.core.cache import content_key, remember
from pspo.core.files import digest
from pspo.core.progress import Progress
from pspo.core.trees import to_arrays
from pspo.data.normalise import Normaliser
from pspo.dynamics.ensemble import Ensemble
from pspo.evaluation.ope.believed import pool_of_log, uniform_posterior, with_fitted
from pspo.evaluation.ope.fitted_q import FittedQ, FittedQConfig, fit_q
from pspo.evaluation.ope.recipe import Recipe
from pspo.evaluation.ope.subject import Subject
from pspo.evaluation.ope.trained import Trained, last_state
from pspo.nets.mlp import MLP, apply_stack, mlp_stack
from pspo.nets.policies import MixturePolicy
from pspo.runs.directory import Run

BLOCK = 500  # rows weighed at once: every model says what follows each of them
RECIPE = 1  # of critics that are kept; counts up when fitting them gives other ones

Weigh = Callable[[Array, Array, Array], PosteriorBackup]
"""(raw observations, unit actions, key) -> what every model says follows, and how much each is believed."""


class Judges(NamedTuple):
    own: bool  # those that the policy was trained with
    gamma: float  # of their returns
    norm: Normaliser  # theirs
    critic: MLP  # a stack
    together: str  # what the critics say together is their mean, or their min
    reference: MixturePolicy
    pool: Ensemble
    weigh: Weigh

    def q(self, obs: np.ndarray, unit: np.ndarray) -> np.ndarray:
        """(critics, rows) in the log's units, of raw observations and unit actions."""
        x = jnp.concatenate([self.norm.encode(jnp.asarray(obs)), jnp.asarray(unit)], axis=-1)
        return np.asarray(apply_stack(self.critic, x)[..., 0], np.float64) * float(self.norm.reward_scale)

    def q_together(self, each: np.ndarray) -> np.ndarray:
        """What (critics, rows) say as one."""
        return each.min(0) if self.together == "min" else each.mean(0)


def find_judges(subject: Subject, run: Run, recipe: Recipe, compared: np.ndarray, progress: Progress) -> Judges:
    """`compared` are raw logged states over which the unit of F is taken where PSPO's own is not known."""
    trained = last_state(run, subject.data, progress)
    return _of_pspo(trained) if trained else _of_log(subject, recipe, compared, progress)


def _of_pspo(trained: Trained) -> Judges:
    config, setup, state = trained

    @jax.jit
    def weigh(arrays: pspo.Arrays, state: pspo.State, obs: Array, action: Array, key: Array) -> PosteriorBackup:
        given = setup._replace(arrays=arrays)
        return active_posterior(config, given, whole_pool(given), state, obs, action, key)

    return Judges(
        own=True,
        gamma=config.gamma,
        norm=setup.norm,
        critic=state.target_critic,
        together=config.critic_value,
        reference=setup.arrays.reference,
        pool=setup.arrays.pool,
        weigh=partial(weigh, setup.arrays, state),
    )


def _of_log(subject: Subject, recipe: Recipe, compared: np.ndarray, progress: Progress) -> Judges:
    """As `pspo ope` judges: critics of this policy, and a pool and mu of PSPO's recipe for these data."""
    config, norm = recipe.pspo, subject.norm
    show = partial(progress, "behaviour density")
    reference, _ = load_or_fit_reference(subject.data, norm, config.reference, 0, show)
    pool, ends = pool_of_log(subject, config, progress)
    fitted = kept_critics(subject, recipe.fitted_q, progress)
    consistency = with_fitted(subject, config, fitted, ends)

    @jax.jit
    def weigh(arrays: Any, spread: Array, obs: Array, action: Array, key: Array) -> PosteriorBackup:
        critics, pool = arrays
        found = consistency(critics, pool, obs, action, key)
        return found._replace(log_weight=uniform_posterior(found.f, spread))

    arrays = ((fitted.critic, subject.network), pool)
    own = np.asarray(subject.act(jnp.asarray(compared)))
    spread = _mean_f_spread(partial(weigh, arrays, jnp.float32(1.0)), compared, own)
    return Judges(
        own=False,
        gamma=subject.gamma,
        norm=norm,
        critic=fitted.critic,
        together="mean",
        reference=reference,
        pool=pool,
        weigh=partial(weigh, arrays, spread),
    )


def kept_critics(subject: Subject, config: FittedQConfig, progress: Progress) -> FittedQ:
    """Fitted once per policy, data and recipe: the next state of the same run is looked at in seconds."""
    base = content_key("fitted-q", RECIPE, subject.data, subject.norm, config, 0)
    form = f"{jax.tree_util.tree_structure(subject.network)} {subject.gamma}"
    key = f"{base}-{digest(to_arrays((subject.network, subject.policy_norm)), form)[:12]}"
    sizes = [subject.norm.features + subject.data.action_dim, *[config.width] * config.depth, 1]

    def shapes() -> MLP:
        return jax.eval_shape(lambda k: mlp_stack(k, config.critics, sizes), jax.random.PRNGKey(0))

    critic, _, _ = remember(key, shapes, lambda: (fit_q(subject, config, progress=progress).critic, {}))
    return FittedQ(critic, np.ones((config.critics, 0)))  # whose weights nobody asks for here


def _mean_f_spread(weigh: Weigh, obs: np.ndarray, unit: np.ndarray) -> Array:
    """The unit of F over many rows, some at a time; blocks of one size compile once, and the rest is left out."""
    size = min(BLOCK, len(obs))
    found = []
    for first in range(0, len(obs) - size + 1, size):
        key = jax.random.fold_in(jax.random.PRNGKey(0), first)
        rows = slice(first, first + size)
        found.append(f_scale(weigh(jnp.asarray(obs[rows]), jnp.asarray(unit[rows]), key).f))
    return jnp.stack(found).mean()
