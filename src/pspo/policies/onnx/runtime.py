"""An exported policy as a callable: onnxruntime and NumPy only, no training code, no JAX, no simulator."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.core.files import parse_json
from pspo.data.discrete import label_array, require_labels
from pspo.data.encoder import encoder_from_json
from pspo.policies.labels import require_defined
from pspo.policies.named_observations import describe, plain_observations, raw_columns, require_names
from pspo.policies.onnx.external_data import refers_to_files

FORMAT, FORMAT_WITH_ENCODER = "pspo-onnx-1", "pspo-onnx-2"
INPUT, OUTPUT = "observation", "action"


class OnnxPolicy:
    """`policy(obs)` gives the action for one observation or a batch, without noise, as `Policy` does."""

    def __init__(self, model: bytes, contract: dict[str, Any], name: str = "the policy") -> None:
        """From the content of both files; `name` is what error messages call the policy."""
        try:
            if contract["format"] not in (FORMAT, FORMAT_WITH_ENCODER):
                raise UserError(f"the contract of {name} is not one of this version of pspo: export the policy again.")
            self.raw_dim = int(contract["input"]["shape"][1])
            self.action_labels = require_labels(labels) if (labels := contract["output"].get("labels")) else ()
            self.action_dim = len(self.action_labels) or int(contract["output"]["shape"][1])
            encoder = contract["input"].get("encoder")
            self.encoder = None if encoder is None else encoder_from_json(encoder)
            self.obs_dim = self.raw_dim if self.encoder is None else self.encoder.width
            bounds = (contract["output"][b] for b in ("low", "high")) if not self.action_labels else ((), ())
            self.action_low, self.action_high = (np.array(bound, np.float32) for bound in bounds)
            self.observation_names = _names([column.get("name") for column in contract["input"]["columns"]])
            self.action_names = _names(contract["output"].get("names", ()))
            require_names("observation", self.observation_names, self.raw_dim)
            require_names("action", self.action_names, 1 if self.action_labels else self.action_dim)
            self.metadata: dict[str, Any] = dict(contract["origin"])
            sha256 = contract["model"]["sha256"]
        except (KeyError, IndexError, TypeError, ValueError, OverflowError, AttributeError) as problem:
            raise UserError(f"the contract of {name} is incomplete ({problem!r}): export the policy again.") from None
        if hashlib.sha256(model).hexdigest() != sha256:
            raise UserError(f"{name} is not the file that its contract describes: copy both files, or export again.")
        self.contract = contract
        self.session = _session(model, name)
        self._require_shapes(name)

    @classmethod
    def load(cls, path: str | Path) -> OnnxPolicy:
        """From an .onnx file with its contract beside it."""
        path = Path(path)
        try:
            model = path.read_bytes()
        except FileNotFoundError:
            raise UserError(f"there is no file {path}: make one with `pspo export RUN {path}`.") from None
        except OSError as problem:
            raise UserError(f"{path} cannot be read ({problem.strerror}).") from None
        return cls(model, _read_contract(path), str(path))

    def __repr__(self) -> str:
        """One line: what goes in, what comes out, where it comes from."""
        return describe("OnnxPolicy", self)

    @property
    def action_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest value of every action column."""
        if self.action_labels:
            raise UserError("this policy has discrete actions, which have no bounds: see its action_labels.")
        return self.action_low, self.action_high

    def __call__(self, obs: Any) -> Any:
        """The action for one observation, or for each of an array with any leading shape, table or list, by name."""
        feed, shape = self.feed(obs)
        if self.action_labels:
            index, logits = self.session.run((OUTPUT, "logits"), feed)
            require_defined(logits.reshape(*shape, self.action_dim))
            return label_array(self.action_labels)[index].reshape(shape)[()]
        return self.session.run((OUTPUT,), feed)[0].reshape(*shape, self.action_dim)

    def feed(self, obs: Any) -> tuple[dict[str, np.ndarray], tuple[int, ...]]:
        """What the graph takes for these observations, by input; and the shape of the batch."""
        if self.encoder is None:
            obs = plain_observations(obs, self.observation_names, self.raw_dim)
            return {INPUT: obs.reshape(-1, self.raw_dim)}, obs.shape[:-1]
        columns = raw_columns(obs, self.encoder)
        if self.encoder.takes_texts:
            feed = {n: c.reshape(-1, 1) for n, c in zip(self.encoder.raw_names, columns, strict=True)}
        else:
            feed = {INPUT: np.stack(columns, axis=-1).reshape(-1, self.raw_dim)}
        return feed, columns[0].shape

    def logits(self, obs: Any) -> np.ndarray:
        """(..., labels) of discrete actions, in the order of `action_labels`."""
        return require_defined(self._of_labels(obs, "logits"))

    def probabilities(self, obs: Any) -> np.ndarray:
        """(..., labels) of discrete actions: zero where a label is not available."""
        self.logits(obs)
        return self._of_labels(obs, "probabilities")

    def outputs(self, obs: Any) -> dict[str, np.ndarray]:
        """All outputs of the graph by name, for a batch of observations."""
        names = [output.name for output in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, self.feed(obs)[0]), strict=True))

    def _of_labels(self, obs: Any, name: str) -> np.ndarray:
        if not self.action_labels:
            raise UserError(f"this policy has quantities as actions: only discrete actions have {name}.")
        feed, shape = self.feed(obs)
        return self.session.run((name,), feed)[0].reshape(*shape, self.action_dim)

    @property
    def facts(self) -> dict[str, Any]:
        """The name that `metadata` had in version 0.1; it goes away in 0.3."""
        return self.metadata

    def _inputs(self) -> list[tuple[str, str, list[int]]]:
        if self.encoder is None:
            return [(INPUT, "tensor(float)", [self.raw_dim])]
        if not self.encoder.takes_texts:
            return [(INPUT, "tensor(double)", [self.raw_dim])]
        return [(c.name, f"tensor({'string' if c.categories else 'double'})", [1]) for c in self.encoder.columns]

    def _require_shapes(self, name: str) -> None:
        """A graph whose inputs and outputs differ from the contract is not the one it describes."""
        ends = [(end.name, end.type, end.shape[1:]) for end in self.session.get_inputs() + self.session.get_outputs()]
        wanted = self._inputs()
        if self.action_labels:
            wanted.append((OUTPUT, "tensor(int64)", []))
            wanted += [(name, "tensor(float)", [self.action_dim]) for name in ("logits", "probabilities")]
        else:
            wanted.append((OUTPUT, "tensor(float)", [self.action_dim]))
        bounds = (self.action_low.shape, self.action_high.shape)
        length = (0,) if self.action_labels else (self.action_dim,)
        if ends != wanted or bounds != (length, length):
            raise UserError(f"the inputs and outputs of {name} are not those of its contract: export the policy again.")


