"""How likely policy and behaviour were to act as the log did: densities of unit actions, and their ratios."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.algorithms.common.behaviour import ReferenceConfig, load_or_fit_reference
from pspo.core.progress import Progress
from pspo.data.normalise import ACTION_MARGIN, unsquash
from pspo.evaluation.ope.blocks import in_blocks
from pspo.evaluation.ope.subject import Subject
from pspo.nets.actors import ClippedGaussian, LinearGaussian, TanhGaussian
from pspo.nets.policies import MixturePolicy

ROUNDING = 1e-5  # of a unit action at its bound

Density = Callable[[Array, Array], Array]
"""(raw observations, unit actions) -> log density of the unit action."""


def _liquidation(obs: Array, unit: Array) -> Array:
    """One step in five sells, any fraction alike; the others hold, with any action below zero alike."""
    from pspo.envs.liquidation_rules import SALE_PROBABILITY

    return jnp.log(jnp.where(unit[..., 0] > 0.0, SALE_PROBABILITY, 1.0 - SALE_PROBABILITY))


BEHAVIOURS: dict[str, Density] = {"liquidation": _liquidation}
"""Of built-in logs it is known who wrote them."""


def imitated(subject: Subject, config: ReferenceConfig, progress: Progress) -> Density:
    """mu, fitted to the log: the reference policy of PSPO."""
    norm = subject.norm
    mu, _ = load_or_fit_reference(subject.data, norm, config, 0, partial(progress, "behaviour density"))
    return lambda obs, unit: unit_log_density(mu, norm.encode(obs), unit)


def has_density(network: Any) -> bool:
    return isinstance(network, MixturePolicy | TanhGaussian | ClippedGaussian | LinearGaussian)


def unit_log_density(network: Any, features: Array, unit: Array) -> Array:
    """Log density of unit actions under a policy network that has one."""
    if not isinstance(network, MixturePolicy):
        return network.log_prob(features, unit)
    x = unsquash(unit)
    slope = jnp.log((1.0 + ACTION_MARGIN) * (1.0 - jnp.square(jnp.tanh(x))))
    return network(features).log_prob(x) - slope.sum(-1)


def log_ratios(subject: Subject, behaviour: Density) -> np.ndarray:
    """(rows,) log pi(a|s) - log b(a|s) at every row of the log, both densities in the log's units.

    The unit of the policy's own bounds is another where these differ from the log's; what the policy cannot do has no
    density at all.
    """
    norm, own = subject.norm, subject.policy_norm
    stretch = np.log((norm.action_high - norm.action_low) / (own.action_high - own.action_low)).sum()

    @jax.jit
    def ratio(network: Any, first: Array, obs: Array, action: Array) -> Array:
        unit = own.unit_action(norm.from_unit(action))
        density = unit_log_density(network, own.encode(obs), jnp.clip(unit, -1.0, 1.0)) + stretch
        possible = (jnp.abs(unit) <= 1.0 + ROUNDING).all(-1)
        return jnp.where(possible, density, -jnp.inf) - behaviour(obs, action)

    rows = subject.device_data.transitions
    return in_blocks(partial(ratio, subject.network), rows.obs, rows.action).astype(np.float64)


def share_at_bounds(subject: Subject) -> float:
    """Of logged actions with a column exactly at a bound, where a policy that is clipped has mass and no density."""
    return float((np.abs(np.asarray(subject.device_data.transitions.action)) >= 1.0).any(-1).mean())
