"""An exported policy as a callable: onnxruntime and NumPy only, no training code, no JAX, no simulator."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.core.files import parse_json

FORMAT = "pspo-onnx-1"
INPUT, OUTPUT = "observation", "action"
EXTERNAL = b"location"  # the key under which a tensor names the file that its numbers are in


class OnnxPolicy:
    """`policy(obs)` gives the action for one observation or a batch, without noise, as `Policy` does."""

    def __init__(self, model: bytes, contract: dict[str, Any], name: str = "the policy") -> None:
        """From the content of both files; `name` is what error messages call the policy."""
        try:
            if contract["format"] != FORMAT:
                raise UserError(f"the contract of {name} is not one of this version of pspo: export the policy again.")
            self.obs_dim, self.action_dim = int(contract["input"]["shape"][1]), int(contract["output"]["shape"][1])
            self.action_low, self.action_high = (np.array(contract["output"][b], np.float32) for b in ("low", "high"))
            self.metadata: dict[str, Any] = dict(contract["origin"])
            sha256 = contract["model"]["sha256"]
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as problem:
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

    def __call__(self, obs: Any) -> np.ndarray:
        """The action for one observation, or for each of an array with any leading shape."""
        obs = np.asarray(obs, dtype=np.float32)
        if obs.ndim == 0 or obs.shape[-1] != self.obs_dim:
            raise UserError(f"an observation has {self.obs_dim} numbers, not shape {obs.shape}.")
        batch = obs.reshape(-1, self.obs_dim)
        action = self.session.run((OUTPUT,), {INPUT: batch})[0]
        return action.reshape(*obs.shape[:-1], self.action_dim)

    @property
    def facts(self) -> dict[str, Any]:
        """The name that `metadata` had in version 0.1; it goes away in 0.3."""
        return self.metadata

    def _require_shapes(self, name: str) -> None:
        """A graph whose inputs and outputs differ from the contract is not the one it describes."""
        ends = [(end.name, end.type, end.shape[1:]) for end in self.session.get_inputs() + self.session.get_outputs()]
        wanted = [(INPUT, "tensor(float)", [self.obs_dim]), (OUTPUT, "tensor(float)", [self.action_dim])]
        bounds = (self.action_low.shape, self.action_high.shape)
        if ends != wanted or bounds != ((self.action_dim,), (self.action_dim,)):
            raise UserError(f"the inputs and outputs of {name} are not those of its contract: export the policy again.")


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


def _session(model: bytes, name: str) -> Any:
    """One thread and no spinning: for a single state, handing work to other threads takes longer than the work."""
    try:
        import onnxruntime
    except ImportError:
        raise UserError(f"{name} needs onnxruntime: pip install onnxruntime.") from None
    if EXTERNAL in model:
        # Our graphs never contain this word. A graph that does may point at any file of this machine.
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
