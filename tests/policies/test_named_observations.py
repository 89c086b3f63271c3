"""Policies that are served by name: any order of columns, the same actions, and nothing missing or unknown."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pspo
from pspo.core.errors import UserError
from pspo.core.files import read_arrays, write_arrays
from pspo.policies.jax_policy import JaxPolicy
from pspo.policies.policy import FILE_NAME, Policy, load_policy
from tests.policies.export_cases import NORM, in_memory, made_policy
from tests.refusals import message_of

NAMES, ACTIONS = ("price", "count", "open"), ("buy", "sell")
POLICY = replace(made_policy("mixture"), observation_names=NAMES, action_names=ACTIONS)
POLICIES = {"numpy": POLICY, "onnx": in_memory(POLICY), "jax": JaxPolicy(POLICY)}
OBS = np.array([[2.5, 3, 7], [1.0, 0, 0], [4.5, 4, 7], [-1.0, 2, 0]], np.float32)


def table(order: Any) -> dict[str, np.ndarray]:
    return {NAMES[i]: OBS[:, i] for i in order}


def refusal(policy: Any, obs: Any) -> str:
    return message_of(policy, obs)


FORMS = {
    "dictionary of arrays": lambda columns: columns,
    "dictionary of lists": lambda columns: {name: values.tolist() for name, values in columns.items()},
    "list of dictionaries": lambda columns: pd.DataFrame(columns).to_dict("records"),
    "pandas": pd.DataFrame,
    "pandas in other types": lambda columns: pd.DataFrame(columns).astype({"count": "Int64", "open": object}),
    "arrow table": pa.table,
    "arrow batch": pa.record_batch,
    "structured array": lambda columns: pd.DataFrame(columns).to_records(index=False).view(np.ndarray),
}


@pytest.mark.parametrize("kind", sorted(POLICIES))
@pytest.mark.parametrize("form", sorted(FORMS))
@settings(deadline=None)  # JAX compiles once
@given(order=st.permutations(range(3)))
def test_any_order_of_names_gives_the_actions_of_the_array(kind: str, form: str, order: list[int]) -> None:
    policy = POLICIES[kind]
    expected = policy(OBS)
    assert len(np.unique(expected, axis=0)) > 1
    np.testing.assert_array_equal(policy(FORMS[form](table(order))), expected)


@pytest.mark.parametrize("kind", sorted(POLICIES))
def test_one_state_and_any_shape(kind: str) -> None:
    policy = POLICIES[kind]
    one = {"open": 7.0, "price": 2.5, "count": 3}
    for state in (one, pd.Series(one), {name: np.float64(value) for name, value in one.items()}):
        np.testing.assert_array_equal(policy(state), policy(OBS[0]))
    shaped = {name: values.reshape(2, 2) for name, values in table((2, 0, 1)).items()}
    np.testing.assert_array_equal(policy(shaped), policy(OBS.reshape(2, 2, 3)))
    assert policy(pd.DataFrame(table((1, 2, 0)))[:0]).shape == (0, 2)
    assert np.isnan(policy(one | {"price": np.nan})).all()  # a NaN is not hidden, nor is a missing value
    assert np.isnan(policy(one | {"price": None})).all()


def test_samples_take_names_too() -> None:
    by_name, by_position = (
        POLICY.sample(obs, np.random.default_rng(0)) for obs in (pd.DataFrame(table((2, 1, 0))), OBS)
    )
    np.testing.assert_array_equal(by_name, by_position)
    key, other = jax.random.split(jax.random.PRNGKey(0))
    drawn = POLICIES["jax"].sample(pd.DataFrame(table((2, 1, 0))), key)
    np.testing.assert_array_equal(drawn, POLICIES["jax"].sample(OBS, key))
    assert (np.asarray(drawn) != np.asarray(POLICIES["jax"].sample(OBS, other))).any()


@pytest.mark.parametrize("kind", sorted(POLICIES))
@pytest.mark.parametrize("form", sorted(set(FORMS) - {"pandas in other types"}))
def test_missing_and_unknown_names_are_refused(kind: str, form: str) -> None:
    policy, columns = POLICIES[kind], table((0, 1, 2))
    lacking = {name: values for name, values in columns.items() if name != "count"}
    assert "lacks 'count': give 'price', 'count', 'open'" in refusal(policy, FORMS[form](lacking))
    assert "has the unknown 'more'" in refusal(policy, FORMS[form](columns | {"more": OBS[:, 0]}))
    renamed = {"Price" if name == "price" else name: values for name, values in columns.items()}
    assert "lacks 'price' and has the unknown 'Price'" in refusal(policy, FORMS[form](renamed))


@pytest.mark.parametrize("kind", sorted(POLICIES))
def test_other_bad_input_is_refused(kind: str) -> None:
    policy, columns = POLICIES[kind], table((0, 1, 2))
    assert "'price' has shape (4,) and 'count' has shape ()" in refusal(policy, columns | {"count": 3})
    assert "'count' holds" in refusal(policy, columns | {"count": ["a", "b", "c", "d"]})
    assert "state 1 of the list lacks 'open'" in refusal(
        policy, [dict.fromkeys(NAMES, 1.0), dict.fromkeys(NAMES[:2], 1.0)]
    )
    assert "state 1 of the list is a list" in refusal(policy, [dict.fromkeys(NAMES, 1.0), [1.0, 2.0, 3.0]])
    twice = pd.DataFrame(np.zeros((2, 4)), columns=[*NAMES, "open"])
    assert "'open' twice" in refusal(policy, twice)
    np.testing.assert_array_equal(policy(pd.DataFrame(OBS)), policy(OBS))  # its columns are numbered, not named


@pytest.mark.parametrize("kind", sorted(POLICIES))
def test_observations_that_are_no_numbers_are_refused(kind: str) -> None:
    for wrong in (["a", "b", "c"], ["1", "2", "3"], [1j, 0, 0], {1.0, 2.0, 3.0}):
        assert "'observation' holds" in refusal(POLICIES[kind], wrong)
    hidden = np.ma.masked_array(OBS, mask=OBS == 2.5)  # as readers of netCDF give them
    shown = np.where(OBS == 2.5, np.nan, OBS)
    np.testing.assert_array_equal(POLICIES[kind](hidden), POLICIES[kind](shown))
    columns = {name: hidden[:, i] for i, name in enumerate(NAMES)}
    np.testing.assert_array_equal(POLICIES[kind](columns), POLICIES[kind](shown))


def test_a_policy_without_names_refuses_names() -> None:
    nameless = made_policy("mixture")
    for policy in (nameless, in_memory(nameless), JaxPolicy(nameless)):
        assert (policy.observation_names, policy.action_names) == ((), ())
        for obs in (pd.DataFrame(table((0, 1, 2))), dict.fromkeys(NAMES, 1.0)):
            assert "has no names for its columns" in refusal(policy, obs)


@pytest.mark.parametrize("kind", sorted(POLICIES))
def test_names_bounds_and_one_line_of_text(kind: str) -> None:
    policy = POLICIES[kind]
    assert (policy.observation_names, policy.action_names) == (NAMES, ACTIONS)
    low, high = policy.action_bounds
    np.testing.assert_array_equal(low, NORM.action_low)
    np.testing.assert_array_equal(high, NORM.action_high)
    text = repr(policy)
    assert "\n" not in text
    assert len(text) < 200
    assert "3 observation columns (price, count, open) -> 2 action columns (buy, sell) from -1 to 3" in text
    assert "pspo on made up" in text


# Files


def test_files_keep_the_names(tmp_path: Path) -> None:
    POLICY.save(tmp_path / FILE_NAME)
    loaded = Policy.load(tmp_path / FILE_NAME)
    assert (loaded.observation_names, loaded.action_names, loaded.metadata) == (NAMES, ACTIONS, POLICY.metadata)
    exported = pspo.OnnxPolicy.load(pspo.export_policy(tmp_path / FILE_NAME, tmp_path / "p.onnx"))
    assert (exported.observation_names, exported.action_names) == (NAMES, ACTIONS)
    contract = json.loads((tmp_path / "p.json").read_text())
    assert [column["name"] for column in contract["input"]["columns"]] == [*NAMES]
    frame = pd.DataFrame(table((2, 0, 1)))
    np.testing.assert_allclose(exported(frame), loaded(OBS), atol=1e-5)
    on_device = pspo.JaxPolicy.load(tmp_path / FILE_NAME)
    assert isinstance(on_device(frame), jax.Array)
    np.testing.assert_allclose(on_device(frame), loaded(OBS), atol=1e-5)


def test_a_file_without_names_takes_those_of_its_run(tmp_path: Path) -> None:
    """Version 0.1 kept them in config.json only."""
    POLICY.save(tmp_path / FILE_NAME)
    arrays, metadata = read_arrays(tmp_path / FILE_NAME)
    del metadata["names"]
    write_arrays(tmp_path / FILE_NAME, arrays, metadata)
    assert load_policy(tmp_path).observation_names == ()
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"names": {"obs": [*NAMES], "action": [*ACTIONS]}}))
    assert (load_policy(tmp_path).observation_names, load_policy(tmp_path).action_names) == (NAMES, ACTIONS)
    assert load_policy(tmp_path / FILE_NAME).observation_names == ()
    for wrong in ({"obs": ["price"]}, {"obs": 3}, ["price"], {"obs": ["a", "a", "b"]}):
        config.write_text(json.dumps({"names": wrong}))
        with pytest.raises(UserError, match="names of columns in"):
            load_policy(tmp_path)


@pytest.mark.parametrize("names", [{"obs": ["a", "b"]}, {"obs": ["a", "a", "b"]}, {"obs": [1, 2, 3]}, {"action": 4}, 5])
def test_a_file_with_other_names_is_refused(tmp_path: Path, names: Any) -> None:
    POLICY.save(tmp_path / FILE_NAME)
    arrays, metadata = read_arrays(tmp_path / FILE_NAME)
    write_arrays(tmp_path / FILE_NAME, arrays, metadata | {"names": names})
    with pytest.raises(UserError, match="the policy file is damaged"):
        Policy.load(tmp_path / FILE_NAME)


@pytest.mark.parametrize("change", [{"name": 3}, {"name": "count"}, {"name": None}])
def test_a_contract_with_other_names_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    out = pspo.export_policy(POLICY, tmp_path / "p.onnx")
    contract = json.loads(out.with_suffix(".json").read_text())
    contract["input"]["columns"][0] |= change
    out.with_suffix(".json").write_text(json.dumps(contract))
    with pytest.raises(UserError, match="the contract of"):
        pspo.OnnxPolicy.load(out)


def test_names_need_no_pandas_and_no_pyarrow(tmp_path: Path) -> None:
    POLICY.save(tmp_path / FILE_NAME)
    out = pspo.export_policy(POLICY, tmp_path / "p.onnx")
    code = (
        "import sys; sys.modules.update(pandas=None, pyarrow=None); import pspo; "
        "one = dict(open=7.0, price=2.5, count=3); "
        "print(pspo.load_policy(sys.argv[1])(one).tolist(), pspo.OnnxPolicy.load(sys.argv[2])([one]).tolist())"
    )
    words = [sys.executable, "-c", code, str(tmp_path / FILE_NAME), str(out)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{POLICY(OBS[0]).tolist()} {POLICIES['onnx'](OBS[:1]).tolist()}"
