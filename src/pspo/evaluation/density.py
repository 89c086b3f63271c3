"""Action densities of the policy and of the behaviour, in unit actions, and their ratios on the dataset.

Discrete actions have probabilities in place of densities, exact ones for the policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.algorithms.common.behaviour import ReferenceConfig, load_or_fit_reference
from pspo.core.progress import Progress
from pspo.data.normalise import ACTION_MARGIN, unsquash
from pspo.evaluation.blocks import map_blocks
from pspo.evaluation.problem import EvaluationProblem
from pspo.nets.actors import ClippedGaussian, LinearGaussian, TanhGaussian
from pspo.nets.categorical import CategoricalPolicy
from pspo.nets.policies import MixturePolicy

ROUNDING = 1e-5  # of a unit action at its bound

Density = Callable[[Array, Array], Array]
"""(raw observations, unit actions) -> log density of the unit action."""


def _liquidation(obs: Array, unit: Array) -> Array:
    """One step in five sells a uniform fraction; the others hold, with an action uniform below zero."""
    from pspo.envs.liquidation_rules import SALE_PROBABILITY

    return jnp.log(jnp.where(unit[..., 0] > 0.0, SALE_PROBABILITY, 1.0 - SALE_PROBABILITY))


BEHAVIOURS: dict[str, Density] = {"liquidation": _liquidation}
"""Behaviour densities of built-in datasets, which are known exactly."""


def behaviour_policy(problem: EvaluationProblem, config: ReferenceConfig, progress: Progress) -> MixturePolicy:
    """The behaviour, fitted to the dataset as PSPO's reference policy is, but never weighted by advantages."""
    plain, show = replace(config, advantage_temperature=0.0), partial(progress, "behaviour density")
    return load_or_fit_reference(problem.dataset, problem.norm, plain, 0, show, problem.gamma)[0]


def fitted_behaviour(problem: EvaluationProblem, config: ReferenceConfig, progress: Progress) -> Density:
    """The density of the dataset's actions."""
    mu, norm = behaviour_policy(problem, config, progress), problem.norm
    return lambda obs, unit: unit_log_density(mu, norm.encode(obs), unit)


def has_density(network: Any) -> bool:
    return isinstance(network, MixturePolicy | TanhGaussian | ClippedGaussian | LinearGaussian | CategoricalPolicy)


def unit_log_density(network: Any, features: Array, unit: Array) -> Array:
    """Log density of unit actions under a stochastic policy network."""
    if not isinstance(network, MixturePolicy):
        return network.log_prob(features, unit)
    x = unsquash(unit)
    slope = jnp.log((1.0 + ACTION_MARGIN) * (1.0 - jnp.square(jnp.tanh(x))))
    return network(features).log_prob(x) - slope.sum(-1)


def log_ratios(problem: EvaluationProblem, behaviour: Density | None) -> np.ndarray:
    """(transitions,) log pi(a|s) - log b(a|s) for every transition, both densities in the dataset's units.

    Without `behaviour`, b(a|s) are the propensities of the dataset. The policy's unit actions differ from the dataset's
    where their bounds do; an action that the policy cannot take has density zero.
    """
    norm, own = problem.norm, problem.policy_norm
    stretch = np.log((norm.action_high - norm.action_low) / (own.action_high - own.action_low)).sum()

    @jax.jit
    def ratio(network: Any, first: Array, obs: Array, action: Array) -> Array:
        unit = own.unit_action(norm.from_unit(action))
        density = unit_log_density(network, own.encode(obs), jnp.clip(unit, -1.0, 1.0)) + stretch
        possible = (jnp.abs(unit) <= 1.0 + ROUNDING).all(-1)
        return jnp.where(possible, density, -jnp.inf) - (0.0 if behaviour is None else behaviour(obs, action))

    transitions = problem.device_data.transitions
    log_ratio = map_blocks(partial(ratio, problem.network), transitions.obs, transitions.action).astype(np.float64)
    return log_ratio - logged_densities(problem) if behaviour is None else log_ratio


def logged_densities(problem: EvaluationProblem) -> np.ndarray:
    """(transitions,) log b(a|s) in unit actions: a density per raw unit times the raw length of a unit."""
    norm, propensity = problem.norm, problem.dataset.propensity
    assert propensity is not None
    unit = np.log((norm.action_high.astype(np.float64) - norm.action_low) / 2.0).sum()
    return np.log(propensity.astype(np.float64)) + unit


def fraction_at_bounds(problem: EvaluationProblem) -> float:
    """Fraction of the dataset's actions with a column exactly at a bound, where a clipped policy has no density."""
    if problem.dataset.discrete:
        return 0.0
    return float((np.abs(np.asarray(problem.device_data.transitions.action)) >= 1.0).any(-1).mean())
