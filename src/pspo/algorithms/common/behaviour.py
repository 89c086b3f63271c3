"""The reference policy mu: the behaviour that collected the dataset, as a density that may have several modes.

Maximum likelihood of a mixture policy on the dataset's actions, with a hold-out for early stopping. PSPO regularises
towards it, Eq. (7) (opt:eq1 in the paper's source), and takes expectations under it, Eq. (8) (opt:eq2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from pspo.core.cache import content_key, remember
from pspo.core.config import Bounds
from pspo.data.dataset import Dataset
from pspo.data.normalise import ACTION_MARGIN, Normaliser
from pspo.nets.policies import MixturePolicy, mixture_policy


@dataclass(frozen=True)
class ReferenceConfig:
    """Recipe of the reference policy; the learned policy has the same shape and starts as its copy."""

    components: Annotated[int, Bounds(1, 64)] = 4
    """Gaussians in the mixture; 1 is the usual single Gaussian."""
    width: Annotated[int, Bounds(4, 4096)] = 64
    """Units in a hidden layer of mu and of the policy."""
    depth: Annotated[int, Bounds(1, 8)] = 2
    """Hidden layers."""
    steps: Annotated[int, Bounds(1, 100_000_000)] = 3000
    """Gradient steps at most."""
    batch: Annotated[int, Bounds(1, 65536)] = 512
    """Transitions per step."""
    lr: Annotated[float, Bounds(0.0, 1.0)] = 1e-3
    """Adam's learning rate at the start; it falls to zero."""
    holdout: Annotated[float, Bounds(0.001, 0.5)] = 0.05
    """Fraction of transitions held out for early stopping and the report."""
    evaluate_every: Annotated[int, Bounds(1, 1_000_000)] = 500
    """Steps between evaluations on the hold-out."""


class ReferenceRecord(NamedTuple):
    holdout_log_likelihood: float  # per transition, in units of the action itself
    uniform_log_likelihood: float  # what a uniform policy over the bounds gets
    curve: list[tuple[int, float]]


def log_likelihood_loss(policy: MixturePolicy, features: Array, x: Array) -> Array:
    """Negative log-likelihood of the dataset's pre-squash actions."""
    return -policy(features).log_prob(x).mean()


def fit_reference(
    dataset: Dataset, norm: Normaliser, config: ReferenceConfig, seed: int, progress: Callable[..., None]
) -> tuple[MixturePolicy, ReferenceRecord]:
    """Maximum likelihood; keeps the parameters that were best on the hold-out."""
    features, x = jnp.asarray(norm.encode(dataset.obs)), jnp.asarray(norm.presquash(dataset.action))
    train, holdout = dataset.split(config.holdout, seed)
    key = jax.random.PRNGKey(seed)
    policy = mixture_policy(key, norm.features, dataset.action_dim, config.width, config.depth, config.components)
    optimiser = optax.adam(optax.cosine_decay_schedule(config.lr, config.steps))
    opt = optimiser.init(policy)  # pyright: ignore[reportArgumentType]
    run, score = _compile_fit(optimiser, config.batch), jax.jit(log_likelihood_loss)
    best, best_loss, curve, step = policy, np.inf, [], 0
    training = (features[train], x[train])
    while step < config.steps:
        count = min(config.evaluate_every, config.steps - step)
        policy, opt = run(policy, opt, training, jax.random.fold_in(key, step), count)
        step += count
        now = float(score(policy, features[holdout], x[holdout]))
        if now < best_loss:
            best, best_loss = policy, now
        curve.append((step, -now))
        progress(step, config.steps, {"hold-out log-likelihood": -best_loss})
    return best, _record(norm, x[holdout], best_loss, curve)


def _compile_fit(optimiser: optax.GradientTransformation, batch: int) -> Callable[..., tuple[MixturePolicy, Any]]:
    @partial(jax.jit, static_argnames="count")
    def run(policy: MixturePolicy, opt: Any, data: tuple[Array, Array], key: Array, count: int):
        def step(carry, k):
            policy, opt = carry
            pick = jax.random.randint(k, (batch,), 0, data[0].shape[0])
            grads = jax.grad(log_likelihood_loss)(policy, data[0][pick], data[1][pick])
            updates, opt = optimiser.update(grads, opt, policy)
            return (optax.apply_updates(policy, updates), opt), None

        return jax.lax.scan(step, (policy, opt), jax.random.split(key, count))[0]

    return run


def _record(norm: Normaliser, x, best_loss: float, curve) -> ReferenceRecord:
    """Log-likelihoods in action units: the Jacobian of the squash, and the bounds' width."""
    half = 0.5 * (norm.action_high - norm.action_low)
    jacobian = np.log((1.0 + ACTION_MARGIN) * (1.0 - np.tanh(np.asarray(x, np.float64)) ** 2) * half).sum(-1).mean()
    uniform = -np.log(2.0 * half).sum()
    return ReferenceRecord(float(-best_loss - jacobian), float(uniform), curve)


RECIPE = 1


def load_or_fit_reference(
    dataset: Dataset, norm: Normaliser, config: ReferenceConfig, seed: int, progress: Callable[..., None]
) -> tuple[MixturePolicy, dict[str, Any]]:
    """mu from the cache, or fitted now, and information for the report."""
    key = content_key("reference", RECIPE, dataset, norm, config, seed)

    def fresh(k) -> MixturePolicy:
        return mixture_policy(k, norm.features, dataset.action_dim, config.width, config.depth, config.components)

    def make() -> tuple[MixturePolicy, dict[str, Any]]:
        policy, record = fit_reference(dataset, norm, config, seed, progress)
        return policy, record._asdict()

    policy, info, cached = remember(key, lambda: eqx.filter_eval_shape(fresh, jax.random.PRNGKey(0)), make)
    return policy, {**info, "key": key, "cached": cached}
