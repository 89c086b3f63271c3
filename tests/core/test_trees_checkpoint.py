"""States to files and back: nothing is lost, the newest two are kept, and a damaged one is skipped with a warning."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pspo.core import checkpoint
from pspo.core.files import Corrupt, write_arrays
from pspo.core.trees import Expected, from_arrays, to_arrays
from pspo.nets.mlp import MLP
from tests.arrays import assert_equal_bits


class Made(NamedTuple):
    net: MLP
    opt: Any
    flags: jax.Array
    counts: dict[str, jax.Array]
    key: jax.Array
    step: jax.Array


def made(seed: int = 0, step: int = 0) -> Made:
    rng = np.random.default_rng(seed)
    weights = [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((2, 3), (3, 1))]
    net = MLP(weights, [jnp.zeros(3), jnp.ones(1)], "silu")
    return Made(
        net,
        optax.adam(1e-3).init(net),
        jnp.array([True, False]),
        {"b": jnp.arange(3, dtype=jnp.int32), "a": jnp.ones((2, 1), jnp.float16), "none": jnp.zeros((0, 2))},
        jax.random.PRNGKey(seed),
        jnp.int32(step),
    )


def silence(message: str) -> None:
    raise AssertionError(f"unexpected warning: {message}")


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


# Trees


def test_a_tree_is_read_back_bit_for_bit() -> None:
    state = made(3, 5)
    assert_equal_bits(from_arrays(made(), to_arrays(state)), state)


def test_shapes_are_enough_to_read_a_tree() -> None:
    state = made(3, 5)
    assert_equal_bits(from_arrays(jax.eval_shape(made), to_arrays(state)), state)


def test_a_length_of_none_is_any_and_the_others_still_count() -> None:
    like = {"a": Expected((None, 2), np.dtype(np.int32))}
    for rows in (0, 5):
        array = np.ones((rows, 2), np.int32)
        np.testing.assert_array_equal(from_arrays(like, {"['a']": array})["a"], array)
    for wrong in (np.ones((5, 3), np.int32), np.ones(5, np.int32), np.ones((5, 2), np.float32)):
        with pytest.raises(Corrupt):
            from_arrays(like, {"['a']": wrong})


def test_every_leaf_has_its_own_name() -> None:
    arrays = to_arrays(made())
    assert len(arrays) == len(jax.tree.leaves(made()))


@pytest.mark.parametrize("spoil", ["missing", "extra", "renamed", "shape", "dtype", "scalar"])
def test_any_other_structure_is_corrupt(spoil: str) -> None:
    arrays = to_arrays(made())
    name = next(n for n, a in arrays.items() if a.shape == (2, 3) and a.dtype == np.float32)
    array = arrays[name]
    match spoil:
        case "missing":
            del arrays[name]
        case "extra":
            arrays["another"] = array
        case "renamed":
            arrays["another"] = arrays.pop(name)
        case "shape":
            arrays[name] = array.T
        case "dtype":
            arrays[name] = array.astype(np.float16)
        case "scalar":
            step = next(n for n in arrays if n.endswith("step"))
            arrays[step] = arrays[step][None]
    with pytest.raises(Corrupt):
        from_arrays(made(), arrays)


# Checkpoints


def test_a_checkpoint_is_read_back_bit_for_bit(tmp_path) -> None:
    state = made(1, 40)
    checkpoint.save(tmp_path / "checkpoints", 40, state)
    result = checkpoint.load_newest(tmp_path / "checkpoints", made(), silence)
    assert result is not None
    assert result[0] == 40
    assert_equal_bits(result[1], state)


@pytest.mark.parametrize(("took", "pause"), [(0.0, 2.0), (0.05, 2.0), (0.1, 2.0), (0.2, 4.0), (3.0, 60.0)])
def test_saving_takes_at_most_a_twentieth_of_the_time(took: float, pause: float) -> None:
    assert checkpoint.pause_after(took) == pytest.approx(pause)


def without_scalars(seed: int) -> dict[str, jax.Array]:
    return {"a": jnp.full((3,), float(seed))}


def test_the_newest_two_are_kept_and_the_newest_is_read(tmp_path) -> None:
    for step in (5, 20, 100, 1000):  # as text "1000" would sort before "20"
        checkpoint.save(tmp_path, step, without_scalars(step))
    assert sorted(int(p.stem) for p in tmp_path.iterdir()) == [100, 1000]
    result = checkpoint.load_newest(tmp_path, without_scalars(0), silence)
    assert result is not None
    step, state = result
    assert step == 1000
    assert_equal_bits(state, without_scalars(1000))


def test_no_checkpoint_is_none(tmp_path) -> None:
    assert checkpoint.load_newest(tmp_path, without_scalars(0), silence) is None
    assert checkpoint.load_newest(tmp_path / "absent", without_scalars(0), silence) is None


@pytest.mark.parametrize("how", ["flipped", "cut", "empty", "misnamed", "structure"])
def test_a_damaged_checkpoint_is_reported_and_the_previous_one_used(tmp_path, how) -> None:
    checkpoint.save(tmp_path, 10, without_scalars(10))
    checkpoint.save(tmp_path, 20, without_scalars(20))
    older, newest = sorted(tmp_path.iterdir())
    match how:
        case "flipped":
            damage(newest)
        case "cut":
            newest.write_bytes(newest.read_bytes()[:-3])
        case "empty":
            newest.write_bytes(b"")
        case "misnamed":  # an older file under a newer name would silently repeat work
            newest.write_bytes(older.read_bytes())
        case "structure":
            write_arrays(newest, {"other": np.zeros(2, np.float32)}, {"step": 20})
    messages: list[str] = []
    result = checkpoint.load_newest(tmp_path, without_scalars(0), messages.append)
    assert result is not None
    assert result[0] == 10
    assert_equal_bits(result[1], without_scalars(10))
    assert len(messages) == 1
    assert "damaged" in messages[0]


def test_when_all_are_damaged_there_is_none(tmp_path) -> None:
    for step in (10, 20):
        checkpoint.save(tmp_path, step, without_scalars(step))
    for path in tmp_path.iterdir():
        damage(path)
    messages: list[str] = []
    assert checkpoint.load_newest(tmp_path, without_scalars(0), messages.append) is None
    assert len(messages) == 2


def test_a_checkpoint_that_cannot_be_written_leaves_those_before(tmp_path, monkeypatch) -> None:
    for step in (10, 20):
        checkpoint.save(tmp_path, step, without_scalars(step))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(tmp_path, 30, without_scalars(30))
    assert sorted(int(p.stem) for p in tmp_path.iterdir()) == [10, 20]


def test_damaged_newer_files_do_not_push_out_a_good_one(tmp_path) -> None:
    """A run that had to go back saves at earlier steps than the damaged files carry: its work must be kept."""
    for step in (90, 100):
        checkpoint.save(tmp_path, step, without_scalars(step))
    for path in tmp_path.iterdir():
        damage(path)
    assert checkpoint.load_newest(tmp_path, without_scalars(0), lambda _: None) is None
    checkpoint.save(tmp_path, 10, without_scalars(10))
    result = checkpoint.load_newest(tmp_path, without_scalars(0), lambda _: None)
    assert result is not None
    assert result[0] == 10


def test_temporary_files_of_a_killed_process_are_removed(tmp_path) -> None:
    checkpoint.save(tmp_path, 10, without_scalars(10))
    for name in (".0000000020.safetensors.abcd_123", ".mine", ".notes.safetensors.abcd1234", "0000000099.txt"):
        (tmp_path / name).write_text("x")
    checkpoint.save(tmp_path, 30, without_scalars(30))
    names = {path.name for path in tmp_path.iterdir()}
    assert {".mine", ".notes.safetensors.abcd1234", "0000000099.txt"} < names  # which are somebody's own
    assert ".0000000020.safetensors.abcd_123" not in names
