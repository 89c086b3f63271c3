"""The models and critics that evaluate a policy, shared by `pspo ope` and `pspo inspect`.

A policy that PSPO trained on these data is evaluated with its own: the critics, the models and the posterior at the end
of its run. Every other policy is evaluated with critics that are fitted to it, and with a pool of models of these data
that is the same for all policies; their consistency with the critics (Eq. (3), reweight_metric in the paper's source)
gives the posterior over models, Eq. (4).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.algorithms.pspo import algorithm as pspo
from pspo.algorithms.pspo.config import Config
from pspo.algorithms.pspo.diagnostics import whole_pool
from pspo.algorithms.pspo.posterior import PosteriorBackup, f_scale, log_posterior, posterior_backup
from pspo.algorithms.pspo.rollout import active_posterior, model_noise
from pspo.algorithms.pspo.state import Setup, State
from pspo.core import checkpoint
from pspo.core.config import build
from pspo.core.progress import Progress
from pspo.data.batches import device_dataset
from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser
from pspo.dynamics.ensemble import Ensemble
from pspo.dynamics.pool import load_or_fit_pool
from pspo.dynamics.prediction_range import prediction_range
from pspo.dynamics.termination import Termination, make_termination
from pspo.envs.task import get_task
from pspo.evaluation.fitted_critics import FittedQ
from pspo.evaluation.problem import EvaluationProblem
from pspo.nets.mlp import MLP, apply_stack
from pspo.runs.directory import Run


class PosteriorArrays(NamedTuple):
    """The arrays that the posterior depends on, passed to compiled programs as arguments."""

    pool: Ensemble
    terminated: Termination
    networks: Any  # critics, and what gives V(s')


Posterior = Callable[[PosteriorArrays, Array, Array, Array, Array | None], PosteriorBackup]
"""(arrays, raw observations, unit actions, key, scale of F) -> each model's backup and posterior weight.

The scale is the unit of F for fitted critics, by default that of the given batch; PSPO's own posterior has its own.
"""


class ModelsAndCritics(NamedTuple):
    own: bool  # those that the policy was trained with
    config: Config
    gamma: float  # of the critics' returns
    norm: Normaliser  # of their inputs and rewards
    critic: MLP  # a stack
    critic_value: str  # how Q is made from the critics: "mean" or "min"
    arrays: PosteriorArrays
    posterior: Posterior

    def q(self, obs: np.ndarray, unit: np.ndarray) -> np.ndarray:
        """(critics, batch) in the dataset's units, for raw observations and unit actions."""
        x = jnp.concatenate([self.norm.encode(jnp.asarray(obs)), jnp.asarray(unit)], axis=-1)
        return np.asarray(apply_stack(self.critic, x)[..., 0], np.float64) * float(self.norm.reward_scale)

    def combine(self, q: np.ndarray) -> np.ndarray:
        """Q from the values of all critics (critics, batch)."""
        return q.min(0) if self.critic_value == "min" else q.mean(0)


class TrainedPSPO(NamedTuple):
    """PSPO at the end of a run."""

    config: Config
    setup: Setup
    state: State


def trained_pspo(run: Run, dataset: Dataset, progress: Progress) -> TrainedPSPO | None:
    """None if another algorithm trained the run, if it was trained on other data, or if it has no checkpoint left."""
    run_config = run.read("config", "algo", "seed", "settings")
    if run_config["algo"] != "pspo" or run.read("manifest", "data_hash")["data_hash"] != dataset.hash:
        return None
    config = build(Config, run_config["settings"])
    setup, _ = pspo.prepare(config, dataset, run_config["seed"], progress)
    device_data = device_dataset(dataset, setup.norm, config.gamma)
    shapes = jax.eval_shape(
        lambda device_data, key: pspo.init(config, setup, device_data, key), device_data, jax.random.PRNGKey(0)
    )
    newest = checkpoint.load_newest(run.checkpoints, shapes, lambda text: None)
    return None if newest is None else TrainedPSPO(config, setup, newest[1])


