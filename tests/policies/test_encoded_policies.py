"""Policies with an encoder: raw values by name or position, the same actions in NumPy and ONNX, and other files."""

from __future__ import annotations

import contextlib
import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from pspo.core.errors import UserError
from pspo.data.encoder import EncodedColumn, Encoder, offset_encoder
from pspo.policies.jax_policy import JaxPolicy
from pspo.policies.onnx.external_data import refers_to_files
from pspo.policies.onnx.runtime import OnnxPolicy
from pspo.policies.policy import Policy
from pspo.runs.export import export_policy
from tests.policies.export_cases import in_memory, made_policy

PLAIN = made_policy("mixture")  # on three columns
COLUMNS = {
    "texts": (
        EncodedColumn("location", "category", categories=("the location", "east")),
        EncodedColumn("x", offset=1e9),
    ),
    "times": (EncodedColumn("x", offset=-1e9), EncodedColumn("when", "time", cyclic=("hour_of_day",))),
    "gaps": (EncodedColumn("x"), EncodedColumn("price", offset=1e8, fill=1e8 + 2.5)),
    "seconds": (EncodedColumn("when", "time", offset=1.7e9, fill=1.7e9), EncodedColumn("x")),
}
RAW = {
    "texts": {"location": ["the location", "east", "new", ""], "x": [1e9 + 0.25, 1e9 - 3, 1e9 + 7, 1e9]},
    "times": {"x": [-1e9, -1e9 + 1.5, -1e9 - 2, 0.0], "when": [0.0, 1.7e9, 1.7e9 + 1e4, -5e4]},
    "gaps": {"x": [0.5, 1.5, 2.5, 3.5], "price": [1e8, np.nan, 1e8 + 4, 1e8 - 4]},
    "seconds": {"when": [1.7e9, np.nan, 1.7e9 + 3, 1.7e9 - 3], "x": [0.0, 1.0, 2.0, 3.0]},
}


def policy_with(case: str) -> Policy:
    encoder = Encoder(COLUMNS[case])
    assert encoder.width == 3
    return replace(PLAIN, encoder=encoder, observation_names=encoder.raw_names)


FORMS = {
    "dictionary": lambda raw: raw,
    "list of dictionaries": lambda raw: pd.DataFrame(raw).to_dict("records"),
    "pandas": pd.DataFrame,
    "pandas with objects": lambda raw: pd.DataFrame(raw).astype(object).where(pd.DataFrame(raw).notna(), None),
    "arrow": pa.table,
}


@pytest.mark.parametrize("case", sorted(COLUMNS))
@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.filterwarnings("ignore:.*none of the policy's categories")
def test_names_in_any_order_give_the_actions_of_the_encoded_columns(case: str, form: str) -> None:
    policy, raw = policy_with(case), RAW[case]
    values = [np.array(part, object if isinstance(part[0], str) else np.float64) for part in raw.values()]
    expected = policy.act_encoded(Encoder(COLUMNS[case]).encode(values))
    assert len(np.unique(expected, axis=0)) > 2
    for served in (policy, in_memory(policy), JaxPolicy(policy)):
        for order in (raw, dict(reversed(raw.items()))):
            np.testing.assert_allclose(served(FORMS[form](order)), expected, atol=1e-5)
        by_position = pd.DataFrame(raw).to_numpy(object)
        np.testing.assert_allclose(served(by_position), expected, atol=1e-5)
        np.testing.assert_allclose(served(by_position.tolist()), expected, atol=1e-5)
        np.testing.assert_allclose(served(by_position[2]), expected[2], atol=1e-5)
        first, *others = raw
        with pytest.raises(UserError, match=f"lacks '{first}'"):
            served({name: raw[name] for name in others})


def test_categories_that_no_data_had_are_all_zero_and_warned_of() -> None:
    policy = policy_with("texts")
    with pytest.warns(UserWarning, match="'location' holds 'north', which is none of the policy's categories"):
        action = policy({"location": "north", "x": 1e9})
    np.testing.assert_array_equal(action, policy.act_encoded(np.zeros(3, np.float32)))
    same = [policy({"location": text, "x": 1e9 + 2}) for text in ("east", " east ", np.str_("east"))]
    np.testing.assert_array_equal(same[0], same[1])
    np.testing.assert_array_equal(same[0], same[2])


@pytest.mark.parametrize("case", sorted(COLUMNS))
def test_missing_numbers_follow_the_encoder(case: str) -> None:
    policy = policy_with(case)
    one = {name: values[0] for name, values in RAW[case].items()}
    for served in (policy, in_memory(policy), JaxPolicy(policy)):
        for nothing in (None, np.nan, pd.NA):
            for column in COLUMNS[case]:
                if column.categories:
                    continue
                action = served(one | {column.name: nothing})
                assert np.isnan(action).all() == (column.fill is None)  # never hidden where it was never seen


