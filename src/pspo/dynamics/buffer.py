"""A replay buffer of model-generated transitions, and batches that mix them with logged ones."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from pspo.data.batches import Transitions


class Buffer(NamedTuple):
    """A ring buffer. Only the first `size` entries have been written, and only they are sampled."""

    transitions: Transitions  # (capacity, ...)
    head: Array  # (): index of the next write
    size: Array  # ()

    @property
    def capacity(self) -> int:
        return self.transitions.reward.shape[0]


def empty_buffer(capacity: int, like: Transitions) -> Buffer:
    """An empty buffer for `capacity` transitions with the shapes of those in `like`."""
    parts = (jnp.zeros((capacity, *part.shape[1:]), part.dtype) for part in like)
    return Buffer(Transitions(*parts), jnp.int32(0), jnp.int32(0))


def append(buffer: Buffer, transitions: Transitions, happened: Array) -> Buffer:
    """Write the transitions that happened over the oldest ones. Of more than fit, the first are kept."""
    kept = happened & (jnp.cumsum(happened) <= buffer.capacity)
    index = (buffer.head + jnp.cumsum(kept) - 1) % buffer.capacity
    index = jnp.where(kept, index, buffer.capacity)  # out of range: dropped
    written = (old.at[index].set(new, mode="drop") for old, new in zip(buffer.transitions, transitions, strict=True))
    count = kept.sum().astype(jnp.int32)
    size = jnp.minimum(buffer.size + count, buffer.capacity)
    return Buffer(Transitions(*written), (buffer.head + count) % buffer.capacity, size)


def real_count(batch: int, ratio: float) -> int:
    """Number of logged transitions in a mixed batch."""
    return int(batch * ratio)


def mixed(buffer: Buffer, real: Transitions, ratio: float, key: Array) -> Transitions:
    """A batch whose first fraction `ratio` is from `real` and the rest from the buffer; all real if that is empty."""
    batch = real.reward.shape[0]
    pick = jax.random.randint(key, (batch,), 0, jnp.maximum(buffer.size, 1))
    take_real = (jnp.arange(batch) < real_count(batch, ratio)) | (buffer.size == 0)

    def choose(logged: Array, generated: Array) -> Array:
        where = take_real.reshape(-1, *(1,) * (logged.ndim - 1))
        return jnp.where(where, logged, generated[pick])

    return Transitions(*(choose(logged, generated) for logged, generated in zip(real, buffer.transitions, strict=True)))
