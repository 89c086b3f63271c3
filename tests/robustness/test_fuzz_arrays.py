"""Damaged checkpoints, policies and cached models: the same numbers are read, or none.

Damaged bytes do not match the checksum. Edited files have a correct checksum, as after an attack: what is read must
still be a state of the right shape, or a policy that can act.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pspo.core import cache, checkpoint
from pspo.core.files import Corrupt, digest, parse_json, read_arrays, write_arrays
from pspo.policies.policy import Policy
from tests.report.made_up_run import threshold_policy
from tests.robustness.damage import FEW_AND_MANY, bounded, damaged, edited, refused_or


class State(NamedTuple):
    weight: Any
    step: Any


STATE = State(jnp.arange(6, dtype=jnp.float32).reshape(2, 3), jnp.int32(20))
OTHER: list[Any] = [np.zeros(0), np.float32(1), np.full((2, 3), np.nan), np.zeros((3, 2), np.float64), np.arange(4) > 1]


def rewritten(path: Path, whole: dict[str, np.ndarray], change: tuple[str, int], metadata: Any) -> bool:
    """A file with edited arrays and metadata whose checksum is right; false where it cannot be written."""
    name, how = change
    arrays = dict(whole)
    if how == len(OTHER):
        del arrays[name]
    elif how < len(OTHER):
        arrays[name] = OTHER[how]
    try:
        write_arrays(path, arrays, metadata)
    except (UnicodeError, ValueError):
        return False
    return True


def changes(arrays: dict[str, np.ndarray]) -> st.SearchStrategy[tuple[str, int]]:
    return st.tuples(st.sampled_from(sorted(arrays)), st.integers(0, len(OTHER) + 1))


@pytest.mark.parametrize("times", FEW_AND_MANY)
def test_a_damaged_checkpoint_is_reported_and_the_previous_one_is_used(times: int, tmp_path: Path) -> None:
    before = STATE._replace(step=jnp.int32(10))
    checkpoint.save(tmp_path, 10, before)
    checkpoint.save(tmp_path, 20, STATE)
    newest = tmp_path / "0000000020.safetensors"
    whole = newest.read_bytes()

    @bounded(60 * times)
    @given(damaged(whole))
    def check(content: bytes) -> None:
        newest.write_bytes(content)
        messages: list[str] = []
        found = checkpoint.load_newest(tmp_path, STATE, messages.append)
        assert found is not None
        step, state = found
        assert (step, len(messages)) in ((20, 0), (10, 1))
        wanted = STATE if step == 20 else before
        assert all((a == b).all() for a, b in zip(state, wanted, strict=True))
        assert all("\n" not in text for text in messages)

    check()


@pytest.mark.parametrize("times", FEW_AND_MANY)
def test_an_edited_checkpoint_is_a_state_of_the_right_shape_or_skipped(times: int, tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 20, STATE)
    newest = tmp_path / "0000000020.safetensors"
    whole, metadata = read_arrays(newest)

    @bounded(30 * times)
    @given(changes(whole), edited(metadata))
    @example((".step", len(OTHER) + 1), {"step": 20.0})
    @example((".step", len(OTHER) + 1), [20])
    def check(change: tuple[str, int], metadata: Any) -> None:
        if not rewritten(newest, whole, change, metadata):
            return
        messages: list[str] = []
        if found := checkpoint.load_newest(tmp_path, STATE, messages.append):
            assert found[0] == 20
            assert found[1].weight.shape == (2, 3)
        else:
            assert len(messages) == 1

    check()


def test_foreign_files_among_checkpoints_are_left_alone(tmp_path: Path) -> None:
    """A name that only begins with a number is not a step."""
    for name in ("1.safetensors", "12x.safetensors", "0000000099 copy.safetensors", "²²²²²²²²²².safetensors"):
        (tmp_path / name).write_text("mine")
    for step in (10, 20, 30):
        checkpoint.save(tmp_path, step, STATE)
    found = checkpoint.load_newest(tmp_path, STATE, pytest.fail)
    assert found is not None
    assert found[0] == 30
    assert sum(path.read_bytes() == b"mine" for path in tmp_path.iterdir()) == 4


@pytest.mark.parametrize("times", FEW_AND_MANY)
def test_a_damaged_policy_is_refused_or_unchanged(times: int, tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    threshold_policy().save(path)
    obs = np.array([[1.0, 50.0, 1.2], [3.0, 20.0, 2.5]])
    wanted = Policy.load(path)(obs)

    @bounded(60 * times)
    @given(damaged(path.read_bytes()))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        if policy := refused_or(lambda: Policy.load(path)):
            assert (policy(obs) == wanted).all()

    check()


@pytest.mark.parametrize("times", FEW_AND_MANY)
def test_an_edited_policy_can_act_or_is_refused(times: int, tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    threshold_policy().save(path)
    whole, metadata = read_arrays(path)

    @bounded(60 * times)
    @given(changes(whole), edited(metadata))
    @example(("norm.obs_mean", 0), metadata)
    @example(("net.net.weights.0", 3), metadata)
    @example(("norm.obs_std", len(OTHER) + 1), metadata | {"nets": {"net": {"layers": 0, "activation": "silu"}}})
    @example(("norm.obs_std", len(OTHER) + 1), metadata | {"numbers": {"components": 10**12, "action_dim": 1}})
    @example(("norm.obs_std", len(OTHER) + 1), metadata | {"task": []})
    def check(change: tuple[str, int], metadata: Any) -> None:
        if rewritten(path, whole, change, metadata) and (policy := refused_or(lambda: Policy.load(path))):
            action = policy(np.zeros(policy.obs_dim))
            assert action.shape == (policy.action_dim,)

    check()


@pytest.mark.parametrize("seal", ["[" * 50_000, "[]", "5", '{"sha256": 1}', '{"sha256": "x", "facts": {"a": 1}}', "{"])
def test_a_malformed_checksum_header_is_refused(seal: str, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(2)}, tmp_path / "a", metadata={"pspo": seal})
    with pytest.raises(Corrupt):
        read_arrays(tmp_path / "a")


@pytest.mark.parametrize("metadata", ["[]", "5", "[" * 50_000])
def test_malformed_metadata_is_refused_despite_a_correct_checksum(metadata: str, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    arrays = {"a": np.zeros(2)}
    seal = json.dumps({"facts": metadata, "sha256": digest(arrays, metadata)})
    save_file(arrays, tmp_path / "a", metadata={"pspo": seal})
    with pytest.raises(Corrupt):
        read_arrays(tmp_path / "a")


@pytest.mark.parametrize("times", FEW_AND_MANY)
def test_a_damaged_cache_is_fitted_again(times: int, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PSPO_CACHE", str(tmp_path))
    made: list[int] = []

    def make() -> tuple[State, dict[str, Any]]:
        made.append(1)
        return STATE, {"quality": 0.5}

    cache.remember("pool-x", lambda: STATE, make)
    place = tmp_path / "pool-x.safetensors"
    whole = place.read_bytes()

    @bounded(40 * times)
    @given(damaged(whole))
    def check(content: bytes) -> None:
        place.write_bytes(content)
        made.clear()
        tree, metadata, found = cache.remember("pool-x", lambda: STATE, make)
        assert found == (not made)
        assert (tree.weight == STATE.weight).all()
        assert metadata["quality"] == 0.5
        assert place.read_bytes() == (content if found else whole)

    check()


def test_json_that_python_cannot_hold_is_a_value_error() -> None:
    for text in ("[" * 100_000, '{"a":' * 100_000, "1" * 19, f"-{'9' * 5000}"):
        with pytest.raises(ValueError):
            parse_json(text)
    assert parse_json("123456789012345678") == 123456789012345678
