"""The ring buffer against a Python list, and batches that mix logged and model-generated transitions."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.core.renamed import new_array_name
from pspo.core.trees import from_arrays, to_arrays
from pspo.data.batches import Transitions
from pspo.dynamics.buffer import Buffer, append, empty_buffer, mixed, real_count

CAPACITY, BATCH = 7, 8
append_compiled, mixed_compiled = jax.jit(append), jax.jit(mixed, static_argnames="ratio")


def numbered(first: int, count: int) -> Transitions:
    """Transitions with a number in every part; never zero, the content of unwritten ones."""
    n = np.arange(first, first + count, dtype=np.float32)
    return Transitions(
        jnp.asarray(np.column_stack([n, -n])),
        jnp.asarray(n[:, None] / 100.0),
        jnp.asarray(n),
        jnp.asarray(np.column_stack([n + 0.5, -n])),
        jnp.asarray(n % 2 == 0),
    )


def numbers_in(rows: Transitions) -> np.ndarray:
    """The numbers of the transitions, after a check that all parts of each agree."""
    n = np.asarray(rows.reward)
    for part, expected in zip(rows, numbered(0, 1000), strict=True):
        np.testing.assert_array_equal(part, np.asarray(expected)[n.astype(int)])
    return n.astype(int)


@settings(max_examples=40, deadline=None)
@given(rounds=st.lists(st.lists(st.booleans(), min_size=5, max_size=5), max_size=8), seed=st.integers(0, 2**31 - 1))
def test_only_written_transitions_are_sampled_and_the_oldest_replaced(rounds, seed: int) -> None:
    buffer, written, first = empty_buffer(CAPACITY, numbered(1, 1)), [], 1
    for happened in rounds:
        buffer = append_compiled(buffer, numbered(first, 5), jnp.asarray(happened))
        written += [first + i for i, here in enumerate(happened) if here]
        first += 5
    kept = written[-CAPACITY:]
    assert int(buffer.size) == len(kept)
    assert sorted(numbers_in(Transitions(*(part[: len(kept)] for part in buffer.transitions)))) == sorted(kept)
    drawn = mixed_compiled(buffer, numbered(500, BATCH), ratio=0.25, key=jax.random.PRNGKey(seed))
    generated = numbers_in(drawn)[2:] if kept else numbers_in(drawn)[:0]
    assert set(generated) <= set(kept)
    real = numbers_in(drawn)[:2] if kept else numbers_in(drawn)  # empty buffer: only logged transitions
    np.testing.assert_array_equal(real, 500 + np.arange(len(real)))


def test_every_transition_can_be_sampled() -> None:
    buffer = append(empty_buffer(CAPACITY, numbered(1, 1)), numbered(1, 5), jnp.ones(5, bool))
    drawn = {n for i in range(20) for n in numbers_in(mixed_compiled(buffer, numbered(500, BATCH), 0.0, _key(i)))}
    assert drawn == {1, 2, 3, 4, 5}


def _key(i: int) -> jax.Array:
    return jax.random.PRNGKey(i)


def test_more_transitions_than_fit_leave_no_gap() -> None:
    buffer = append(empty_buffer(3, numbered(1, 1)), numbered(1, 5), jnp.ones(5, bool))
    assert sorted(numbers_in(buffer.transitions)) == [1, 2, 3]
    assert (int(buffer.size), int(buffer.head)) == (3, 0)


@pytest.mark.parametrize(("batch", "ratio", "count"), [(256, 0.05, 12), (256, 0.5, 128), (10, 0.0, 0), (10, 1.0, 10)])
def test_a_mixed_batch_has_the_given_share_of_logged_transitions(batch: int, ratio: float, count: int) -> None:
    assert real_count(batch, ratio) == count
    buffer = append(empty_buffer(4, numbered(1, 1)), numbered(1, 4), jnp.ones(4, bool))
    real = numbered(100, 1)
    rows = mixed_compiled(buffer, Transitions(*(jnp.repeat(part, batch, 0) for part in real)), ratio, _key(0))
    assert (numbers_in(rows) == 100).sum() == count
    assert (numbers_in(rows) <= 4).sum() == batch - count


def test_types_are_kept() -> None:
    buffer = empty_buffer(4, numbered(1, 1))
    after = append_compiled(buffer, numbered(1, 4), jnp.ones(4, bool))
    assert isinstance(after, Buffer)
    for x, y in zip(jax.tree.leaves(buffer), jax.tree.leaves(after), strict=True):
        assert (x.shape, x.dtype, x.weak_type) == (y.shape, y.dtype, y.weak_type)


class StateWithBuffer(NamedTuple):
    buffer: Buffer


def test_the_buffer_of_an_older_checkpoint_is_read() -> None:
    """Its transitions were called rows."""
    state = StateWithBuffer(append(empty_buffer(3, numbered(1, 1)), numbered(1, 2), jnp.array([True, True])))
    old = {name.replace(".transitions", ".rows"): array for name, array in to_arrays(state).items()}
    assert ".buffer.rows.obs" in old
    restored = from_arrays(state, {new_array_name(name): array for name, array in old.items()})
    assert jax.tree.all(jax.tree.map(np.array_equal, restored, state))