def own_models_and_critics(trained: TrainedPSPO) -> ModelsAndCritics:
    """Critics, models and posterior that the policy was trained with; they are in the units of its own dataset."""
    config, setup, state = trained

    def posterior(arrays: PosteriorArrays, obs: Array, action: Array, key: Array, scale: Array | None):
        target_critic, value, scale_of_f = arrays.networks
        given = setup._replace(arrays=setup.arrays._replace(pool=arrays.pool, terminated=arrays.terminated))
        params = state.params._replace(value=value)
        at_end = state._replace(target_critic=target_critic, params=params, f_scale=scale_of_f)
        pool = whole_pool(given)
        return active_posterior(config, given, context=pool, state=at_end, obs=obs, action=action, key=key)

    networks = (state.target_critic, state.params.value, state.f_scale)
    return ModelsAndCritics(
        own=True,
        config=config,
        gamma=config.gamma,
        norm=setup.norm,
        critic=state.target_critic,
        critic_value=config.critic_value,
        arrays=PosteriorArrays(setup.arrays.pool, setup.arrays.terminated, networks),
        posterior=posterior,
    )


def fitted_models_and_critics(
    problem: EvaluationProblem, config: Config, fitted: FittedQ, progress: Progress
) -> ModelsAndCritics:
    """Critics fitted to this policy, and the pool of these data; a uniform prior over the models."""
    pool, terminated = pool_of_dataset(problem, config, progress)
    backup = fitted_backup(problem, config, fitted)

    def posterior(arrays: PosteriorArrays, obs: Array, action: Array, key: Array, scale: Array | None):
        result = backup(arrays, obs, action, key)
        return result._replace(log_weight=uniform_posterior(result.f, f_scale(result.f) if scale is None else scale))

    return ModelsAndCritics(
        own=False,
        config=config,
        gamma=problem.gamma,
        norm=problem.norm,
        critic=fitted.critic,
        critic_value="mean",
        arrays=PosteriorArrays(pool, terminated, (fitted.critic, problem.network)),
        posterior=posterior,
    )


def pool_of_dataset(problem: EvaluationProblem, config: Config, progress: Progress) -> tuple[Ensemble, Termination]:
    """Models of these data, the same for every policy, and their termination."""
    dataset, norm = problem.dataset, problem.norm
    pool, _ = load_or_fit_pool(dataset, norm, config.model, 0, partial(progress, "dynamics pool"))
    rule = get_task(dataset.task).terminated if dataset.task else None
    terminated, _ = make_termination(config.termination, dataset, rule, norm, config.width, 0)
    return pool.models, terminated


def fitted_backup(
    problem: EvaluationProblem, config: Config, fitted: FittedQ
) -> Callable[[PosteriorArrays, Array, Array, Array], PosteriorBackup]:
    """(arrays, raw observations, unit actions, key) -> backups with F of Eq. (3), and uniform weights."""
    norm, within = problem.norm, prediction_range(problem.dataset, problem.norm)

    def backup(arrays: PosteriorArrays, obs: Array, action: Array, key: Array) -> PosteriorBackup:
        critics = fitted._replace(critic=arrays.networks[0])
        after = None if fitted.share is None else fitted.share.shape[0] - 2  # one step less than Q of all steps
        policy = problem._replace(network=arrays.networks[1])
        prior = jnp.full(arrays.pool.size, -jnp.log(arrays.pool.size))

        def value(features: Array) -> Array:
            """V(s') = Q(s', pi(s')). The first columns of the features are the standardised observation."""
            obs = norm.obs_mean + norm.obs_std * features[..., : problem.dataset.obs_dim]
            flat, action = (part.reshape(-1, part.shape[-1]) for part in (features, policy.act(obs)))
            left = None if after is None else jnp.full(flat.shape[0], after)
            return critics.q(flat, action, left).mean(0).reshape(features.shape[:-1])

        return posterior_backup(
            arrays.pool,
            log_prior=prior,
            norm=norm,
            terminated=arrays.terminated,
            range=within,
            value=value,
            q=critics.q(norm.encode(obs), action).mean(0),
            obs=obs,
            action=action,
            noise=model_noise(config, obs, key),
            gamma=problem.gamma,
            beta=0.0,
        )

    return backup


def uniform_posterior(f: Array, scale: Array | float) -> Array:
    """log P(T|E) of F (models, batch): a uniform prior, and beta 1 in units of F's standard deviation as in PSPO."""
    return log_posterior(jnp.full(f.shape[0], -jnp.log(f.shape[0])), f, 1.0 / scale)
