"""What the policy does in a state, beside what the log's behaviour would have done there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.data.normalise import squash
from pspo.evaluation.inspect.judges import Judges
from pspo.evaluation.ope.density import has_density, unit_log_density
from pspo.evaluation.ope.subject import Subject

DRAWS = 2000
NINE_TENTHS = (0.05, 0.95)


class ActColumn(NamedTuple):
    """One column of the action, in the log's units."""

    name: str
    value: float  # by the policy's mode
    low: float  # bounds
    high: float
    noise: float  # standard deviation of the policy's draws; 0 without noise
    noise_range: tuple[float, float]  # nine tenths of them
    reference: float  # by mu's mode
    reference_range: tuple[float, float]  # nine tenths of mu's draws
    reference_at_bounds: tuple[float, float]  # share of mu's draws at the lower and at the upper bound


class Act(NamedTuple):
    columns: list[ActColumn]
    log_density: float | None  # of the policy at its action, per unit of raw action; None where it has no density
    reference_log_density: float  # of mu there
    below_mode: float  # nats by which mu's density there is below that at its own mode
    percentile: float  # 0 to 100: of mu's own draws whose density is no higher

    @property
    def log_ratio(self) -> float | None:
        """log pi - log mu at the policy's action."""
        return None if self.log_density is None else self.log_density - self.reference_log_density


class Chosen(NamedTuple):
    """Unit actions, (action_dim,) each."""

    policy: np.ndarray
    reference: np.ndarray


def choose(subject: Subject, judges: Judges, obs: np.ndarray) -> Chosen:
    policy = np.asarray(subject.act(jnp.asarray(obs)))
    return Chosen(policy, np.asarray(judges.reference.unit_action(judges.norm.encode(jnp.asarray(obs)))))


def act_in(subject: Subject, judges: Judges, names: Sequence[str], obs: np.ndarray, chosen: Chosen) -> Act:
    norm = judges.norm
    own, theirs = draws(subject, judges, obs)
    where = reference_log_density(judges, obs, np.stack([chosen.policy, chosen.reference]))
    among = reference_log_density(judges, obs, theirs)
    density = policy_log_density(subject, judges, obs, chosen.policy[None])
    raw_own, raw_theirs = norm.from_unit(own), norm.from_unit(theirs)
    return Act(
        columns=[
            ActColumn(
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
        # At a bound mu has mass and no density: its draws there are as likely as the policy's action there.
        percentile=float(100.0 * (among <= where[0]).mean()) if np.isfinite(where[0]) else float("nan"),
    )


def _range(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, NINE_TENTHS)
    return float(low), float(high)


def draws(subject: Subject, judges: Judges, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(DRAWS, action_dim) unit actions of the policy, and of mu."""
    key_own, key_mu = jax.random.split(jax.random.PRNGKey(0))
    many = jnp.broadcast_to(jnp.asarray(obs), (DRAWS, len(obs)))
    mixture = judges.reference(judges.norm.encode(jnp.asarray(obs)))
    return np.asarray(subject.act(many, key_own)), np.asarray(squash(mixture.sample(key_mu, DRAWS)))


# Densities are per unit of raw action, in nats


def reference_log_density(judges: Judges, obs: np.ndarray, unit: np.ndarray) -> np.ndarray:
    return _raw(judges, unit_log_density(judges.reference, _features(judges.norm.encode, obs, unit), jnp.asarray(unit)))


def policy_log_density(subject: Subject, judges: Judges, obs: np.ndarray, unit: np.ndarray) -> np.ndarray | None:
    """None where the policy has no density. Its bounds are the log's, which it was trained on."""
    if not has_density(subject.network):
        return None
    features = _features(subject.policy_norm.encode, obs, unit)
    return _raw(judges, unit_log_density(subject.network, features, jnp.asarray(unit)))


def _features(encode, obs: np.ndarray, unit: np.ndarray) -> Array:
    return jnp.broadcast_to(features := encode(jnp.asarray(obs)), (len(unit), features.shape[-1]))


def _raw(judges: Judges, unit_density: Array) -> np.ndarray:
    width = judges.norm.action_high - judges.norm.action_low
    return np.asarray(unit_density, np.float64) + float(np.log(2.0 / width).sum())
