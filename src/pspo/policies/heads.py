"""How each kind of policy turns features into an action in [-1, 1]: NumPy only, matching the networks in nets/.

A head takes the policy's fields and a random generator; without one it gives the action that a deployed policy takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pspo.data.normalise import squash
from pspo.nets.bounds import (
    FREE_LOG_STD_MAX,
    FREE_LOG_STD_MIN,
    LATENT_MAX,
    LOG_STD_MAX,
    LOG_STD_MIN,
    MASKED,
    MEAN_MAX,
)

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "silu": lambda h: h / (1.0 + np.exp(np.clip(-h, -80.0, 80.0))),  # the clip keeps exp from overflowing
    "relu": lambda h: np.maximum(h, 0.0),
    "tanh": np.tanh,
}


@dataclass(frozen=True)
class Net:
    """A multi-layer perceptron."""

    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    activation: str

    def __call__(self, x: np.ndarray) -> np.ndarray:
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = ACTIVATIONS[self.activation](x @ w + b)
        return x @ self.weights[-1] + self.biases[-1]


Fields = Mapping[str, Any]
"""Networks, arrays and numbers of a policy, by the field names of its network."""

Noise = np.random.Generator | None


def mixture_moments(fields: Fields, features: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unnormalised log weights (..., K), means and log standard deviations (..., K, action_dim)."""
    k, d = fields["components"], fields["action_dim"]
    out = fields["net"](features)
    shape = (*out.shape[:-1], k, d)
    span = 0.5 * (LOG_STD_MAX - LOG_STD_MIN)
    mean = MEAN_MAX * np.tanh(out[..., k : k + k * d].reshape(shape) / MEAN_MAX)
    log_std = LOG_STD_MIN + span * (1.0 + np.tanh(out[..., k + k * d :].reshape(shape) / span))
    return out[..., :k], mean, log_std


def mixture(fields: Fields, features: np.ndarray, rng: Noise) -> np.ndarray:
    """A Gaussian mixture before the squash; without noise the mean of the heaviest component."""
    logits, mean, log_std = mixture_moments(fields, features)
    drawn = logits if rng is None else logits + rng.gumbel(size=logits.shape)
    which = np.argmax(drawn, axis=-1)[..., None, None]
    mean, log_std = (np.take_along_axis(part, which, axis=-2)[..., 0, :] for part in (mean, log_std))
    return squash(mean if rng is None else _noisy(mean, log_std, rng))


def tanh_gaussian(fields: Fields, features: np.ndarray, rng: Noise) -> np.ndarray:
    """A Gaussian before the tanh, its standard deviation depending on the state."""
    mean, log_std = np.split(fields["net"](features), 2, axis=-1)
    low, high = fields["log_std_min"], fields["log_std_max"]
    if fields.get("soft"):  # older files do not have it
        log_std = high - np.logaddexp(0.0, high - log_std)
        log_std = low + np.logaddexp(0.0, log_std - low)
    else:
        log_std = np.clip(log_std, low, high)
    return np.tanh(mean if rng is None else _noisy(mean, log_std, rng))


def clipped_gaussian(fields: Fields, features: np.ndarray, rng: Noise) -> np.ndarray:
    """A Gaussian around a squashed mean, with one standard deviation for all states; clipped to the bounds."""
    mean = np.tanh(fields["net"](features))
    log_std = np.clip(fields["log_std"], FREE_LOG_STD_MIN, FREE_LOG_STD_MAX)
    return mean if rng is None else np.clip(_noisy(mean, log_std, rng), -1.0, 1.0)


def linear_gaussian(fields: Fields, features: np.ndarray, rng: Noise) -> np.ndarray:
    """A Gaussian around the network's output, with one standard deviation for all states; clipped to the bounds."""
    mean = fields["net"](features)
    return np.clip(mean if rng is None else _noisy(mean, fields["log_std"], rng), -1.0, 1.0)


def deterministic(fields: Fields, features: np.ndarray, rng: Noise) -> np.ndarray:
    """One action per state, with or without a generator."""
    return np.tanh(fields["net"](features))


def perturbed(fields: Fields, features: np.ndarray, rng: Noise) -> np.ndarray:
    """An imitated action, decoded from a latent, moved by at most `reach`; without noise the latent is zero."""
    shape = (*features.shape[:-1], fields["latent_dim"])
    z = np.zeros(shape, np.float32) if rng is None else np.clip(rng.standard_normal(shape), -LATENT_MAX, LATENT_MAX)
    imitated = np.tanh(fields["decoder"](np.concatenate([features, z.astype(np.float32)], axis=-1)))
    moved = np.tanh(fields["net"](np.concatenate([features, imitated], axis=-1)))
    return np.clip(imitated + fields["reach"] * moved, -1.0, 1.0)


def categorical_logits(fields: Fields, features: np.ndarray) -> np.ndarray:
    """(..., labels): MASKED where a label is not available."""
    logits = fields["net"](features)
    for label, feature, low, high in fields["mask"]:
        values = features[..., int(feature)]
        broken = (values < low) | (values > high)
        logits[..., int(label)] = np.where(broken, MASKED, logits[..., int(label)])
    return logits


def categorical(fields: Fields, features: np.ndarray, rng: Noise) -> np.ndarray:
    """One-hot: the most probable label, or a random one."""
    logits = categorical_logits(fields, features)
    drawn = logits if rng is None else logits + rng.gumbel(size=logits.shape)
    return np.eye(logits.shape[-1], dtype=np.float32)[np.argmax(drawn, axis=-1)]


def _noisy(mean: np.ndarray, log_std: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (mean + np.exp(log_std) * rng.standard_normal(mean.shape)).astype(np.float32)


KINDS: dict[str, Callable[[Fields, np.ndarray, Noise], np.ndarray]] = {
    "mixture": mixture,
    "tanh-gaussian": tanh_gaussian,
    "clipped-gaussian": clipped_gaussian,
    "linear-gaussian": linear_gaussian,
    "deterministic": deterministic,
    "perturbed": perturbed,
    "categorical": categorical,
}
