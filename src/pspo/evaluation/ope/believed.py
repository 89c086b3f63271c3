"""The models that judge a policy, and how much each is believed: those of its own run, or a pool for these data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import Array

from pspo.algorithms.pspo import algorithm as pspo
from pspo.algorithms.pspo.diagnostics import whole_pool
from pspo.algorithms.pspo.posterior import PosteriorBackup, f_scale, log_posterior, posterior_backup
from pspo.algorithms.pspo.rollout import active_posterior, model_noise
from pspo.core.progress import Progress
from pspo.data.normalise import Normaliser
from pspo.dynamics.ensemble import Ensemble
from pspo.dynamics.pool import load_or_fit_pool
from pspo.dynamics.prediction_range import data_box, prediction_range
from pspo.dynamics.termination import Termination, make_termination
from pspo.envs.task import get_task
from pspo.evaluation.ope.fitted_q import FittedQ
from pspo.evaluation.ope.models import LogWeight, Models
from pspo.evaluation.ope.subject import Subject
from pspo.evaluation.ope.trained import last_state
from pspo.runs.directory import Run

Consistency = Callable[[Any, Ensemble, Array, Array, Array], PosteriorBackup]
"""(what weighs, the pool, raw observations, unit actions, key) -> what each model says, not yet weighed by its F."""


def find_models(
    subject: Subject, run: Run | None, config: pspo.Config, fitted: Callable[[], FittedQ], progress: Progress
) -> Models:
    """PSPO's own posterior where it was trained by this log and its last state is kept; else fitted critics weigh.

    `config` is the recipe of the pool that is weighed by critics, which are fitted only if they are needed.
    """
    own = _of_pspo(subject, run, progress) if run else None
    return own or _by_critics(subject, config, fitted(), progress)


def _of_pspo(subject: Subject, run: Run, progress: Progress) -> Models | None:
    """The very posterior that the policy was trained with; its critics know no other log's units."""
    trained = last_state(run, subject.data, progress)
    if trained is None:
        return None
    config, setup, state = trained

    def log_weight(critics: Any, pool: Ensemble, obs: Array, action: Array, key: Array) -> Array:
        target, value, spread = critics
        given = state._replace(target_critic=target, params=state.params._replace(value=value), f_scale=spread)
        whole = whole_pool(setup._replace(arrays=setup.arrays._replace(pool=pool)))
        return active_posterior(config, setup, whole, given, obs, action, key).log_weight

    critics = (state.target_critic, state.params.value, state.f_scale)
    return _models(subject, config, setup.norm, setup.arrays.pool, setup.arrays.terminated, critics, log_weight)


def _by_critics(subject: Subject, config: pspo.Config, fitted: FittedQ, progress: Progress) -> Models:
    """A uniform prior, and the consistency of each model with the fitted critics, Eq. reweight_metric."""
    pool, ends = pool_of_log(subject, config, progress)
    critics = (fitted.critic, subject.network)
    return _models(subject, config, subject.norm, pool, ends, critics, _consistency(subject, config, fitted, ends))


def _models(
    subject: Subject,
    config: pspo.Config,
    norm: Normaliser,
    pool: Ensemble,
    ends: Termination,
    critics: Any,
    log_weight: LogWeight,
) -> Models:
    box = data_box(subject.data.obs, norm, config.box_margin)
    left = pspo.make_limits(config, subject.data, norm).left_value if config.box == "end" else None
    within = prediction_range(subject.data, norm)
    return Models(norm, pool, ends, critics, log_weight, within, box, left, config.model_noise)


# Critics that were fitted to the log weigh a pool of PSPO's recipe


def _consistency(subject: Subject, config: pspo.Config, fitted: FittedQ, ends: Termination) -> LogWeight:
    """P(T|E) with F in units of its spread over the rows that are weighed together."""
    weighed = with_fitted(subject, config, fitted, ends)

    def log_weight(critics: Any, pool: Ensemble, obs: Array, action: Array, key: Array) -> Array:
        f = weighed(critics, pool, obs, action, key).f
        return uniform_posterior(f, f_scale(f))

    return log_weight


def pool_of_log(subject: Subject, config: pspo.Config, progress: Progress) -> tuple[Ensemble, Termination]:
    """Models of these data, the same for every policy, and where episodes in them end."""
    data, norm = subject.data, subject.norm
    pool, _ = load_or_fit_pool(data, norm, config.model, 0, partial(progress, "dynamics pool"))
    rule = get_task(data.task).terminated if data.task else None
    ends, _ = make_termination(config.termination, data, rule, norm, config.width, 0)
    return pool.models, ends


def with_fitted(subject: Subject, config: pspo.Config, fitted: FittedQ, ends: Termination) -> Consistency:
    """What weighs are the fitted critics and the policy's network."""
    norm, within = subject.norm, prediction_range(subject.data, subject.norm)

    def weighed(critics: Any, pool: Ensemble, obs: Array, action: Array, key: Array) -> PosteriorBackup:
        judge, policy = fitted._replace(critic=critics[0]), subject._replace(network=critics[1])
        prior = jnp.full(pool.size, -jnp.log(pool.size))

        def value(features: Array) -> Array:
            """V(s') = Q(s', pi(s')). The first columns of the features are the observation, standardised."""
            obs = norm.obs_mean + norm.obs_std * features[..., : subject.data.obs_dim]
            flat, action = (part.reshape(-1, part.shape[-1]) for part in (features, policy.act(obs)))
            return judge.q(flat, action).mean(0).reshape(features.shape[:-1])

        q = judge.q(norm.encode(obs), action).mean(0)
        noise = model_noise(config, obs, key)
        return posterior_backup(
            pool,
            log_prior=prior,
            norm=norm,
            terminated=ends,
            range=within,
            value=value,
            q=q,
            obs=obs,
            action=action,
            noise=noise,
            gamma=subject.gamma,
            beta=0.0,
        )

    return weighed


def uniform_posterior(f: Array, spread: Array | float) -> Array:
    """log P(T|E), a uniform prior and beta 1 in units of F's spread, as PSPO's default has it; f (members, rows)."""
    return log_posterior(jnp.full(f.shape[0], -jnp.log(f.shape[0])), f, 1.0 / spread)
