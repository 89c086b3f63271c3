"""A policy as one ONNX file, its input contract as JSON beside it; nothing is written that was not checked first."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pspo.data.normalise import Normaliser
from pspo.core.errors import UserError
from pspo.policies.onnx.check import check
from pspo.core.files import parse_json, replacing
from pspo.policies.onnx.runtime import FORMAT, INPUT, OUTPUT, OnnxPolicy, contract_path
from pspo.policies.policy import Policy, load_policy
from pspo.runs.directory import open_run

OUTSIDE = (
    "Observations are neither clipped nor refused. Beyond a column's low and high, which are the log's, the network "
    "extrapolates: actions stay within their bounds, and nothing more is known of them."
)
NOT_FINITE = "A NaN in an observation gives NaN in all columns of its action; infinite values are not defined."


def export_policy(place: str | Path | Policy, out: str | Path) -> Path:
    """Write the policy of a run directory or a policy file as OUT.onnx, and its contract as OUT.json.

    The graph is run and compared with the policy first; one that does not agree is not written. Both files are replaced
    if they exist. Returns the path of the graph.
    """
    out = Path(out)
    _require_free(out)
    _require_packages()
    policy = place if isinstance(place, Policy) else _finished(Path(place))
    from pspo.policies.onnx.graph import model_bytes

    model = model_bytes(policy)
    contract = describe(policy, model, *_names(place))
    contract["checked"] = check(policy, OnnxPolicy(model, contract))
    text = json.dumps(contract, indent=2, allow_nan=False) + "\n"
    with replacing(out) as model_file:
        model_file.write_bytes(model)
        with replacing(contract_path(out)) as contract_file:
            contract_file.write_text(text)
    return out


# What is asked for


def _require_free(out: Path) -> None:
    if out.suffix != ".onnx":
        raise UserError(f"{out} does not end in .onnx: give such a name, as policy.onnx.")
    if not out.parent.is_dir():
        raise UserError(f"the folder {out.parent} does not exist: make it first, or write to another.")
    if out.is_dir():
        raise UserError(f"{out} is a folder: give another name.")
    beside = contract_path(out)
    if beside.exists() and not _is_contract(beside):  # such as result.json in a run directory
        raise UserError(f"the contract would replace {beside}, which is something else: give another name.")


def _is_contract(path: Path) -> bool:
    try:
        found = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and str(found.get("format", "")).startswith("pspo-onnx-")


def _require_packages() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError:
        raise UserError("exporting needs onnx and onnxruntime: pip install 'pspo[export]'.") from None


def _finished(place: Path) -> Policy:
    if (place / "config.json").exists() and not open_run(place).finished:
        raise UserError(f"{place} is not finished: go on with it by `pspo resume {place}`, then export it.")
    return load_policy(place)


# The contract


def describe(
    policy: Policy, model: bytes, obs_names: Sequence[str] = (), action_names: Sequence[str] = ()
) -> dict[str, Any]:
    """What whoever feeds the graph has to know; names of columns may be empty."""
    from pspo.policies.onnx.graph import IR_VERSION, OPSET

    norm = policy.norm
    return {
        "format": FORMAT,
        "model": {"sha256": hashlib.sha256(model).hexdigest(), "opset": OPSET, "ir_version": IR_VERSION},
        "input": {
            "name": INPUT,
            "dtype": "float32",
            "shape": ["batch", policy.obs_dim],
            "meaning": _meaning(policy.facts),
            "columns": [
                _column(norm, i) | ({"name": obs_names[i]} if obs_names else {}) for i in range(policy.obs_dim)
            ],
            "outside_of_the_log": OUTSIDE,
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
        "origin": {"kind": policy.kind, **policy.facts},
    }


def _meaning(facts: dict[str, Any]) -> str:
    from pspo.envs.mujoco import LOCOMOTION

    if facts.get("task") in LOCOMOTION:
        return f"raw observations of gymnasium's {LOCOMOTION[facts['task']].env_id}, columns in its order"
    return "raw observations, columns in the order that they had in the log"


def _column(norm: Normaliser, i: int) -> dict[str, Any]:
    """Scale and range in the log; `values` of a column that had few, between which the policy interpolates."""
    numbers = {"mean": norm.obs_mean, "std": norm.obs_std, "low": norm.obs_low, "high": norm.obs_high}
    column: dict[str, Any] = {"index": i} | {name: float(array[i]) for name, array in numbers.items()}
    if i in norm.grid_column.tolist():
        column["values"] = np.unique(norm.grid_points[norm.grid_column.tolist().index(i)]).tolist()
    return column


def _names(place: str | Path | Policy) -> tuple[Sequence[str], Sequence[str]]:
    """Of observation and action columns, as the run's data had them; a policy file alone knows none."""
    if isinstance(place, Policy) or not (Path(place) / "config.json").exists():
        return (), ()
    run = open_run(place)
    return run.column_names("obs"), run.column_names("action")
