"""Cache of expensive results, such as fitted models: the key is a hash of everything that decides the result."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from pspo.core.files import Corrupt, cache_folder, digest, locked, read_arrays, remove_leftovers, write_arrays
from pspo.core.trees import from_arrays, to_arrays

T = TypeVar("T")


class NamedArrays(Protocol):
    """A normaliser, as far as the cache is concerned."""

    def _asdict(self) -> dict[str, Any]: ...


def content_key(kind: str, recipe: int, dataset: Any, norm: NamedArrays | None, config: Any, seed: int) -> str:
    """Hash of dataset (by its own `hash`), normaliser, configuration and seed.

    `recipe` is a version number: it goes up when a change of the code changes the result. `norm` is None where the
    result is in raw units.
    """
    digest = hashlib.sha256(f"{kind} {recipe} {dataset.hash} {seed}".encode())
    for name, array in norm._asdict().items() if norm else ():
        if array is not None:  # of what most data do not have
            digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    digest.update(json.dumps(dataclasses.asdict(config), sort_keys=True).encode())
    return f"{kind}-{digest.hexdigest()[:24]}"


def remember(
    key: str, like: Callable[[], T], make: Callable[[], tuple[T, dict[str, Any]]]
) -> tuple[T, dict[str, Any], bool]:
    """The cached tree and metadata of `key`, or what `make` computes now; the flag is true for a cached result.

    If two processes ask for the same result, one computes it and the other waits.
    """
    with locked(_path(key, "lock")):
        try:
            arrays, metadata = read_arrays(_path(key))
            return from_arrays(like(), arrays), metadata | {"digest": digest(arrays)}, True
        except (Corrupt, FileNotFoundError):
            pass  # absent or damaged: compute it
        remove_leftovers(cache_folder(), re.escape(_path(key).name))
        tree, metadata = make()
        store(key, tree, metadata)
    return tree, metadata | {"digest": digest(to_arrays(tree))}, False


def store(key: str, tree: Any, metadata: dict[str, Any]) -> None:
    """Put a result into the cache, in place of an older one."""
    write_arrays(_path(key), to_arrays(tree), metadata)


def _path(key: str, suffix: str = "safetensors") -> Path:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{key}.{suffix}"
