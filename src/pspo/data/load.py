"""From whatever names a dataset - a built-in name, a file, a table or arrays in memory - to the dataset."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError, unknown_name
from pspo.core.progress import Progress, silent
from pspo.data.columns import Columns, as_columns
from pspo.data.dataset import Dataset
from pspo.data.readers.csv import load_csv
from pspo.data.readers.d4rl import NAMES, d4rl_name, load_d4rl
from pspo.data.readers.frames import frame_dataset, is_frame
from pspo.data.readers.hdf5 import load_hdf5
from pspo.data.readers.mapped import mapped_dataset
from pspo.data.readers.minari import PREFIX, load_minari
from pspo.data.readers.npz import load_npz
from pspo.data.readers.parquet import load_parquet


def _liquidation(size: int = 100_000, seed: int = 0) -> Dataset:
    from pspo.data.readers.liquidation import make_dataset  # the simulator is loaded only by those who ask for it

    return make_dataset(size=size, seed=seed)


BUILT_IN: dict[str, Callable[..., Dataset]] = {"liquidation": _liquidation}
READERS: dict[str, Callable[..., Dataset]] = {
    ".csv": load_csv,
    ".parquet": load_parquet,
    ".npz": load_npz,
    ".hdf5": load_hdf5,
    ".h5": load_hdf5,
}
SOME_NAMES = f"{', '.join(BUILT_IN)}, {NAMES[7]}, {PREFIX}ID"


def load_dataset(
    source: Any,
    columns: Columns | Mapping[str, Any] | None = None,
    task: str | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Dataset:
    """A built-in or D4RL name, minari:ID, a path, a data frame, a dictionary of arrays, or a Dataset.

    `columns` says which column is which, see `Columns`; without it names must speak for themselves. `task` names the
    simulator that the data were recorded on. `progress` shows a download. `options` are those of the named dataset,
    such as size and seed of a built-in one.
    """
    named = _named(source, progress) if isinstance(source, str) else None
    if named is not None:
        _refuse_columns(source, columns)
        dataset = _with_options(source, named, options)
    elif options:
        raise UserError(f"options {', '.join(options)} apply only to named datasets: {SOME_NAMES}.")
    else:
        dataset = _load(source, columns)
    return dataset if task is None else dataclasses.replace(dataset, task=task)


def _named(source: str, progress: Progress) -> Callable[..., Dataset] | None:
    """What makes the dataset of that name."""
    if source in BUILT_IN:
        return BUILT_IN[source]
    if name := d4rl_name(source):
        return lambda checksums=None: load_d4rl(name, checksums, progress)
    if source.startswith(PREFIX):
        return lambda: load_minari(source.removeprefix(PREFIX))
    return None


def is_name(source: str) -> bool:
    """Whether this names a dataset by itself, and not by a file."""
    return _named(source, silent) is not None


def _load(source: Any, columns: Columns | Mapping[str, Any] | None) -> Dataset:
    if isinstance(source, str | Path):
        return _read(Path(source), str(source), columns)
    if isinstance(source, Dataset):
        _refuse_columns(source.name, columns)
        return source
    if is_frame(source):
        return frame_dataset(source, as_columns(columns))
    if isinstance(source, Mapping):
        if columns is None:
            return Dataset.from_arrays(source)
        return mapped_dataset(source, source.__getitem__, as_columns(columns), "dataset")
    raise UserError(
        f"a dataset cannot be a {type(source).__name__}: give a name, a path, a data frame, a dictionary or a Dataset."
    )


def _refuse_columns(name: str, columns: Any) -> None:
    if columns is not None:
        raise UserError(f"columns cannot be chosen for '{name}', whose parts are known: leave them out.")


def _with_options(name: str, make: Callable[..., Dataset], options: dict[str, Any]) -> Dataset:
    known = inspect.signature(make).parameters
    for option in options:
        if option not in known:
            raise unknown_name(f"option of dataset '{name}'", option, known)
    return make(**options)


def _read(path: Path, named: str, columns: Columns | Mapping[str, Any] | None) -> Dataset:
    if not path.exists():
        near = difflib.get_close_matches(named, [*BUILT_IN, *NAMES], n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"give a file, or a name such as {SOME_NAMES}."
        raise UserError(f"no such file, and unknown dataset '{named}': {hint}")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise UserError(
            f"'{path}' cannot be read as a dataset: give a file ({', '.join(READERS)}) or a name such as {SOME_NAMES}."
        )
    return reader(path, None if columns is None else as_columns(columns))
