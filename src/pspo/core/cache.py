"""Results worth keeping between runs, found by the content of everything that decides them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from pspo.core.files import Corrupt, cache_folder, digest, locked, read_arrays, write_arrays
from pspo.core.trees import from_arrays, to_arrays

T = TypeVar("T")


class NamedArrays(Protocol):
    """A normaliser, as far as the cache knows one."""

    def _asdict(self) -> dict[str, Any]: ...


def content_key(kind: str, recipe: int, dataset: Any, norm: NamedArrays | None, config: Any, seed: int) -> str:
    """Hash of dataset (by its own `hash`), normaliser, configuration and seed; `recipe` counts up when the code itself changes its results.

    No normaliser where the result is in the log's own units.
    """
    digest = hashlib.sha256(f"{kind} {recipe} {dataset.hash} {seed}".encode())
    for name, array in norm._asdict().items() if norm else ():
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    digest.update(json.dumps(dataclasses.asdict(config), sort_keys=True).encode())
    return f"{kind}-{digest.hexdigest()[:24]}"


def remember(
    key: str, like: Callable[[], T], make: Callable[[], tuple[T, dict[str, Any]]]
) -> tuple[T, dict[str, Any], bool]:
    """The cached tree and facts of `key`, or those that `make` gives now; the flag says which.

    Two processes that want the same thing at once: one makes it, the other waits for it.
    """
    with locked(_place(key, "lock")):
        try:
            arrays, facts = read_arrays(_place(key))
            return from_arrays(like(), arrays), facts | {"digest": digest(arrays)}, True
        except (Corrupt, FileNotFoundError):
            pass  # absent, or damaged: make it (again)
        tree, facts = make()
        store(key, tree, facts)
    return tree, facts | {"digest": digest(to_arrays(tree))}, False


def store(key: str, tree: Any, facts: dict[str, Any]) -> None:
    write_arrays(_place(key), to_arrays(tree), facts)


def _place(key: str, ending: str = "safetensors") -> Path:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{key}.{ending}"
