"""What the policy does in a state, compared with the behaviour that produced the dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.data.normalise import squash
from pspo.evaluation.density import has_density, unit_log_density
from pspo.evaluation.inspect.networks import Networks
from pspo.evaluation.problem import EvaluationProblem

SAMPLES = 2000
CENTRAL_90 = (0.05, 0.95)


class ActionColumn(NamedTuple):
    """One column of the action, in the dataset's units."""

    name: str
    value: float  # by the policy's mode
    low: float  # bounds
    high: float
    noise: float  # standard deviation of sampled actions; 0 for a deterministic policy
    noise_range: tuple[float, float]  # 90 % of them
    reference: float  # by mu's mode
    reference_range: tuple[float, float]  # 90 % of mu's samples
    reference_at_bounds: tuple[float, float]  # fraction of mu's samples at the lower and at the upper bound


class PolicyAction(NamedTuple):
    columns: list[ActionColumn]
    log_density: float | None  # of the policy at its action, per unit of raw action; None if it is deterministic
    reference_log_density: float  # of mu there
    below_mode: float  # nats by which mu's density there is below that at its mode
    percentile: float  # 0 to 100: share of mu's samples whose density is no higher

    @property
    def log_ratio(self) -> float | None:
        """log pi - log mu at the policy's action."""
        return None if self.log_density is None else self.log_density - self.reference_log_density


class ChosenActions(NamedTuple):
    """Unit actions, (action_dim,) each."""

    policy: np.ndarray
    reference: np.ndarray


def choose_actions(problem: EvaluationProblem, networks: Networks, obs: np.ndarray) -> ChosenActions:
    policy = np.asarray(problem.act(jnp.asarray(obs)))
    return ChosenActions(policy, np.asarray(networks.reference.unit_action(networks.norm.encode(jnp.asarray(obs)))))


def action_in(
    problem: EvaluationProblem, networks: Networks, names: Sequence[str], obs: np.ndarray, chosen: ChosenActions
) -> PolicyAction:
    norm = networks.norm
    own, theirs = sample_actions(problem, networks, obs)
    where = reference_log_density(networks, obs, np.stack([chosen.policy, chosen.reference]))
    among = reference_log_density(networks, obs, theirs)
    density = policy_log_density(problem, networks, obs, chosen.policy[None])
    raw_own, raw_theirs = norm.from_unit(own), norm.from_unit(theirs)
    return PolicyAction(
        columns=[
            ActionColumn(
                name=name,
                value=float(norm.from_unit(chosen.policy)[i]),
                low=float(norm.action_low[i]),
                high=float(norm.action_high[i]),
                noise=float(raw_own[:, i].std()) if np.ptp(own[:, i]) > 0 else 0.0,
                noise_range=_range(raw_own[:, i]),
                reference=float(norm.from_unit(chosen.reference)[i]),
                reference_range=_range(raw_theirs[:, i]),
                reference_at_bounds=(float((theirs[:, i] <= -1.0).mean()), float((theirs[:, i] >= 1.0).mean())),
            )
            for i, name in enumerate(names)
        ],
        log_density=None if density is None else float(density[0]),
        reference_log_density=float(where[0]),
        below_mode=float(where[1] - where[0]),
        # At a bound mu has mass and no density: its samples there are as likely as the policy's action there.
        percentile=float(100.0 * (among <= where[0]).mean()) if np.isfinite(where[0]) else float("nan"),
    )


def _range(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, CENTRAL_90)
    return float(low), float(high)


def sample_actions(problem: EvaluationProblem, networks: Networks, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(SAMPLES, action_dim) unit actions of the policy, and of mu."""
    key_own, key_mu = jax.random.split(jax.random.PRNGKey(0))
    many = jnp.broadcast_to(jnp.asarray(obs), (SAMPLES, len(obs)))
    mixture = networks.reference(networks.norm.encode(jnp.asarray(obs)))
    return np.asarray(problem.act(many, key_own)), np.asarray(squash(mixture.sample(key_mu, SAMPLES)))


# Densities are per unit of raw action, in nats


def reference_log_density(networks: Networks, obs: np.ndarray, unit: np.ndarray) -> np.ndarray:
    return _raw(
        networks, unit_log_density(networks.reference, _features(networks.norm.encode, obs, unit), jnp.asarray(unit))
    )


def policy_log_density(
    problem: EvaluationProblem, networks: Networks, obs: np.ndarray, unit: np.ndarray
) -> np.ndarray | None:
    """None for a deterministic policy. Its bounds are those of the dataset that it was trained on."""
    if not has_density(problem.network):
        return None
    features = _features(problem.policy_norm.encode, obs, unit)
    return _raw(networks, unit_log_density(problem.network, features, jnp.asarray(unit)))


def _features(encode, obs: np.ndarray, unit: np.ndarray) -> Array:
    return jnp.broadcast_to(features := encode(jnp.asarray(obs)), (len(unit), features.shape[-1]))


def _raw(networks: Networks, unit_density: Array) -> np.ndarray:
    width = networks.norm.action_high - networks.norm.action_low
    return np.asarray(unit_density, np.float64) + float(np.log(2.0 / width).sum())
