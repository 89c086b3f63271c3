"""A trained policy as a file and as a callable: NumPy only, complete with its normaliser."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.core.files import DAMAGE, Corrupt, one_line, read_arrays, write_arrays
from pspo.data.normalise import Normaliser
from pspo.policies.heads import ACTIVATIONS, KINDS, Net

FORMAT = "pspo-policy-2"
FILE_NAME = "policy.safetensors"
LARGEST = 1e6  # of a policy's numbers, such as the length of a latent: ours are far below


@dataclass(frozen=True)
class Policy:
    """`policy(obs)` gives the action for one observation or a batch, without noise; `sample` draws from the policy."""

    kind: str  # one of heads.KINDS
    nets: dict[str, Net]
    arrays: dict[str, np.ndarray]
    numbers: dict[str, float]
    norm: Normaliser
    metadata: dict[str, Any]  # where it comes from: algo, dataset, task, seed, preset, step

    @property
    def obs_dim(self) -> int:
        """How many numbers an observation has."""
        return self.norm.obs_mean.shape[0]

    @property
    def action_dim(self) -> int:
        """How many numbers an action has."""
        return self.norm.action_low.shape[0]

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The action for one observation, or for each of an array with any leading shape."""
        return self._act(obs, None)

    def sample(self, obs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A random action for each observation; the same as calling it, for a deterministic policy."""
        return self._act(obs, rng)

    def _act(self, obs: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
        obs = np.asarray(obs, dtype=np.float32)
        if obs.ndim == 0 or obs.shape[-1] != self.obs_dim:
            raise UserError(f"an observation has {self.obs_dim} numbers, not shape {obs.shape}.")
        unit = KINDS[self.kind](self.fields, self.norm.encode(obs), rng)
        return self.norm.from_unit(unit)

    @property
    def facts(self) -> dict[str, Any]:
        """The name that `metadata` had in version 0.1; it goes away in 0.3."""
        return self.metadata

    @property
    def fields(self) -> dict[str, Any]:
        """Networks, arrays and numbers together, by name."""
        return self.nets | self.arrays | self.numbers

    @property
    def parts(self) -> dict[str, Any]:
        """The name that `fields` had in version 0.1; it goes away in 0.3."""
        return self.fields

    def save(self, path: Path) -> None:
        """Write one checksummed safetensors file."""
        arrays = {f"array.{name}": array for name, array in self.arrays.items()}
        arrays |= {f"norm.{name}": np.asarray(a) for name, a in zip(self.norm._fields, self.norm, strict=True)}
        for name, net in self.nets.items():
            arrays |= {f"net.{name}.weights.{i}": w for i, w in enumerate(net.weights)}
            arrays |= {f"net.{name}.biases.{i}": b for i, b in enumerate(net.biases)}
        nets = {name: {"layers": len(net.weights), "activation": net.activation} for name, net in self.nets.items()}
        form = {"format": FORMAT, "kind": self.kind, "nets": nets, "numbers": self.numbers}
        write_arrays(path, arrays, form | self.metadata)

    @classmethod
    def load(cls, path: Path) -> Policy:
        """Read such a file; a damaged one, or one of another version, is refused."""
        try:
            arrays, metadata = read_arrays(path)
            if metadata.pop("format", None) != FORMAT:
                raise Corrupt(f"{path} is not a policy file of this version of pspo.")
            kind, nets, numbers = (metadata.pop(name) for name in ("kind", "nets", "numbers"))
            if kind not in KINDS or not all(net["activation"] in ACTIVATIONS for net in nets.values()):
                raise Corrupt(f"{path} holds a policy of an unknown kind.")
            loaded = cls(
                kind=kind,
                nets={name: _net(arrays, name, **form) for name, form in nets.items()},
                arrays={n.removeprefix("array."): a for n, a in arrays.items() if n.startswith("array.")},
                numbers=numbers,
                norm=Normaliser(*(arrays[f"norm.{name}"] for name in Normaliser._fields)),
                metadata=metadata,
            )
            _require_usable(loaded)
        except FileNotFoundError:
            raise UserError(f"there is no policy at {path}: train one, or give a run directory.") from None
        except (Corrupt, *DAMAGE, IndexError) as problem:
            reason = str(problem) if isinstance(problem, Corrupt) else f"{path} holds no policy ({one_line(problem)})."
            raise UserError(f"the policy file is damaged: {reason}") from None
        return loaded


def _require_usable(policy: Policy) -> None:
    """Its fields fit together and it can act. A checksum does not tell who wrote the file."""
    if not isinstance(policy.metadata.get("task"), str | None):
        raise TypeError("its task is not a name")
    if not all(isinstance(number, int | float) and abs(number) <= LARGEST for number in policy.numbers.values()):
        raise ValueError("one of its numbers is out of range")
    nets = [array for net in policy.nets.values() for array in (*net.weights, *net.biases)]
    if not all(np.isfinite(array).all() for array in (*nets, *policy.arrays.values(), *policy.norm)):
        raise ValueError("some of its numbers are not finite")
    with np.errstate(all="ignore"):
        action = policy(np.zeros(policy.obs_dim, np.float32))
    if action.shape != (policy.action_dim,):
        raise ValueError(f"it gives actions of shape {action.shape}")


def _net(arrays: dict[str, np.ndarray], name: str, layers: int, activation: str) -> Net:
    weights, biases = (tuple(arrays[f"net.{name}.{kind}.{i}"] for i in range(layers)) for kind in ("weights", "biases"))
    return Net(weights, biases, activation)


def load_policy(source: str | Path) -> Policy:
    """The policy of a run directory, or of a policy file."""
    path = Path(source)
    if path.suffix == ".onnx":
        raise UserError(
            f"{path} is an exported policy: load it by pspo.OnnxPolicy.load, or give the run it comes from."
        )
    return Policy.load(path / FILE_NAME if path.is_dir() else path)


def from_network(network: Any, norm: Normaliser, metadata: dict[str, Any]) -> Policy:
    """A policy from a trained network of nets/, whose fields are networks, arrays and numbers."""
    nets, arrays, numbers = {}, {}, {}
    for field in dataclasses.fields(network):
        value = getattr(network, field.name)
        if hasattr(value, "weights"):
            weights, biases = (tuple(map(np.asarray, layers)) for layers in (value.weights, value.biases))
            nets[field.name] = Net(weights, biases, value.activation)
        elif hasattr(value, "shape"):
            arrays[field.name] = np.asarray(value)
        else:
            numbers[field.name] = value
    return Policy(network.kind, nets, arrays, numbers, norm, metadata)


def to_network(policy: Policy) -> Any:
    """The policy as a JAX module, for simulators that run on the device."""
    import jax.numpy as jnp

    from pspo.nets.actors import NETWORKS
    from pspo.nets.mlp import MLP

    nets = {
        name: MLP([jnp.asarray(w) for w in net.weights], [jnp.asarray(b) for b in net.biases], net.activation)
        for name, net in policy.nets.items()
    }
    arrays = {name: jnp.asarray(array) for name, array in policy.arrays.items()}
    return NETWORKS[policy.kind](**nets, **arrays, **policy.numbers)
