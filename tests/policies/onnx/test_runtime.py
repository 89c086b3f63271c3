"""The exported policy in deployment: shapes, few imports, and damaged or foreign files."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from pspo.core.errors import UserError
from pspo.policies.onnx.runtime import OnnxPolicy
from pspo.policies.policy import FILE_NAME, Policy
from pspo.runs.export import export_policy
from tests.policies.export_cases import ACT, OBS, exported, made_policy
from tests.refusals import message_of

POLICY = made_policy("mixture")
STATE = [2.5, 3.0, 7.0]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return export_policy(POLICY, tmp_path / "p.onnx")


# Shapes


def test_any_leading_shape_lists_and_doubles() -> None:
    policy, obs = exported("mixture"), np.random.default_rng(0).normal(size=(4, 5, OBS))
    each = np.stack([policy(row) for row in obs.reshape(-1, OBS)])
    np.testing.assert_allclose(policy(obs).reshape(-1, ACT), each, atol=1e-6)
    np.testing.assert_array_equal(policy(np.asfortranarray(obs)), policy(obs))
    np.testing.assert_array_equal(policy(obs[:, ::2]), policy(np.ascontiguousarray(obs[:, ::2])))
    assert policy(STATE).shape == (ACT,)
    np.testing.assert_array_equal(policy(STATE), policy(np.array(STATE, np.float64)))
    assert policy(np.zeros((0, OBS))).shape == (0, ACT)
    assert (policy.obs_dim, policy.action_dim) == (OBS, ACT)
    np.testing.assert_array_equal(policy.action_low, POLICY.norm.action_low)
    np.testing.assert_array_equal(policy.action_high, POLICY.norm.action_high)


@pytest.mark.parametrize("wrong", [np.zeros(2), np.zeros((5, 1)), np.float32(1.0), np.zeros((3, 4))])
def test_an_observation_of_another_shape_is_refused(wrong) -> None:
    with pytest.raises(UserError, match="3 numbers"):
        exported("mixture")(wrong)


# Imports

HEAVY = ("jax", "jaxlib", "equinox", "optax", "gymnasium", "mujoco", "h5py", "scipy", "matplotlib", "onnx", "pandas")


def output_of(code: str, *words: object) -> Any:
    code = f"import json, sys\n{code}\nprint(json.dumps([found, sorted(m for m in sys.modules if '.' not in m)]))"
    done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_importing_pspo_imports_nothing_else() -> None:
    _, modules = output_of("import pspo; found = pspo.__version__")
    assert not {*HEAVY, "numpy", "onnxruntime", "safetensors"} & set(modules)


def test_the_numpy_policy_needs_numpy_and_safetensors_only(tmp_path: Path) -> None:
    POLICY.save(tmp_path / FILE_NAME)
    code = f"import pspo; found = pspo.Policy.load(sys.argv[1])({STATE}).tolist()"
    found, modules = output_of(code, tmp_path / FILE_NAME)
    np.testing.assert_array_equal(np.array(found, np.float32), POLICY(STATE))
    assert not {*HEAVY, "onnxruntime"} & set(modules)


def test_the_exported_policy_needs_numpy_and_onnxruntime_only(out: Path) -> None:
    code = f"import pspo; found = pspo.OnnxPolicy.load(sys.argv[1])({STATE}).tolist()"
    found, modules = output_of(code, out)
    np.testing.assert_array_equal(np.array(found, np.float32), exported("mixture")(STATE))
    assert not {*HEAVY, "safetensors"} & set(modules)


def test_onnxruntime_alone_serves_it(out: Path) -> None:
    import onnxruntime

    contract = json.loads(out.with_suffix(".json").read_text())
    session = onnxruntime.InferenceSession(out)
    (action,) = session.run([contract["output"]["name"]], {contract["input"]["name"]: np.array([STATE], np.float32)})
    np.testing.assert_allclose(action[0], POLICY(STATE), atol=1e-5)


# Files


def refusal(path: Path) -> str:
    return message_of(OnnxPolicy.load, path, naming=path.stem)


def rewrite(out: Path, change) -> None:
    """Change the contract; `change` may also return another."""
    beside = out.with_suffix(".json")
    contract = json.loads(beside.read_text())
    beside.write_text(json.dumps(change(contract) or contract))


def replace_model(out: Path, data: bytes) -> None:
    """Another model with a contract that has its checksum."""
    out.write_bytes(data)
    rewrite(out, lambda contract: contract["model"].update(sha256=hashlib.sha256(data).hexdigest()))


def test_missing_files_are_named(out: Path) -> None:
    out.with_suffix(".json").unlink()
    assert "has no contract" in refusal(out)
    out.unlink()
    assert "there is no file" in refusal(out)
    out.mkdir()
    assert "cannot be read" in refusal(out)


def test_a_model_that_was_changed_is_refused(out: Path) -> None:
    data = out.read_bytes()
    middle = len(data) // 2
    for broken in (data[:-1], b"", data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :], b"no model"):
        out.write_bytes(broken)
        assert "not the file that its contract describes" in refusal(out)
    out.write_bytes(data)
    OnnxPolicy.load(out)


def test_a_damaged_model_is_refused_even_with_a_matching_checksum(out: Path) -> None:
    data = out.read_bytes()
    for broken in (data[:-100], b"no model at all", b"", b"\x00\x00\x00\x00ORTM" + data):
        replace_model(out, broken)
        assert "cannot be loaded by onnxruntime" in refusal(out)


def test_a_contract_that_is_not_one_is_refused(out: Path) -> None:
    contract = json.loads(out.with_suffix(".json").read_text())
    for text, says in (("{", "cannot be read"), ("\xff", "cannot be read"), ("[1]", "is not the contract")):
        out.with_suffix(".json").write_bytes(text.encode("latin-1"))
        assert says in refusal(out)
    rewritten = out.with_suffix(".json")
    for name in ("format", "model", "input", "output", "origin"):
        rewritten.write_text(json.dumps({key: value for key, value in contract.items() if key != name}))
        assert "is incomplete" in refusal(out)
    rewritten.write_text(json.dumps(contract | {"format": "pspo-onnx-99"}))
    assert "not one of this version" in refusal(out)


@pytest.mark.parametrize(
    "change",
    [
        lambda contract: contract["input"].update(shape=["batch", OBS + 1]),
        lambda contract: contract["output"].update(shape=["batch", ACT + 1]),
        lambda contract: contract["output"].update(low=[0.0]),
    ],
)
def test_a_contract_of_another_policy_is_refused(out: Path, change) -> None:
    rewrite(out, change)
    assert "not those of its contract" in refusal(out)


def foreign(input_name: str = "observation", kind: int = TensorProto.FLOAT, weight: TensorProto | None = None) -> bytes:
    """Some other graph: one product."""
    weight = weight or numpy_helper.from_array(np.zeros((OBS, ACT), np.float32), "w")
    nodes = [helper.make_node("Cast", [input_name], ["x"], to=TensorProto.FLOAT)]
    nodes.append(helper.make_node("MatMul", ["x", "w"], ["action"]))
    ends = (
        [helper.make_tensor_value_info(input_name, kind, ["batch", OBS])],
        [helper.make_tensor_value_info("action", TensorProto.FLOAT, ["batch", ACT])],
    )
    graph = helper.make_graph(nodes, "foreign", *ends, [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_a_graph_with_other_inputs_or_outputs_is_refused(out: Path) -> None:
    replace_model(out, foreign())
    OnnxPolicy.load(out)  # these inputs and outputs are right
    for data in (foreign("x0"), foreign(kind=TensorProto.DOUBLE)):
        replace_model(out, data)
        assert "not those of its contract" in refusal(out)


def test_data_outside_the_file_are_never_read(out: Path, monkeypatch) -> None:
    """With a file that exists and fits, and from its own folder: onnxruntime itself would read it."""
    monkeypatch.chdir(out.parent)
    (out.parent / "weights.bin").write_bytes(np.ones((OBS, ACT), np.float32).tobytes())
    for place in ("weights.bin", "../weights.bin", "/etc/passwd"):
        weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[OBS, ACT])
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=place)
        replace_model(out, foreign(weight=weight))
        assert "refers to data outside of itself" in refusal(out)


def test_onnxruntimes_own_format_is_not_read(out: Path) -> None:
    """It has other ways to refer to files, which the check of the bytes does not cover."""
    import onnxruntime

    other = out.with_name("other.ort")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(other)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(out, options)
    onnxruntime.InferenceSession(other.read_bytes())  # it would be read
    replace_model(out, other.read_bytes())
    assert "cannot be loaded by onnxruntime" in refusal(out)


def test_a_missing_runtime_is_named(out: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install onnxruntime" in refusal(out)


def test_the_numpy_policy_is_loaded_from_a_string_path(tmp_path: Path) -> None:
    POLICY.save(tmp_path / FILE_NAME)
    np.testing.assert_array_equal(Policy.load(str(tmp_path / FILE_NAME))(STATE), POLICY(STATE))
