"""The reference policy mu: the behaviour that collected the dataset, as a density that may have several modes.

Maximum likelihood of a mixture policy on the dataset's actions, with a hold-out for early stopping. PSPO regularises
towards it, Eq. (7) (opt:eq1 in the paper's source), and takes expectations under it, Eq. (8) (opt:eq2). With
`advantage_temperature` the better actions of the dataset weigh more: where many policies of a learner collected it,
their mixture is far worse than the best of them, and a policy that stays close to the mixture is held back. For
discrete actions it is a categorical policy.
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

from pspo.algorithms.common.advantages import advantage_weights
from pspo.algorithms.common.discrete import labels_of, new_policy
from pspo.core.cache import content_key, remember
from pspo.core.config import Bounds
from pspo.data.dataset import Dataset
from pspo.data.normalise import ACTION_MARGIN, Normaliser
from pspo.nets.categorical import CategoricalPolicy
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
    advantage_temperature: Annotated[float, Bounds(0.0, 1e6)] = 0.0
    """Weights exp(A/temperature) of transitions, in standard deviations of the advantage A; 0: all weigh the same."""


@dataclass(frozen=True)
class _WeightedReference:
    """All that decides on a weighted reference policy, for the cache."""

    reference: ReferenceConfig
    gamma: float


class ReferenceRecord(NamedTuple):
    holdout_log_likelihood: float  # per transition, in units of the action itself
    uniform_log_likelihood: float  # what a uniform policy over the bounds or labels gets
    curve: list[tuple[int, float]]


Reference = MixturePolicy | CategoricalPolicy


def log_likelihood_loss(policy: Reference, features: Array, x: Array, weight: Array | float = 1.0) -> Array:
    """Negative log-likelihood of the dataset's actions: pre-squash, or one-hot."""
    return -(weight * policy(features).log_prob(x)).mean()


def fit_reference(
    dataset: Dataset,
    norm: Normaliser,
    config: ReferenceConfig,
    seed: int,
    progress: Callable[..., None],
    weight: np.ndarray | None = None,
) -> tuple[Any, ReferenceRecord]:
    """Maximum likelihood, of weighted transitions if weights are given; keeps the best parameters on the hold-out."""
    action = dataset.action if dataset.discrete else norm.presquash(dataset.action)
    features, x = jnp.asarray(norm.encode(dataset.obs)), jnp.asarray(action)
    train, holdout = dataset.split(config.holdout, seed)
    key = jax.random.PRNGKey(seed)
    policy = _fresh(dataset, norm, config, key)
    optimiser = optax.adam(optax.cosine_decay_schedule(config.lr, config.steps))
    opt = optimiser.init(policy)  # pyright: ignore[reportArgumentType]
    run, score = _compile_fit(optimiser, config.batch), jax.jit(log_likelihood_loss)
    best, best_loss, curve, step = policy, np.inf, [], 0
    parts = (features, x) if weight is None else (features, x, jnp.asarray(weight))
    training, held_out = (tuple(part[index] for part in parts) for index in (train, holdout))
    while step < config.steps:
        count = min(config.evaluate_every, config.steps - step)
        policy, opt = run(policy, opt, training, jax.random.fold_in(key, step), count)
        step += count
        now = float(score(policy, *held_out))
        if now < best_loss:
            best, best_loss = policy, now
        curve.append((step, -now))
        progress(step, config.steps, {"hold-out log-likelihood": -best_loss})
    if dataset.discrete:
        return best, ReferenceRecord(-best_loss, -float(np.log(dataset.action_dim)), curve)
    return best, _record(norm, x[holdout], best_loss, curve)


def _fresh(dataset: Dataset, norm: Normaliser, config: ReferenceConfig, key: Array) -> Reference:
    if labels := labels_of(dataset, norm):
        return new_policy(key, norm, labels, config.width, config.depth)
    return mixture_policy(key, norm.features, dataset.action_dim, config.width, config.depth, config.components)


def _compile_fit(optimiser: optax.GradientTransformation, batch: int) -> Callable[..., tuple[Reference, Any]]:
    @partial(jax.jit, static_argnames="count")
    def run(policy: Reference, opt: Any, data: tuple[Array, ...], key: Array, count: int):
        def step(carry, k):
            policy, opt = carry
            pick = jax.random.randint(k, (batch,), 0, data[0].shape[0])
            grads = jax.grad(log_likelihood_loss)(policy, *(part[pick] for part in data))
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
    dataset: Dataset,
    norm: Normaliser,
    config: ReferenceConfig,
    seed: int,
    progress: Callable[..., None],
    gamma: float,
) -> tuple[Any, dict[str, Any]]:
    """mu from the cache, or fitted now, and information for the report; `gamma` is the discount of advantages."""
    weighted = bool(config.advantage_temperature)
    recipe = _WeightedReference(config, gamma) if weighted else config
    key = content_key("reference", RECIPE, dataset, norm, recipe, seed)

    def fresh(k: Array) -> Reference:
        return _fresh(dataset, norm, config, k)

    def make() -> tuple[Reference, dict[str, Any]]:
        weight = advantage_weights(dataset, norm, gamma, config.advantage_temperature, seed) if weighted else None
        policy, record = fit_reference(dataset, norm, config, seed, progress, weight)
        return policy, record._asdict()

    policy, info, cached = remember(key, lambda: eqx.filter_eval_shape(fresh, jax.random.PRNGKey(0)), make)
    return policy, {**info, "key": key, "cached": cached}
