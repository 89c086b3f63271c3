"""A trained policy as a file and as a callable: NumPy only, complete with its normaliser."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.core.files import DAMAGE, Corrupt, one_line, read_arrays, read_json, write_arrays
from pspo.data.discrete import Label
from pspo.data.encoder import Encoder, encoder_from_json
from pspo.data.normalise import Normaliser
from pspo.policies.heads import ACTIVATIONS, KINDS, Net, categorical_logits
from pspo.policies.labels import choose_label, probabilities, require_categorical, require_defined
from pspo.policies.named_observations import describe, plain_observations, raw_columns, require_names

FORMAT = "pspo-policy-2"
FILE_NAME = "policy.safetensors"
LARGEST = 1e6  # of a policy's numbers, such as the length of a latent: ours are far below


@dataclass(frozen=True, repr=False)
class Policy:
    """`policy(obs)` gives the action for one observation or a batch, without noise; `sample` draws from the policy.

    Observations are arrays with the columns in the order of the dataset, or have names, and then any order: a
    dictionary, a list of dictionaries, a data frame, an Arrow table.

    A policy with `action_labels` gives labels: one of them for one observation, an array of them for a batch.
    """

    kind: str  # one of heads.KINDS
    nets: dict[str, Net]
    arrays: dict[str, np.ndarray]
    numbers: dict[str, float]
    norm: Normaliser
    metadata: dict[str, Any]  # where it comes from: algo, dataset, task, seed, preset, step
    observation_names: tuple[str, ...] = ()  # of the columns, in their order; none where the dataset has no names
    action_names: tuple[str, ...] = ()
    encoder: Encoder | None = None  # raw observations to columns of the dataset, where they are not the same
    action_labels: tuple[Label, ...] = ()  # of discrete actions; none where actions are quantities

    def __repr__(self) -> str:
        """One line: what goes in, what comes out, where it comes from."""
        return describe("Policy", self)

    @property
    def obs_dim(self) -> int:
        """How many numbers an observation of the dataset has."""
        return self.norm.obs_mean.shape[0]

    @property
    def raw_dim(self) -> int:
        """How many values an observation has that the policy is called with."""
        return self.obs_dim if self.encoder is None else len(self.encoder.columns)

    @property
    def action_dim(self) -> int:
        """How many numbers an action has; how many labels, where it is discrete."""
        return self.norm.action_low.shape[0]

    @property
    def discrete(self) -> bool:
        """Whether actions are labels."""
        return bool(self.action_labels)

    @property
    def action_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest value of every action column."""
        if self.discrete:
            raise UserError("this policy has discrete actions, which have no bounds: see its action_labels.")
        return np.asarray(self.norm.action_low), np.asarray(self.norm.action_high)

    def __call__(self, obs: Any) -> Any:
        """The action for one observation, or for each of an array with any leading shape, table or list."""
        return self._act(obs, None)

    def sample(self, obs: Any, rng: np.random.Generator) -> Any:
        """A random action for each observation; the same as calling it, for a deterministic policy."""
        return self._act(obs, rng)

    def _act(self, obs: Any, rng: np.random.Generator | None) -> Any:
        if self.discrete:
            return choose_label(self.logits(obs), self.action_labels, rng)
        return self.act_encoded(self.encoded(obs), rng)

    def logits(self, obs: Any) -> np.ndarray:
        """(..., labels) of discrete actions, in the order of `action_labels`."""
        if not self.discrete:
            raise UserError("this policy has quantities as actions: only discrete actions have logits.")
        return require_defined(categorical_logits(self.fields, self.norm.encode(self.encoded(obs))))

    def probabilities(self, obs: Any) -> np.ndarray:
        """(..., labels) of discrete actions: zero where a label is not available."""
        return probabilities(self.logits(obs))

    def encoded(self, obs: Any) -> np.ndarray:
        """Raw observations as the dataset of its training has them, (..., obs_dim) float32."""
        if self.encoder is not None:
            return self.encoder.encode(raw_columns(obs, self.encoder))
        return plain_observations(obs, self.observation_names, self.obs_dim)

    def act_encoded(self, obs: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """The action for observations as the dataset has them; a discrete one as a one-hot vector."""
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
        norm = {f"norm.{name}": array for name, array in self.norm._asdict().items() if array is not None}
        arrays |= {name: np.asarray(array) for name, array in norm.items()}
        for name, net in self.nets.items():
            arrays |= {f"net.{name}.weights.{i}": w for i, w in enumerate(net.weights)}
            arrays |= {f"net.{name}.biases.{i}": b for i, b in enumerate(net.biases)}
        nets = {name: {"layers": len(net.weights), "activation": net.activation} for name, net in self.nets.items()}
        form = {"format": FORMAT, "kind": self.kind, "nets": nets, "numbers": self.numbers}
        form["names"] = {"obs": [*self.observation_names], "action": [*self.action_names]}
        form |= {} if self.encoder is None else {"encoder": self.encoder.as_json()}
        if self.discrete:
            form["action_labels"] = [*self.action_labels]
        write_arrays(path, arrays, form | self.metadata)

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read such a file; a damaged one, or one of another version, is refused."""
        path = Path(path)
        try:
            arrays, metadata = read_arrays(path)
            if metadata.pop("format", None) != FORMAT:
                raise Corrupt(f"{path} is not a policy file of this version of pspo.")
            kind, nets, numbers = (metadata.pop(name) for name in ("kind", "nets", "numbers"))
            names = metadata.pop("names", {})  # files of version 0.1 have none
            encoder = metadata.pop("encoder", None)
            if kind not in KINDS or not all(net["activation"] in ACTIVATIONS for net in nets.values()):
                raise Corrupt(f"{path} holds a policy of an unknown kind.")
            loaded = cls(
                kind=kind,
                nets={name: _net(arrays, name, **form) for name, form in nets.items()},
                arrays={n.removeprefix("array."): a for n, a in arrays.items() if n.startswith("array.")},
                numbers=numbers,
                norm=_norm(arrays),
                metadata=metadata,
                observation_names=tuple(names.get("obs", ())),
                action_names=tuple(names.get("action", ())),
                encoder=None if encoder is None else encoder_from_json(encoder),
                action_labels=tuple(metadata.pop("action_labels", ())),
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
    require_names("observation", policy.observation_names, policy.raw_dim)
    require_names("action", policy.action_names, 1 if policy.discrete else policy.action_dim)
    if policy.encoder is not None and (policy.encoder.raw_names, policy.encoder.width) != (
        policy.observation_names,
        policy.obs_dim,
    ):
        raise ValueError("its encoder has other columns than its network")
    if policy.discrete or policy.kind == "categorical":
        require_categorical(policy.kind, policy.action_labels, policy.arrays, policy.action_dim, policy.norm.features)
    nets = [array for net in policy.nets.values() for array in (*net.weights, *net.biases)]
    if not all(
        np.isfinite(array).all() for array in (*nets, *policy.arrays.values(), *policy.norm) if array is not None
    ):
        raise ValueError("some of its numbers are not finite")
    with np.errstate(all="ignore"):
        action = policy.act_encoded(np.zeros(policy.obs_dim, np.float32))
    if action.shape != (policy.action_dim,):
        raise ValueError(f"it gives actions of shape {action.shape}")


def _norm(arrays: dict[str, np.ndarray]) -> Normaliser:
    optional = Normaliser._field_defaults
    names = [name for name in Normaliser._fields if name not in optional or f"norm.{name}" in arrays]
    return Normaliser(**{name: arrays[f"norm.{name}"] for name in names})


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
    if not path.is_dir():
        return Policy.load(path)
    policy = Policy.load(path / FILE_NAME)
    return policy if policy.observation_names else _with_names_of_run(policy, path / "config.json")


def _with_names_of_run(policy: Policy, config: Path) -> Policy:
    """Version 0.1 kept the names in the run only."""
    content = read_json(config) if config.exists() else {}
    try:
        names = content.get("names") or {}
        named = {"observation_names": tuple(names.get("obs", ())), "action_names": tuple(names.get("action", ()))}
        require_names("observation", named["observation_names"], policy.obs_dim)
        require_names("action", named["action_names"], 1 if policy.discrete else policy.action_dim)
    except (AttributeError, TypeError, ValueError) as problem:
        raise UserError(f"the names of columns in {config} cannot be used ({problem}): restore it.") from None
    return dataclasses.replace(policy, **named)


def from_network(
    network: Any,
    norm: Normaliser,
    metadata: dict[str, Any],
    observation_names: Sequence[str] = (),
    action_names: Sequence[str] = (),
    encoder: Encoder | None = None,
) -> Policy:
    """A policy from a trained network of nets/, whose fields are networks, arrays and numbers.

    `observation_names` are those of the raw columns.
    """
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
    names = tuple(observation_names), tuple(action_names)
    return Policy(network.kind, nets, arrays, numbers, norm, metadata, *names, encoder)


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
