"""A policy as one ONNX file with its input contract as JSON beside it; a graph is checked before it is written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.core.files import parse_json, replacing
from pspo.data.normalise import Normaliser
from pspo.policies.onnx.check import check
from pspo.policies.onnx.runtime import FORMAT, INPUT, OUTPUT, OnnxPolicy, contract_path
from pspo.policies.policy import Policy

OUT_OF_RANGE = (
    "Observations are neither clipped nor refused. Outside a column's low and high, which are the dataset's, the "
    "network extrapolates: actions stay within their bounds, and nothing else is guaranteed."
)
NOT_FINITE = "A NaN in an observation gives NaN in all columns of its action; infinite values are not defined."


def write_onnx(policy: Policy, out: Path, obs_names: Sequence[str] = (), action_names: Sequence[str] = ()) -> Path:
    """Write OUT.onnx and its contract OUT.json, replacing both; names of columns may be empty."""
    _require_writable(out)
    _require_packages()
    from pspo.policies.onnx.graph import model_bytes

    model = model_bytes(policy)
    contract = input_contract(policy, model, obs_names, action_names)
    contract["checked"] = check(policy, OnnxPolicy(model, contract))
    text = json.dumps(contract, indent=2, allow_nan=False) + "\n"
    with replacing(out) as model_file:
        model_file.write_bytes(model)
        with replacing(contract_path(out)) as contract_file:
            contract_file.write_text(text)
    return out


# Where it may be written


def _require_writable(out: Path) -> None:
    if out.suffix != ".onnx":
        raise UserError(f"{out} does not end in .onnx: choose a name that does, such as policy.onnx.")
    if not out.parent.is_dir():
        raise UserError(f"the folder {out.parent} does not exist: create it first, or write to another.")
    if out.is_dir():
        raise UserError(f"{out} is a folder: choose another name.")
    beside = contract_path(out)
    if beside.exists() and not _is_contract(beside):  # such as result.json in a run directory
        raise UserError(f"the contract would replace {beside}, which is something else: choose another name.")


def _is_contract(path: Path) -> bool:
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and str(content.get("format", "")).startswith("pspo-onnx-")


def _require_packages() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError:
        raise UserError("exporting needs onnx and onnxruntime: pip install 'pspo[export]'.") from None


# The contract


def input_contract(
    policy: Policy, model: bytes, obs_names: Sequence[str] = (), action_names: Sequence[str] = ()
) -> dict[str, Any]:
    """What a caller of the graph has to know: columns, units, bounds, and where the policy comes from."""
    from pspo.policies.onnx.graph import IR_VERSION, OPSET

    norm = policy.norm
    return {
        "format": FORMAT,
        "model": {"sha256": hashlib.sha256(model).hexdigest(), "opset": OPSET, "ir_version": IR_VERSION},
        "input": {
            "name": INPUT,
            "dtype": "float32",
            "shape": ["batch", policy.obs_dim],
            "meaning": _meaning(policy.metadata),
            "columns": [
                _column(norm, i) | ({"name": obs_names[i]} if obs_names else {}) for i in range(policy.obs_dim)
            ],
            "out_of_range": OUT_OF_RANGE,
            "not_finite": NOT_FINITE,
        },
        "output": {
            "name": OUTPUT,
            "dtype": "float32",
            "shape": ["batch", policy.action_dim],
            "meaning": "raw actions, within their bounds and without noise",
            "low": np.asarray(norm.action_low).tolist(),
            "high": np.asarray(norm.action_high).tolist(),
            **({"names": [*action_names]} if action_names else {}),
        },
        "origin": {"kind": policy.kind, **policy.metadata},
    }


def _meaning(metadata: dict[str, Any]) -> str:
    from pspo.envs.mujoco import LOCOMOTION

    if metadata.get("task") in LOCOMOTION:
        return f"raw observations of gymnasium's {LOCOMOTION[metadata['task']].env_id}, columns in its order"
    return "raw observations, columns in the order of the dataset"


def _column(norm: Normaliser, i: int) -> dict[str, Any]:
    """Scale and range in the dataset; `values` of a column that took few, between which the policy interpolates."""
    numbers = {"mean": norm.obs_mean, "std": norm.obs_std, "low": norm.obs_low, "high": norm.obs_high}
    column: dict[str, Any] = {"index": i} | {name: float(array[i]) for name, array in numbers.items()}
    if i in norm.grid_column.tolist():
        column["values"] = np.unique(norm.grid_points[norm.grid_column.tolist().index(i)]).tolist()
    return column
