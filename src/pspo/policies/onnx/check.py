"""The check before every export: the graph in onnxruntime, the JAX network and the NumPy policy give the same actions.

They are compared on states from the whole range of the dataset. Where the action depends on the last bits of the
weights (two mixture components have equal weight, or the action changes within a rounding error), two programs may
differ by more: such states are counted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.data.encoder import Encoder
from pspo.data.normalise import Normaliser
from pspo.policies.policy import Policy, to_network

TOLERANCE = 1e-5  # of the width between an action's bounds
STATES = 1000  # of each kind
UNSEEN_TEXT = "a text that no dataset has"
SINGLES = 20  # of them are also passed one at a time
FAR = 1e6  # standard deviations, or widths of the data's range: actions must still be finite and within bounds
ROUNDING = 2.0**-22  # a few times float32's, because layers accumulate it
ROUNDINGS = 16  # a tie broken at random goes unnoticed once in 65,000 times
MOST_EXCUSED = 0.1  # of the states; above that, the policy is not well defined

Exported = Callable[[np.ndarray], np.ndarray]
"""Maps one observation, or a batch, to actions."""


def check(policy: Policy, exported: Exported) -> dict[str, Any]:
    """Largest differences relative to the action's range; raises UserError if one exceeds the tolerance."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of categories that are unseen, which are among the states
        return _check(policy, exported)


