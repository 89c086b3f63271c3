"""A trained policy as a file and as a callable: NumPy only, complete with its normaliser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pspo.data.normalise import Normaliser, squash
from pspo.errors import UserError
from pspo.files import Corrupt, read_arrays, write_arrays

FORMAT = "pspo-policy-1"
FILE_NAME = "policy.safetensors"


@dataclass(frozen=True)
class Policy:
    """`policy(obs)` gives the action for one observation or a batch, by the mode; `sample` draws from the policy."""

    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    norm: Normaliser
    components: int
    facts: dict[str, Any]  # where it comes from: algo, dataset, task, seed, preset, step

    @property
    def obs_dim(self) -> int:
        return self.norm.obs_mean.shape[0]

    @property
    def action_dim(self) -> int:
        return self.norm.action_low.shape[0]

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        log_weight, mean, _ = self._mixture(self._checked(obs))
        heaviest = np.argmax(log_weight, axis=-1)[..., None, None]
        x = np.take_along_axis(mean, heaviest, axis=-2)[..., 0, :]
        return self.norm.from_unit(squash(x))

    def sample(self, obs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A random action of the stochastic policy for each observation."""
        logits, mean, log_std = self._mixture(self._checked(obs))
        which = np.argmax(logits + rng.gumbel(size=logits.shape), axis=-1)[..., None, None]
        mean, log_std = (np.take_along_axis(part, which, axis=-2)[..., 0, :] for part in (mean, log_std))
        x = mean + np.exp(log_std) * rng.standard_normal(mean.shape)
        return self.norm.from_unit(squash(x.astype(np.float32)))

    def _checked(self, obs: np.ndarray) -> np.ndarray:
        obs = np.asarray(obs, dtype=np.float32)
        if obs.ndim == 0 or obs.shape[-1] != self.obs_dim:
            raise UserError(f"an observation has {self.obs_dim} numbers, not shape {obs.shape}.")
        return obs

    def _mixture(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same network as nets.policies.MixturePolicy, in NumPy; a test holds the two together."""
        from pspo.nets.mixture_bounds import LOG_STD_MAX, LOG_STD_MIN, MEAN_MAX

        k, d = self.components, self.action_dim
        h = self.norm.encode(obs)
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            h = h @ w + b
            h = h / (1.0 + np.exp(np.clip(-h, -80.0, 80.0)))  # SiLU; the clip keeps exp from overflowing
        out = h @ self.weights[-1] + self.biases[-1]
        shape = (*out.shape[:-1], k, d)
        span = 0.5 * (LOG_STD_MAX - LOG_STD_MIN)
        mean = MEAN_MAX * np.tanh(out[..., k : k + k * d].reshape(shape) / MEAN_MAX)
        log_std = LOG_STD_MIN + span * (1.0 + np.tanh(out[..., k + k * d :].reshape(shape) / span))
        return out[..., :k], mean, log_std

    def save(self, path: Path) -> None:
        arrays = {f"weights.{i}": w for i, w in enumerate(self.weights)}
        arrays |= {f"biases.{i}": b for i, b in enumerate(self.biases)}
        arrays |= {f"norm.{name}": np.asarray(a) for name, a in zip(self.norm._fields, self.norm, strict=True)}
        write_arrays(path, arrays, {"format": FORMAT, "components": self.components, **self.facts})

    @classmethod
    def load(cls, path: Path) -> Policy:
        try:
            arrays, facts = read_arrays(path)
            if facts.pop("format", None) != FORMAT:
                raise Corrupt(f"{path} is not a policy file.")
            layers = sum(name.startswith("weights.") for name in arrays)
            return cls(
                weights=tuple(arrays[f"weights.{i}"] for i in range(layers)),
                biases=tuple(arrays[f"biases.{i}"] for i in range(layers)),
                norm=Normaliser(*(arrays[f"norm.{name}"] for name in Normaliser._fields)),
                components=facts.pop("components"),
                facts=facts,
            )
        except FileNotFoundError:
            raise UserError(f"there is no policy at {path}: train one, or give a run directory.") from None
        except (Corrupt, KeyError) as problem:
            raise UserError(f"the policy file is damaged: {problem}") from None


def load_policy(place: str | Path) -> Policy:
    """The policy of a run directory, or of a policy file."""
    path = Path(place)
    return Policy.load(path / FILE_NAME if path.is_dir() else path)


def from_network(network: Any, norm: Normaliser, facts: dict[str, Any]) -> Policy:
    """A policy from a trained nets.policies.MixturePolicy."""
    weights = tuple(np.asarray(w) for w in network.net.weights)
    biases = tuple(np.asarray(b) for b in network.net.biases)
    return Policy(weights, biases, norm, network.components, facts)


def to_network(policy: Policy) -> Any:
    """The policy as a JAX module, for simulators that run on the device."""
    import jax.numpy as jnp

    from pspo.nets.mlp import MLP
    from pspo.nets.policies import MixturePolicy

    net = MLP([jnp.asarray(w) for w in policy.weights], [jnp.asarray(b) for b in policy.biases], "silu")
    return MixturePolicy(net, policy.components, policy.action_dim)
