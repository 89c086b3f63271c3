"""Behaviour policies, in NumPy: they act while data are collected.

A policy file is an NPZ of plain arrays: hidden layers `w0, b0, w1, b1, ...` (x @ w + b), the head `mean_w, mean_b`,
and noise that depends on the state (`log_std_w, log_std_b`) or not (`log_std`). Optional are `obs_mean, obs_std`.
Two texts complete it: `activation` is relu or tanh; `squash` is tanh, or clip (to [-1, 1]).
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pspo.core.errors import UserError, unknown_name
from pspo.core.files import write_atomic
from pspo.data.readers.file_checks import require_file
from pspo.data.readers.npz import read_members

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
OBS_MAX = 10.0  # of a normalised observation

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh}
SQUASHES: dict[str, Callable[[Any], Any]] = {"tanh": np.tanh, "clip": lambda x: np.clip(x, -1, 1)}
TEXTS = {"activation": ACTIVATIONS, "squash": SQUASHES}


class Behaviour(Protocol):
    """Actions from observations and noise; the noise is drawn separately, so that each episode has its own stream."""

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """The noise of one step, (action_dim,)."""
        ...

    def sample(self, obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """(batch, obs_dim) and (batch, action_dim) to actions in [-1, 1]."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Every action is as likely as any other, whatever the state."""

    action_dim: int

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(-1, 1, self.action_dim).astype(np.float32)

    def sample(self, obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return noise


@dataclass(frozen=True)
class Gaussian:
    """A network with a Gaussian head (mean and standard deviation), squashed to [-1, 1]."""

    hidden: tuple[tuple[np.ndarray, np.ndarray], ...]
    mean: tuple[np.ndarray, np.ndarray]
    log_std: tuple[np.ndarray, np.ndarray] | np.ndarray
    activation: str
    squash: str
    obs_scale: tuple[np.ndarray, np.ndarray] | None = None  # mean and standard deviation

    @property
    def action_dim(self) -> int:
        return self.mean[1].size

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal(self.action_dim, np.float32)

    def mode(self, obs: np.ndarray) -> np.ndarray:
        """The action without noise, (batch, obs_dim) -> (batch, action_dim)."""
        mean, _ = self.moments(obs)
        return SQUASHES[self.squash](mean)

    def sample(self, obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        mean, log_std = self.moments(obs)
        return SQUASHES[self.squash](mean + np.exp(log_std) * noise)

    def moments(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and log standard deviation before the squash."""
        x = np.asarray(obs, np.float32)
        if self.obs_scale is not None:
            x = np.clip((x - self.obs_scale[0]) / self.obs_scale[1], -OBS_MAX, OBS_MAX)
        for layer in self.hidden:
            x = ACTIVATIONS[self.activation](_one_by_one(x, *layer))
        log_std = _one_by_one(x, *self.log_std) if isinstance(self.log_std, tuple) else self.log_std
        return _one_by_one(x, *self.mean), np.clip(log_std, LOG_STD_MIN, LOG_STD_MAX)

    def arrays(self) -> dict[str, Any]:
        """The members of a policy file."""
        members: dict[str, Any] = {"activation": self.activation, "squash": self.squash}
        for i, (w, b) in enumerate(self.hidden):
            members |= {f"w{i}": w, f"b{i}": b}
        members |= {"mean_w": self.mean[0], "mean_b": self.mean[1]}
        if isinstance(self.log_std, tuple):
            members |= {"log_std_w": self.log_std[0], "log_std_b": self.log_std[1]}
        else:
            members["log_std"] = self.log_std
        if self.obs_scale is not None:
            members |= {"obs_mean": self.obs_scale[0], "obs_std": self.obs_scale[1]}
        return members


def _one_by_one(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    """x @ w + b with one product per state: a product of whole batches rounds differently for each batch size,
    and an episode must not depend on how many others run in parallel."""
    return np.matmul(x[:, None, :], w)[:, 0] + b


def save_behaviour(policy: Gaussian, path: Path) -> None:
    """Write a policy file."""
    content = io.BytesIO()
    np.savez(content, **policy.arrays())
    write_atomic(path, content.getvalue())


def load_behaviour(path: Path, obs_dim: int, action_dim: int) -> tuple[Gaussian, str]:
    """The policy of a file and the file's SHA-256; a policy for other dimensions is refused."""
    try:
        require_file(path)
        content = path.read_bytes()
        arrays, _ = read_members(io.BytesIO(content), lambda name: True)
        policy = _from_arrays(arrays, obs_dim, action_dim)
    except UserError as problem:
        raise UserError(f"in the policy file '{path}', {problem}") from None
    return policy, hashlib.sha256(content).hexdigest()


def _from_arrays(arrays: dict[str, np.ndarray], obs_dim: int, action_dim: int) -> Gaussian:
    """A policy from the arrays of its file; every array must be known and have the right shape."""
    members = _Members(dict(arrays))
    texts = {name: members.text(name, known) for name, known in TEXTS.items()}
    scale = None
    if "obs_mean" in arrays or "obs_std" in arrays:
        scale = members.take("obs_mean", (obs_dim,)), members.take("obs_std", (obs_dim,))
        if not (scale[1] > 0).all():
            raise UserError("'obs_std' is not positive everywhere: give standard deviations.")
    hidden, width = [], obs_dim
    while f"w{len(hidden)}" in arrays:
        i = len(hidden)
        layer = members.layer(f"w{i}", f"b{i}", width, None)
        hidden.append(layer)
        width = layer[1].size
    mean = members.layer("mean_w", "mean_b", width, action_dim)
    log_std = members.take("log_std", (action_dim,)) if "log_std" in arrays else None
    if log_std is None:
        log_std = members.layer("log_std_w", "log_std_b", width, action_dim)
    members.require_empty()
    return Gaussian(tuple(hidden), mean, log_std, texts["activation"], texts["squash"], scale)


class _Members:
    """The arrays of a file that have not been used yet."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays

    def text(self, name: str, known: dict[str, Any]) -> str:
        value = self._pop(name, f"give one of the texts {', '.join(sorted(known))}")
        if value.dtype.kind != "U" or value.size != 1:
            raise UserError(f"'{name}' is not a text: give one of {', '.join(sorted(known))}.")
        if value.item() not in known:
            raise unknown_name(name, value.item(), known)
        return value.item()

    def layer(self, weight: str, bias: str, fan_in: int, fan_out: int | None) -> tuple[np.ndarray, np.ndarray]:
        w = self.take(weight, (fan_in, fan_out))
        return w, self.take(bias, (w.shape[1],))

    def take(self, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
        """Finite numbers of that shape; None stands for any length."""
        wanted = f"({', '.join('any' if n is None else str(n) for n in shape)})"
        value = self._pop(name, f"give it the shape {wanted}")
        if value.dtype.kind not in "fiu":
            raise UserError(f"'{name}' holds values of type {value.dtype}: give real numbers.")
        fits = value.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, value.shape, strict=True))
        if not fits or value.size == 0:
            raise UserError(f"'{name}' has shape {value.shape}, but the task and the layers before it need {wanted}.")
        if not np.isfinite(value).all():
            raise UserError(f"'{name}' holds values that are not finite: train or export the policy again.")
        return np.ascontiguousarray(value, np.float32)

    def _pop(self, name: str, otherwise: str) -> np.ndarray:
        if name not in self.arrays:
            raise UserError(f"the array '{name}' is missing: {otherwise}.")
        return self.arrays.pop(name)

    def require_empty(self) -> None:
        """Refuse unknown arrays: an optional one under a wrong name would silently change the policy."""
        if self.arrays:
            raise UserError(f"the array '{min(self.arrays)}' has no meaning here: remove or rename it.")