def _names(names: Any) -> tuple[Any, ...]:
    """Of all columns or of none."""
    return () if all(name is None for name in names) else tuple(names)


def contract_path(path: Path) -> Path:
    return path.with_suffix(".json")


def _read_contract(path: Path) -> dict[str, Any]:
    beside = contract_path(path)
    try:
        contract = parse_json(beside.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path} has no contract: put {beside.name} beside it, or export the policy again.") from None
    except (OSError, ValueError) as problem:
        raise UserError(f"{beside} cannot be read ({problem}): export the policy again.") from None
    if not isinstance(contract, dict):
        raise UserError(f"{beside} is not the contract of an exported policy: export the policy again.")
    return contract


def _refers_to_files(model: bytes, name: str) -> bool:
    try:
        return refers_to_files(model)
    except ValueError as problem:
        raise UserError(f"{name} cannot be loaded by onnxruntime ({problem}): export the policy again.") from None


def _session(model: bytes, name: str) -> Any:
    """One thread and no spinning: for a single state, handing work to other threads takes longer than the work."""
    try:
        import onnxruntime
    except ImportError:
        raise UserError(f"{name} needs onnxruntime: pip install onnxruntime.") from None
    if _refers_to_files(model, name):  # to any file of this machine
        raise UserError(f"{name} refers to data outside of itself, which an exported policy never does: it is refused.")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.load_model_format", "ONNX")  # ORT's own format can refer to files too
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4  # problems are raised as exceptions
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # onnxruntime's exceptions share no other base class
        reason = " ".join(str(problem).split())[:200]
        raise UserError(f"{name} cannot be loaded by onnxruntime ({reason}): export the policy again.") from None
