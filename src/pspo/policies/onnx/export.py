"""A policy as one ONNX file with its input contract as JSON beside it; a graph is checked before it is written."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.core.files import parse_json, replacing
from pspo.data.encoder import Encoder
from pspo.data.normalise import Normaliser
from pspo.policies.onnx.check import check, raw_states
from pspo.policies.onnx.discrete import check_discrete, describe_outputs
from pspo.policies.onnx.runtime import FORMAT, FORMAT_WITH_ENCODER, INPUT, OUTPUT, OnnxPolicy, contract_path
from pspo.policies.policy import Policy

OUT_OF_RANGE = (
    "Observations are neither clipped nor refused. Outside a column's low and high, which are the dataset's, the "
    "network extrapolates: actions stay within their bounds, and nothing else is guaranteed."
)
OUT_OF_RANGE_DISCRETE = (
    "Observations are neither clipped nor refused. Outside a column's low and high, which are the dataset's, the "
    "network extrapolates."
)
NOT_FINITE_DISCRETE = "A NaN in an observation gives the action -1; infinite values are not defined."
NOT_FINITE = "A NaN in an observation gives NaN in all columns of its action; infinite values are not defined."
DOUBLES = "One input with all columns, in float64: float32 would round numbers that the graph subtracts an offset from."
ONE_BY_ONE = "One input for every column, by its name, of shape (batch, 1): texts as strings, all else as float64."
UNSEEN = "A text that is not among the categories of its column counts as none of them: all their columns are 0."
MISSING_VALUES = (
    "A missing number is NaN, a missing text is empty. In a column that has a `fill`, a missing number counts as that "
    "and is marked; in any other it gives NaN. An empty text is a category of its own where the dataset had it."
)


def write_onnx(policy: Policy, out: Path) -> Path:
    """Write OUT.onnx and its contract OUT.json, replacing both."""
    _require_writable(out)
    _require_packages()
    from pspo.policies.onnx.graph import model_bytes

    model = model_bytes(policy)
    contract = input_contract(policy, model)
    exported = OnnxPolicy(model, contract)
    if policy.discrete:
        contract["checked"] = check_discrete(policy, raw_states(policy), exported.outputs)
    else:
        contract["checked"] = check(policy, exported)
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


def input_contract(policy: Policy, model: bytes) -> dict[str, Any]:
    """What a caller of the graph has to know: columns, units, bounds, and where the policy comes from."""
    from pspo.policies.onnx.graph import IR_VERSION, OPSET

    encoder = policy.encoder
    return {
        "format": FORMAT if encoder is None else FORMAT_WITH_ENCODER,
        "model": {"sha256": hashlib.sha256(model).hexdigest(), "opset": OPSET, "ir_version": IR_VERSION},
        "input": {
            "name": INPUT,
            "dtype": "float32" if encoder is None else "float64",
            "shape": ["batch", policy.raw_dim],
            "meaning": _meaning(policy.metadata),
            "columns": _columns(policy),
            **({} if encoder is None else encoder_contract(encoder)),
            "out_of_range": OUT_OF_RANGE_DISCRETE if policy.discrete else OUT_OF_RANGE,
            "not_finite": NOT_FINITE_DISCRETE if policy.discrete else NOT_FINITE,
        },
        "output": describe_outputs(policy) if policy.discrete else _quantities(policy),
        "origin": {"kind": policy.kind, **policy.metadata},
    }


def _quantities(policy: Policy) -> dict[str, Any]:
    return {
        "name": OUTPUT,
        "dtype": "float32",
        "shape": ["batch", policy.action_dim],
        "meaning": "raw actions, within their bounds and without noise",
        "low": np.asarray(policy.norm.action_low).tolist(),
        "high": np.asarray(policy.norm.action_high).tolist(),
        **({"names": [*policy.action_names]} if policy.action_names else {}),
    }


def _meaning(metadata: dict[str, Any]) -> str:
    from pspo.envs.mujoco import LOCOMOTION

    if metadata.get("task") in LOCOMOTION:
        return f"raw observations of gymnasium's {LOCOMOTION[metadata['task']].env_id}, columns in its order"
    return "raw observations, columns in the order of the dataset"


def encoder_contract(encoder: Encoder) -> dict[str, Any]:
    """What the graph does with raw values, and how it takes them."""
    how = ONE_BY_ONE if encoder.takes_texts else DOUBLES
    return {"given_as": how, "encoder": encoder.as_json(), "unseen": UNSEEN, "missing": MISSING_VALUES}


def _columns(policy: Policy) -> list[dict[str, Any]]:
    """Of raw columns; numbers as they are in the dataset, that is, without an offset that was subtracted."""
    norm, names, encoder = policy.norm, policy.observation_names, policy.encoder
    if encoder is None:
        return [_column(norm, i) | ({"name": names[i]} if names else {}) for i in range(policy.obs_dim)]
    described_columns, start = [], 0
    for i, column in enumerate(encoder.columns):
        described: dict[str, Any] = {"index": i} | ({"name": names[i]} if names else {})
        if encoder.takes_texts:
            described["dtype"] = "string" if column.categories else "float64"
        if not column.categories and not column.cyclic:
            described |= _column(norm, start) | {"index": i}
            for key in ("mean", "low", "high"):
                described[key] += column.offset
            if "values" in described:
                described["values"] = [value + column.offset for value in described["values"]]
        described_columns.append(described | {"becomes": column.describe()})
        start += column.width
    return described_columns


def _column(norm: Normaliser, i: int) -> dict[str, Any]:
    """Scale and range in the dataset; `values` of a column that took few, between which the policy interpolates."""
    numbers = {"mean": norm.obs_mean, "std": norm.obs_std, "low": norm.obs_low, "high": norm.obs_high}
    column: dict[str, Any] = {"index": i} | {name: float(array[i]) for name, array in numbers.items()}
    if i in norm.grid_column.tolist():
        column["values"] = np.unique(norm.grid_points[norm.grid_column.tolist().index(i)]).tolist()
    return column
