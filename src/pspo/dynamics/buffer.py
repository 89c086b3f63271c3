"""Imagined rows: a ring that keeps the newest, and batches that mix them with logged ones."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from pspo.data.batches import Transitions


class Buffer(NamedTuple):
    """A ring of rows. Only the first `size` have ever been written, and only they are ever drawn."""

    rows: Transitions  # (capacity, ...)
    head: Array  # (): where the next row goes
    size: Array  # ()

    @property
    def capacity(self) -> int:
        return self.rows.reward.shape[0]


def empty_buffer(capacity: int, like: Transitions) -> Buffer:
    """Room for `capacity` rows of the shape of those in `like`."""
    room = (jnp.zeros((capacity, *part.shape[1:]), part.dtype) for part in like)
    return Buffer(Transitions(*room), jnp.int32(0), jnp.int32(0))


def append(buffer: Buffer, rows: Transitions, happened: Array) -> Buffer:
    """Write those rows that happened, in order; the oldest make room. More than fit at once: the first of them."""
    kept = happened & (jnp.cumsum(happened) <= buffer.capacity)
    place = (buffer.head + jnp.cumsum(kept) - 1) % buffer.capacity
    place = jnp.where(kept, place, buffer.capacity)  # out of range: dropped
    written = (old.at[place].set(new, mode="drop") for old, new in zip(buffer.rows, rows, strict=True))
    count = kept.sum().astype(jnp.int32)
    size = jnp.minimum(buffer.size + count, buffer.capacity)
    return Buffer(Transitions(*written), (buffer.head + count) % buffer.capacity, size)


def real_rows(batch: int, ratio: float) -> int:
    """How many rows of a batch are logged ones."""
    return int(batch * ratio)


def mixed(buffer: Buffer, real: Transitions, ratio: float, key: Array) -> Transitions:
    """A batch of which the first `ratio` are of `real` and the others imagined; all real while nothing is imagined."""
    batch = real.reward.shape[0]
    pick = jax.random.randint(key, (batch,), 0, jnp.maximum(buffer.size, 1))
    take_real = (jnp.arange(batch) < real_rows(batch, ratio)) | (buffer.size == 0)

    def choose(logged: Array, imagined: Array) -> Array:
        where = take_real.reshape(-1, *(1,) * (logged.ndim - 1))
        return jnp.where(where, logged, imagined[pick])

    return Transitions(*(choose(logged, imagined) for logged, imagined in zip(real, buffer.rows, strict=True)))