@pytest.mark.parametrize("case", ["gaps", "seconds"])
def test_what_is_behind_a_mask_is_missing(case: str) -> None:
    policy = policy_with(case)
    table = np.stack([np.array(values) for values in RAW[case].values()], axis=1)
    hidden = np.isnan(table)
    assert hidden.any()
    rows = np.ma.masked_array(np.where(hidden, 1e8 + 1.0, table), hidden)
    for served in (policy, in_memory(policy), JaxPolicy(policy)):
        np.testing.assert_allclose(served(rows), served(table), atol=1e-6)


def test_times_are_dates_texts_or_seconds() -> None:
    policy = policy_with("times")
    moment = datetime.datetime(2024, 5, 6, 7, 30, tzinfo=datetime.UTC)
    expected = policy({"x": -1e9, "when": moment.timestamp()})
    naive = moment.replace(tzinfo=None)
    for when in (naive, naive.isoformat(), np.datetime64(naive), pd.Timestamp(naive), moment.timestamp()):
        np.testing.assert_array_equal(policy({"x": -1e9, "when": when}), expected)
    column = pd.DataFrame({"when": pd.to_datetime([naive]), "x": [-1e9]})
    np.testing.assert_array_equal(policy(column)[0], expected)
    with pytest.raises(UserError, match="'when' holds 'soon', which is not a time"):
        policy({"x": -1e9, "when": "soon"})
    with pytest.raises(UserError, match="'x' holds 'much', which is not a number"):
        policy({"x": "much", "when": naive})


@pytest.mark.parametrize("case", [*sorted(COLUMNS), "offsets"])
def test_files_give_the_same_policy(case: str, tmp_path: Path) -> None:
    policy = replace(PLAIN, encoder=offset_encoder(np.array([1e9, 0, 5.0]))) if case == "offsets" else policy_with(case)
    policy.save(tmp_path / "p.safetensors")
    again = Policy.load(tmp_path / "p.safetensors")
    assert again.encoder == policy.encoder
    exported = OnnxPolicy.load(export_policy(again, tmp_path / "p.onnx"))  # compares 4,000 states, unseen ones too
    assert exported.encoder == policy.encoder
    types = {end.name: end.type for end in exported.session.get_inputs()}
    if case == "texts":
        assert types == {"location": "tensor(string)", "x": "tensor(double)"}
    else:
        assert types == {"observation": "tensor(double)"}
    assert exported.contract["format"] == "pspo-onnx-2"
    assert [column.get("name") for column in exported.contract["input"]["columns"]] == (
        [None] * 3 if case == "offsets" else [*policy.observation_names]
    )


@settings(max_examples=20, deadline=None)
@given(st.floats(-100, 100), st.floats(-100, 100))
def test_offsets_are_subtracted_in_double_precision(x: float, y: float) -> None:
    policy = replace(PLAIN, encoder=offset_encoder(np.array([1e9, 0, -1e7])))
    raw = np.array([1e9 + x, y, -1e7 + x])
    expected = PLAIN((raw - [1e9, 0, -1e7]).astype(np.float32))
    np.testing.assert_array_equal(policy(raw), expected)
    np.testing.assert_allclose(OFFSET_ONNX(raw), expected, atol=1e-4)


OFFSET_ONNX = in_memory(replace(PLAIN, encoder=offset_encoder(np.array([1e9, 0, -1e7]))))


# References to other files


def model_with(tensor: Any, inside: str) -> bytes:
    node = helper.make_node("Identity", ["x"], ["action"])
    tensors = [tensor] if inside == "graph" else []
    if inside == "attribute":
        node = helper.make_node("Constant", [], ["action"], value=tensor)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "action")]
    return helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:], tensors)).SerializeToString()


@pytest.mark.parametrize("inside", ["graph", "attribute"])
def test_a_tensor_in_another_file_is_noticed(inside: str) -> None:
    tensor = numpy_helper.from_array(np.zeros(1, np.float32), "location")
    assert not refers_to_files(model_with(tensor, inside))
    location = TensorProto()
    location.CopyFrom(tensor)
    location.data_location = TensorProto.EXTERNAL
    entry = TensorProto()
    entry.CopyFrom(tensor)
    entry.external_data.add(key="location", value="/etc/passwd")
    for elsewhere in (location, entry):
        assert refers_to_files(model_with(elsewhere, inside))


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=40))
def test_bytes_that_are_no_model_do_not_crash(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert refers_to_files(content) in (True, False)
    sound = model_with(numpy_helper.from_array(np.zeros(1, np.float32), "x"), "graph")
    for wrong in (b"\x0b", b"\x3a\x7f"):  # a group, which ONNX does not have; a graph that ends after the file
        with pytest.raises(ValueError, match=r"wire type 3|ends after"):
            refers_to_files(sound + wrong + content)
