"""Pytrees of arrays to and from named arrays: how states, models and policies are stored in files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from pspo.core.files import Corrupt

T = TypeVar("T")


@dataclass(frozen=True)
class Expected:
    """A leaf that is not known yet, where lengths may be None for any; JAX's own ShapeDtypeStruct refuses that."""

    shape: tuple[int | None, ...]
    dtype: np.dtype


def to_arrays(tree: object) -> dict[str, np.ndarray]:
    """Every leaf of a tree, by its path."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def from_arrays(like: T, arrays: dict[str, np.ndarray]) -> T:
    """A tree with the structure of `like` (arrays, shapes or `Expected`); a difference is an error."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    names = [jax.tree_util.keystr(path) for path, _ in leaves]
    if set(names) != set(arrays):
        different = sorted(set(names) ^ set(arrays))
        raise Corrupt(f"the file's arrays differ from what is expected, first at {different[0]}.")
    restored = []
    for name, (_, leaf) in zip(names, leaves, strict=True):
        array = arrays[name]
        wanted = tuple(leaf.shape)
        fits = len(wanted) == array.ndim and all(b in (a, None) for a, b in zip(array.shape, wanted, strict=True))
        if not fits or array.dtype != leaf.dtype:
            raise Corrupt(f"{name} is {array.dtype}{array.shape}, expected {leaf.dtype}{wanted}.")
        restored.append(jnp.asarray(array))
    return jax.tree_util.tree_unflatten(structure, restored)