def _check(policy: Policy, exported: Exported) -> dict[str, Any]:
    obs = raw_states(policy)
    by_jax, by_numpy = _by_jax(policy, policy.encoded(obs)), policy(obs)
    if not (np.isfinite(by_jax).all() and np.isfinite(by_numpy).all()):
        raise UserError("this policy gives actions that are not finite, and cannot be exported: train it again.")
    actions, few = exported(obs), slice(None, None, len(obs) // SINGLES)
    one_by_one = np.stack([exported(one) for one in obs[few]])
    compared = {
        "jax": _compare(policy, obs, actions, by_jax),
        "numpy": _compare(policy, obs, actions, by_numpy),
        "one state at a time": _compare(policy, obs[few], one_by_one, by_numpy[few]),
    }
    for what, (difference, _) in compared.items():
        if not difference <= TOLERANCE:
            raise UserError(
                f"the exported graph differs from the policy by {difference:.1e} of the action's range ({what}), and "
                f"{TOLERANCE:.0e} is allowed: nothing was written; please report this policy."
            )
    _require_sane_far_away(policy, exported)
    return {
        "tolerance": TOLERANCE,
        "of": "the width between an action's bounds",
        "states": len(obs),
        "decided_by_rounding": max(count for _, count in compared.values()),
        "largest_difference": {what: difference for what, (difference, _) in compared.items()},
    }


def _compare(policy: Policy, obs: np.ndarray, actions: np.ndarray, expected: np.ndarray) -> tuple[float, int]:
    """The largest difference, and the number of states excluded because rounding explains a larger one."""
    difference = (np.abs(actions - expected) / _width(policy)).max(axis=-1)
    differs = difference > TOLERANCE
    excused = np.zeros(len(obs), bool)
    excused[differs] = _moved_by_rounding(policy, obs[differs]) > 0.5 * TOLERANCE
    if excused.mean() > MOST_EXCUSED:
        raise UserError(
            f"this policy's actions depend on the rounding of its weights in {excused.mean():.0%} of all states, and "
            "no export of it can be checked: train it again."
        )
    return float(difference[~excused].max()), int(excused.sum())


def _width(policy: Policy) -> np.ndarray:
    return policy.norm.action_high - policy.norm.action_low


def states(norm: Normaliser) -> np.ndarray:
    """Around the dataset's mean, within its range, on its grids, and at the corners of its range."""
    rng, shape = np.random.default_rng(0), (STATES, norm.obs_mean.shape[0])
    near = norm.obs_mean + 2.0 * norm.obs_std * rng.standard_normal(shape)
    inside = rng.uniform(norm.obs_low, norm.obs_high, shape).astype(np.float32)
    corners = np.where(rng.random(shape) < 0.5, norm.obs_low, norm.obs_high)
    return np.concatenate([near, inside, norm.snap(inside), corners]).astype(np.float32)


def raw_states(policy: Policy) -> np.ndarray:
    """The same in raw values, with categories that are unseen and values that are missing among them."""
    near = states(policy.norm)
    return near if policy.encoder is None else _raw(policy.encoder, near, np.random.default_rng(3))


def _raw(encoder: Encoder, near: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(states, raw columns): of the columns of the dataset, back to raw values; what they do not tell is random."""
    columns, start = [], 0
    for column in encoder.columns:
        values: np.ndarray = near[:, start].astype(np.float64) + column.offset
        if column.cyclic:
            values = rng.uniform(0.0, 2e9, len(near))
        if column.categories:
            texts = np.array([*column.categories, UNSEEN_TEXT], dtype=object)
            values = texts[rng.integers(0, len(texts), len(near))]
        elif column.fill is not None:
            values = np.where(rng.random(len(near)) < 0.2, np.nan, values)
        columns.append(values)
        start += column.width
    return np.stack(columns, axis=-1)


def _by_jax(policy: Policy, obs: np.ndarray) -> np.ndarray:
    import jax

    from pspo.nets.actors import act

    with jax.default_matmul_precision("highest"):  # an accelerator's default may be less than float32
        return np.asarray(jax.jit(lambda network, obs: act(network, policy.norm, obs))(to_network(policy), obs))


def _moved_by_rounding(policy: Policy, obs: np.ndarray) -> np.ndarray:
    """(states,): how far actions move, in double precision, when weights change by about a float32 rounding error."""
    rng, exact = np.random.default_rng(1), _in_doubles(policy, None)(obs)
    moved = [np.abs(_in_doubles(policy, rng)(obs) - exact) for _ in range(ROUNDINGS)]
    return (np.max(moved, axis=0) / _width(policy)).max(axis=-1)


def _in_doubles(policy: Policy, rng: np.random.Generator | None) -> Policy:
    def double(array: np.ndarray) -> np.ndarray:
        array = np.asarray(array, np.float64)
        return array if rng is None else array * (1.0 + ROUNDING * rng.standard_normal(array.shape))

    nets = {
        name: replace(net, weights=tuple(map(double, net.weights)), biases=tuple(map(double, net.biases)))
        for name, net in policy.nets.items()
    }
    return replace(policy, nets=nets)


def _require_sane_far_away(policy: Policy, exported: Exported) -> None:
    """Far outside the dataset actions stay within bounds, and a NaN is not hidden."""
    norm, sign = policy.norm, np.random.default_rng(2).choice([-1.0, 1.0], (STATES, policy.obs_dim))
    away = norm.obs_mean + sign * FAR * np.maximum(norm.obs_std, norm.obs_high - norm.obs_low)
    far = exported(away if policy.encoder is None else _raw(policy.encoder, away, np.random.default_rng(4)))
    if not ((far >= norm.action_low) & (far <= norm.action_high)).all():
        raise UserError("the exported graph leaves the action's bounds far from the data: please report this policy.")
    if not np.isnan(exported(_with_a_nan(policy))).all():
        raise UserError("the exported graph hides a NaN in its input: please report this policy.")


def _with_a_nan(policy: Policy) -> np.ndarray:
    """States with a NaN in one column each, of those columns in which it is not a missing value to be filled."""
    if policy.encoder is None:
        return np.where(np.eye(policy.obs_dim, dtype=bool), np.nan, policy.norm.obs_mean)
    usual = raw_states(policy)[:1].repeat(policy.raw_dim, axis=0)
    undefined = [i for i, c in enumerate(policy.encoder.columns) if not c.categories and c.fill is None]
    usual[undefined, undefined] = np.nan
    return usual[undefined]
