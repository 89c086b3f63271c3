"""Categorical policies: a probability for each label of a discrete action. Actions are one-hot vectors.

A mask makes labels unavailable: their logits become so low that their probability is zero, in every state where one of
their rules is broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from pspo.nets.bounds import MASKED
from pspo.nets.mlp import MLP, mlp


class Categorical(NamedTuple):
    """A batch of distributions over labels."""

    log_p: Array  # (..., labels)

    @property
    def p(self) -> Array:
        return jnp.exp(self.log_p)

    def log_prob(self, action: Array) -> Array:
        """Log probability of one-hot actions (..., labels)."""
        return (self.log_p * action).sum(-1)

    def mean(self, values: Array) -> Array:
        """Expectation of values (..., labels): an exact sum, also where unavailable labels have any value."""
        return (self.p * values).sum(-1)

    def entropy(self) -> Array:
        return -self.mean(self.log_p)

    def kl(self, other: Categorical) -> Array:
        """KL(self || other)."""
        return self.mean(self.log_p - other.log_p)


class CategoricalPolicy(eqx.Module):
    kind: ClassVar[str] = "categorical"
    net: MLP  # features to logits
    mask: Array  # (rules, 4): label, feature, and the lowest and highest value of it at which the label is available

    @property
    def action_dim(self) -> int:
        """Labels: the length of a one-hot vector."""
        return self.net.biases[-1].shape[-1]

    def logits(self, features: Array) -> Array:
        return jnp.where(self.available(features), self.net(features), MASKED)

    def available(self, features: Array) -> Array:
        """(..., labels) bool."""
        rules = jax.lax.stop_gradient(self.mask)
        label, feature = rules[:, 0].astype(int), rules[:, 1].astype(int)
        values = features[..., feature]
        broken = (values < rules[:, 2]) | (values > rules[:, 3])
        return ~jnp.zeros((*features.shape[:-1], self.action_dim), bool).at[..., label].max(broken)

    def __call__(self, features: Array) -> Categorical:
        return Categorical(jax.nn.log_softmax(self.logits(features)))

    def log_prob(self, features: Array, action: Array) -> Array:
        return self(features).log_prob(action)

    def unit_action(self, features: Array, key: Array | None = None) -> Array:
        """A one-hot action: the most probable label, or with a key a random one."""
        logits = self.logits(features)
        label = jnp.argmax(logits, -1) if key is None else jax.random.categorical(key, logits)
        return jax.nn.one_hot(label, self.action_dim, dtype=logits.dtype)


def categorical_policy(
    key: Array, features: int, labels: int, mask: Any, width: int, depth: int, **shape: Any
) -> CategoricalPolicy:
    """A new policy; it starts near the uniform one unless `shape` (see `mlp`) says otherwise."""
    shape = {"last_scale": 0.1} | shape
    net = mlp(key, [features] + [width] * depth + [labels], **shape)
    return CategoricalPolicy(net, jnp.asarray(mask))


def feature_mask(rules: Sequence[tuple[int, int, float, float]], mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Rules over raw observations as rules over features, which begin with the standardised observation.

    Features are rounded: bounds are moved outwards by what that may change.
    """
    rows = np.array([tuple(rule) for rule in rules], np.float64).reshape(-1, 4)
    column = rows[:, 1].astype(int)
    for bound, outwards in ((2, -1.0), (3, 1.0)):
        raw = rows[:, bound]
        slack = ROUNDING * (np.abs(raw) + np.abs(mean[column])) / std[column]
        moved = (raw - mean[column]) / std[column] + outwards * slack
        rows[:, bound] = np.where(np.abs(raw) >= LARGEST, raw, moved)
    return np.clip(rows, -LARGEST, LARGEST).astype(np.float32)


ROUNDING = 2.0**-22  # a few times float32's
LARGEST = float(np.finfo(np.float32).max)  # stands for no bound
