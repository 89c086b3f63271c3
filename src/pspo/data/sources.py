"""From whatever names a dataset - a built-in name, a file, arrays in memory - to the dataset."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pspo.data.dataset import Dataset
from pspo.data.store import load_npz
from pspo.errors import UserError, unknown_name


def _liquidation(size: int = 100_000, seed: int = 0) -> Dataset:
    from pspo.envs.liquidation import make_dataset  # the simulator is loaded only by those who ask for it

    return make_dataset(size=size, seed=seed)


BUILT_IN: dict[str, Callable[..., Dataset]] = {"liquidation": _liquidation}
READERS: dict[str, Callable[[Path], Dataset]] = {".npz": load_npz}


def load_dataset(source: str | Path | Mapping[str, Any] | Dataset, **options: Any) -> Dataset:
    """`options` are for built-in datasets, such as size and seed; data that already exist take none."""
    if isinstance(source, str) and source in BUILT_IN:
        return _make_built_in(source, options)
    if options:
        raise UserError(f"options {', '.join(options)} apply only to built-in datasets: {', '.join(BUILT_IN)}.")
    if isinstance(source, Dataset):
        return source
    if isinstance(source, Mapping):
        return Dataset.from_arrays(source)
    if isinstance(source, str | Path):
        return _read(source)
    raise UserError(f"a dataset cannot be a {type(source).__name__}: give a name, a path, a dictionary or a Dataset.")


def _make_built_in(name: str, options: dict[str, Any]) -> Dataset:
    make = BUILT_IN[name]
    known = inspect.signature(make).parameters
    for option in options:
        if option not in known:
            raise unknown_name(f"option of dataset '{name}'", option, known)
    return make(**options)


def _read(source: str | Path) -> Dataset:
    path = Path(source)
    if not path.exists():
        raise UserError(f"no such file, and {unknown_name('dataset', str(source), BUILT_IN)}")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        suffixes, names = ", ".join(READERS), ", ".join(BUILT_IN)
        raise UserError(f"'{path}' cannot be read as a dataset: give a file ({suffixes}) or a built-in name ({names}).")
    return reader(path)
