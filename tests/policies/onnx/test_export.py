"""Exported graphs: the actions of network and NumPy policy, a contract for its input, a check that notices errors."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pspo.core.errors import UserError
from pspo.nets.actors import NETWORKS
from pspo.policies.heads import ACTIVATIONS as NUMPY_ACTIVATIONS
from pspo.policies.heads import KINDS
from pspo.policies.onnx import check as export_check
from pspo.policies.onnx import graph as onnx_graph
from pspo.policies.onnx.check import TOLERANCE, check
from pspo.policies.onnx.graph import ACTIVATIONS, GRAPHS, Graph, encode, from_unit, model_bytes
from pspo.policies.onnx.runtime import OnnxPolicy
from pspo.policies.policy import FILE_NAME, Policy, load_policy
from pspo.runs.export import export_policy
from tests.policies.export_cases import (
    ACT,
    CASES,
    METADATA,
    NORM,
    OBS,
    WIDTH,
    by_jax,
    exported,
    in_memory,
    made_network,
    made_policy,
)


def some_obs(rows: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    counters = rng.integers(0, 5, size=rows), 7.0 * rng.integers(0, 2, size=rows)
    return np.stack([rng.normal(3.0, 2.0, size=rows), *counters], axis=1).astype(np.float32)


def apart(a: np.ndarray, b: np.ndarray) -> float:
    return float((np.abs(a - b) / WIDTH).max())


# Actions


def test_every_kind_and_activation_has_a_graph() -> None:
    assert set(KINDS) == set(NETWORKS) == {*GRAPHS, "categorical"}  # which has three outputs: tests/discrete
    assert set(GRAPHS) == {made_policy(case).kind for case in CASES}
    assert set(ACTIVATIONS) == set(NUMPY_ACTIVATIONS)
    used = {net.activation for case in CASES for net in made_policy(case).nets.values()}
    assert used == set(ACTIVATIONS)


@pytest.mark.parametrize("case", CASES)
def test_the_graph_agrees_with_jax_and_numpy_on_batches_and_states(case: str) -> None:
    policy, graph, obs = made_policy(case), exported(case), some_obs(300)
    expected = np.asarray(by_jax(made_network(case), obs))
    assert (expected.std(axis=0) / WIDTH).min() > 0.01  # the network does something
    found = graph(obs)
    assert (found.shape, found.dtype) == ((300, ACT), np.float32)
    assert apart(found, expected) < TOLERANCE
    assert apart(found, policy(obs)) < TOLERANCE
    for row in range(5):
        assert graph(obs[row]).shape == (ACT,)
        assert apart(graph(obs[row]), expected[row]) < TOLERANCE


numbers = st.floats(-20.0, 20.0, width=32)
wild_numbers = st.one_of(numbers, st.floats(-1e4, 1e4, width=32))


@pytest.mark.parametrize("case", CASES)
@given(obs=st.tuples(numbers, numbers, numbers))
@example(obs=(0.0, 0.0, 0.0))
@example(obs=(20.0, -20.0, 20.0))
@settings(max_examples=30, deadline=None)
def test_the_graph_agrees_on_and_off_the_grids(case: str, obs: tuple[float, ...]) -> None:
    raw = np.array(obs, np.float32)
    found = exported(case)(raw)
    assert apart(found, made_policy(case)(raw)) < TOLERANCE
    assert apart(found, np.asarray(by_jax(made_network(case), raw))) < TOLERANCE


@pytest.mark.parametrize("case", CASES)
@given(obs=st.tuples(wild_numbers, wild_numbers, wild_numbers))
@example(obs=(1e4, -1e4, 1e4))
@example(obs=(-1e30, 1e30, 0.0))
@settings(max_examples=30, deadline=None)
def test_actions_far_from_the_data_are_bounded_and_the_same(case: str, obs: tuple[float, ...]) -> None:
    """The comparison is loose: all are float32, and far out a rounding error is multiplied by the distance."""
    raw = np.array(obs, np.float32)
    found = exported(case)(raw)
    assert np.all(found >= NORM.action_low)
    assert np.all(found <= NORM.action_high)
    assert apart(found, made_policy(case)(raw)) < 2e-3


def test_features_equal_the_normalisers_bit_for_bit() -> None:
    assert NORM.grid_column.tolist() == [1, 2]
    assert NORM.grid_points[1].tolist() == [0, 7, 7, 7, 7]  # padded
    graph = Graph()
    run = in_session(graph, encode(graph, NORM), OBS)
    rng = np.random.default_rng(0)
    for obs in (some_obs(50), rng.uniform(-10, 10, (50, OBS)), rng.normal(scale=1e4, size=(50, OBS))):
        obs = obs.astype(np.float32)
        np.testing.assert_array_equal(run(obs), NORM.encode(obs))


def test_scaled_actions_equal_the_normalisers_bit_for_bit() -> None:
    """Also next to the ends, where rounding alone would reach past the bounds."""
    low, high = np.sort(np.random.default_rng(0).normal(size=(2, 500)), axis=0).astype(np.float32)
    norm = NORM._replace(action_low=low, action_high=high)
    graph = Graph()
    run = in_session(graph, from_unit(graph, norm, "observation"), 500)
    for end in (-1.0, 0.3, 1.0):
        for unit in (end, np.nextafter(np.float32(end), 0), 0.999 * end, 1.1 * end):
            units = np.full((1, 500), unit, np.float32)
            np.testing.assert_array_equal(run(units), norm.from_unit(units))
    almost = np.nextafter(np.float32(1), np.float32(0))
    assert np.any(low + (almost + 1) * (np.float32(0.5) * (high - low)) > high)  # the case is among them


def in_session(graph: Graph, output: str, size: int):
    import onnxruntime
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", size])]
    made = helper.make_graph(graph.nodes, "part", ends, [helper.make_empty_tensor_value_info(output)], graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", onnx_graph.OPSET)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return lambda obs: session.run(None, {"observation": obs})[0]


def test_actions_reach_their_bounds_and_never_pass_them() -> None:
    policy = made_policy("mixture")
    net = policy.nets["net"]
    for low, high in ((-0.1, 0.3), (0.1, 0.7), (-1.3, 0.4), (0.3, 1.1), (-0.7, 0.1)):
        bounds = {"action_low": np.full(ACT, low, np.float32), "action_high": np.full(ACT, high, np.float32)}
        for push, end in ((-30.0, "action_low"), (30.0, "action_high")):
            pushed = np.concatenate([net.biases[-1][:3], np.full(6, push), net.biases[-1][9:]]).astype(np.float32)
            nets = {"net": replace(net, biases=(*net.biases[:-1], pushed))}
            found = in_memory(replace(policy, norm=NORM._replace(**bounds), nets=nets))(some_obs(50))
            np.testing.assert_array_equal(found, np.broadcast_to(bounds[end], found.shape))


@pytest.mark.parametrize("case", CASES)
def test_a_nan_is_not_hidden_and_stays_in_its_row(case: str) -> None:
    obs = some_obs(4)
    obs[1, 2] = np.nan
    assert np.isnan(exported(case)(obs)).all(axis=1).tolist() == [False, True, False, False]


# The files


def test_the_model_is_plain_onnx_with_a_free_batch_axis(tmp_path: Path) -> None:
    model = onnx.load(export_policy(made_policy("perturbed"), tmp_path / "p.onnx"))
    onnx.checker.check_model(model, full_check=True)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 17)]
    assert model.ir_version == 8
    for end, name, size in ((model.graph.input[0], "observation", OBS), (model.graph.output[0], "action", ACT)):
        shape = end.type.tensor_type.shape.dim
        assert (end.name, shape[0].dim_param, shape[1].dim_value) == (name, "batch", size)


def test_the_contract_describes_input_and_origin(tmp_path: Path) -> None:
    out = export_policy(made_policy("mixture"), tmp_path / "p.onnx")
    contract = json.loads((tmp_path / "p.json").read_text())
    sha256 = hashlib.sha256(out.read_bytes()).hexdigest()
    assert contract["format"] == "pspo-onnx-1"
    assert contract["model"] == {"sha256": sha256, "opset": 17, "ir_version": 8}
    entry = contract["input"]
    assert (entry["name"], entry["dtype"], entry["shape"]) == ("observation", "float32", ["batch", OBS])
    assert "extrapolates" in entry["out_of_range"]
    price, counter, flag = entry["columns"]
    assert price == {
        "index": 0,
        "mean": float(NORM.obs_mean[0]),
        "std": float(NORM.obs_std[0]),
        "low": float(NORM.obs_low[0]),
        "high": float(NORM.obs_high[0]),
    }
    assert counter["values"] == [0, 1, 2, 3, 4]
    assert flag["values"] == [0, 7]
    assert contract["output"]["shape"] == ["batch", ACT]
    assert contract["output"]["low"] == NORM.action_low.tolist()
    assert contract["output"]["high"] == NORM.action_high.tolist()
    assert contract["origin"] == {"kind": "mixture", **METADATA}
    checked = contract["checked"]
    assert (checked["tolerance"], checked["states"], checked["decided_by_rounding"]) == (1e-5, 4000, 0)
    assert checked["largest_difference"].keys() == {"jax", "numpy", "one state at a time"}
    assert 0.0 < max(checked["largest_difference"].values()) <= TOLERANCE
    assert OnnxPolicy.load(out).metadata == contract["origin"]


def test_columns_have_names_and_a_meaning_if_known(tmp_path: Path) -> None:
    def contract(metadata: dict, names: dict | None = None) -> dict:
        place = tmp_path / "run"
        place.mkdir(exist_ok=True)
        replace(made_policy("one layer"), metadata=metadata).save(place / FILE_NAME)
        (place / "config.json").write_text(json.dumps({} if names is None else {"names": names}))
        (place / "result.json").write_text("{}")
        export_policy(place, tmp_path / "p.onnx")
        return json.loads((tmp_path / "p.json").read_text())

    def names(found: dict) -> tuple[list[str | None], list[str] | None]:
        return [column.get("name") for column in found["input"]["columns"]], found["output"].get("names")

    named = contract(METADATA, {"obs": ["level", "flow", "mode"], "action": ["u", "v"]})
    assert names(named) == (["level", "flow", "mode"], ["u", "v"])
    for nothing in (None, {"obs": [], "action": []}):
        assert names(contract(METADATA, nothing)) == ([None, None, None], None)
    assert "Hopper-v4" in contract(METADATA | {"task": "hopper"})["input"]["meaning"]


def test_equal_policies_give_equal_bytes() -> None:
    assert model_bytes(made_policy("mixture")) == model_bytes(made_policy("mixture"))
    assert model_bytes(made_policy("mixture")) != model_bytes(made_policy("one component"))


# The check


def with_one_weight_changed(policy: Policy, by: float) -> Policy:
    name, net = next(iter(policy.nets.items()))
    weight = np.array(net.weights[0])
    weight[0, 0] += by
    return replace(policy, nets=policy.nets | {name: replace(net, weights=(weight, *net.weights[1:]))})


@pytest.mark.parametrize("case", CASES)
def test_a_graph_with_one_wrong_weight_is_not_written(case: str, tmp_path: Path, monkeypatch) -> None:
    out = export_policy(made_policy(case), tmp_path / "p.onnx")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(onnx_graph, "model_bytes", lambda policy: model_bytes(with_one_weight_changed(policy, 1e-3)))
    with pytest.raises(UserError, match=r"differs from the policy by .* \(jax\), and 1e-05 is allowed"):
        export_policy(made_policy(case), out)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda obs, action: action if obs.ndim == 2 else action + 1e-4 * WIDTH, "one state at a time"),
        (lambda obs, action: action + (np.abs(obs[..., :1]) > 1e5), "leaves the action's bounds"),
        (lambda obs, action: np.nan_to_num(action), "hides a NaN"),
        (lambda obs, action: np.where(obs[..., :1] > 5.0, np.nan, action), "by nan of the action's range"),
    ],
)
def test_each_part_of_the_check_notices_errors(spoil, says: str) -> None:
    graph = exported("mixture")
    assert check(made_policy("mixture"), graph)["decided_by_rounding"] == 0
    with pytest.raises(UserError, match=says):
        check(made_policy("mixture"), lambda obs: spoil(obs, graph(obs)))


@pytest.mark.parametrize("name", ["jax", "numpy"])
def test_the_graph_is_compared_with_jax_and_numpy(name: str, monkeypatch) -> None:
    """The policy in NumPy and the JAX network are two, and the graph is right by the other of them only."""
    policy = made_policy("deterministic")
    changed = with_one_weight_changed(policy, 1e-3)
    monkeypatch.setattr(export_check, "to_network", lambda _: made_network("deterministic"))
    with pytest.raises(UserError, match=rf"\({name}\)"):
        check(changed, in_memory(changed if name == "jax" else policy))


def test_states_decided_by_rounding_are_counted_and_many_are_refused() -> None:
    """Two components that weigh the same: which one acts depends on the last bit."""
    policy = made_policy("mixture")
    net = policy.nets["net"]
    weight, bias = np.array(net.weights[-1]), np.array(net.biases[-1])
    weight[:, 1], bias[1] = weight[:, 0], bias[0]
    bias[2] = -100.0
    tied = replace(
        policy, nets={"net": replace(net, weights=(*net.weights[:-1], weight), biases=(*net.biases[:-1], bias))}
    )
    bias = bias.copy()
    bias[1] += 1.0
    other = replace(tied, nets={"net": replace(tied.nets["net"], biases=(*net.biases[:-1], bias))})

    def one_in(every: int, among: Policy):
        def act(obs: np.ndarray) -> np.ndarray:
            action = among(obs)
            if obs.ndim == 2:
                action[::every] = other(obs)[::every]
            return action

        return act

    found = check(tied, one_in(40, tied))
    assert 80 <= found["decided_by_rounding"] <= 100  # of 100; where both act alike there is nothing to count
    assert max(found["largest_difference"].values()) <= TOLERANCE
    with pytest.raises(UserError, match="actions depend on the rounding of its weights in"):
        check(tied, one_in(5, tied))
    with pytest.raises(UserError, match="differs from the policy"):  # the same answers where nothing is tied
        check(policy, one_in(40, policy))


def test_a_policy_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not finite"):
        export_policy(with_one_weight_changed(made_policy("deterministic"), np.nan), tmp_path / "p.onnx")
    assert list(tmp_path.iterdir()) == []


# Bad input


def test_names_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    policy = made_policy("one layer")
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "result.json").write_text('{"score": 1.0}')
    for out, says in (
        (tmp_path / "policy.pt", "does not end in .onnx"),
        (tmp_path / "nowhere" / "policy.onnx", "does not exist"),
        (tmp_path / "folder.onnx", "is a folder"),
        (tmp_path / "result.onnx", "result.json, which is something else"),
    ):
        with pytest.raises(UserError, match=says):
            export_policy(policy, out)
    assert (tmp_path / "result.json").read_text() == '{"score": 1.0}'
    assert {path.name for path in tmp_path.iterdir()} == {"folder.onnx", "result.json"}


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named(package: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=r"pip install 'pspo\[export\]'"):
        export_policy(made_policy("one layer"), tmp_path / "p.onnx")


def test_a_folder_without_a_finished_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no policy"):
        export_policy(tmp_path, tmp_path / "p.onnx")
    (tmp_path / "config.json").write_text("{}")
    made_policy("one layer").save(tmp_path / FILE_NAME)
    with pytest.raises(UserError, match="is not finished"):
        export_policy(tmp_path, tmp_path / "p.onnx")
    out = export_policy(tmp_path / FILE_NAME, tmp_path / "p.onnx")
    with pytest.raises(UserError, match=r"pspo\.OnnxPolicy\.load"):
        export_policy(out, tmp_path / "q.onnx")


# The command


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "run"
    from pspo.cli.main import main

    words = ["train", "liquidation", "--algo", "bc", "--preset", "smoke", "--quiet", "--episodes", "100"]
    words += ["--set", "steps=20", "--set", "chunk=20"]
    assert main([*words, "--out", str(place)]) == 0
    return place


def test_the_export_command_keeps_the_actions(run: Path, tmp_path: Path, capsys) -> None:
    from pspo.cli.main import main

    capsys.readouterr()
    out = tmp_path / "policy.onnx"
    assert main(["export", str(run), str(out)]) == 0
    printed = capsys.readouterr().out
    assert str(out) in printed
    assert str(tmp_path / "policy.json") in printed
    assert "4000 states" in printed
    policy, deployed = load_policy(run), OnnxPolicy.load(out)
    assert deployed.metadata == {"kind": policy.kind, **policy.metadata}
    states = np.array([[0, 100, 1.0], [10, 50, 2.0], [19.5, 100, 1.5]], np.float32)
    np.testing.assert_allclose(deployed(states), policy(states), atol=2 * TOLERANCE)
    (tmp_path / "policy.json").write_text('{"format": "pspo-onnx-0"}')  # an older export is replaced
    assert main(["export", str(run / FILE_NAME), str(out)]) == 0
    np.testing.assert_array_equal(OnnxPolicy.load(out)(states), deployed(states))


def test_the_export_command_fails_with_one_sentence(run: Path, tmp_path: Path, capsys) -> None:
    from pspo.cli.main import main

    capsys.readouterr()
    for words in ((str(run), str(tmp_path / "policy.txt")), (str(tmp_path), str(tmp_path / "policy.onnx"))):
        assert main(["export", *words]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        assert lines[0].startswith("pspo: ")
    assert list(tmp_path.iterdir()) == []
