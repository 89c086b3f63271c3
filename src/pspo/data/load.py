"""Load a dataset from whatever the user gives: a name, a file, a data frame, or arrays in memory.

Two tables list the readers: NAMED_READERS for sources with a name, FILE_READERS for files by their suffix.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError, unknown_name
from pspo.core.progress import Progress, silent
from pspo.data.columns import Columns, as_columns
from pspo.data.dataset import Dataset
from pspo.data.readers import d4rl, minari
from pspo.data.readers.csv import load_csv
from pspo.data.readers.frames import frame_dataset, is_frame
from pspo.data.readers.hdf5 import load_hdf5
from pspo.data.readers.named_arrays import dataset_from_named_arrays
from pspo.data.readers.npz import load_npz
from pspo.data.readers.parquet import load_parquet

Loader = Callable[..., Dataset]


def _liquidation(size: int = 100_000, seed: int = 0) -> Dataset:
    from pspo.data.readers.liquidation import make_dataset  # imports the simulator, which is rarely needed

    return make_dataset(size=size, seed=seed)


BUILT_IN: dict[str, Loader] = {"liquidation": _liquidation}


@dataclass(frozen=True)
class NamedReader:
    """A source of datasets that are loaded by name."""

    example: str
    find: Callable[[str, Progress], Loader | None]
    """(name, progress) -> what loads the dataset of that name, or None; its parameters are the options of the user."""
    names: tuple[str, ...] = ()
    """All names, if there is a list: for "did you mean"."""


def _find_d4rl(source: str, progress: Progress) -> Loader | None:
    name = d4rl.d4rl_name(source)
    return None if name is None else lambda checksums=None: d4rl.load_d4rl(name, checksums, progress)


def _find_minari(source: str, progress: Progress) -> Loader | None:
    identifier = source.removeprefix(minari.PREFIX)
    return None if identifier == source else lambda: minari.load_minari(identifier)


NAMED_READERS = (
    NamedReader("liquidation", lambda source, progress: BUILT_IN.get(source), tuple(BUILT_IN)),
    NamedReader(d4rl.NAMES[7], _find_d4rl, d4rl.NAMES),
    NamedReader(f"{minari.PREFIX}ID", _find_minari),
)
FILE_READERS: dict[str, Loader] = {
    ".csv": load_csv,
    ".parquet": load_parquet,
    ".npz": load_npz,
    ".hdf5": load_hdf5,
    ".h5": load_hdf5,
}
READERS = FILE_READERS  # the name in version 0.1
EXAMPLES = ", ".join(reader.example for reader in NAMED_READERS)


def load_dataset(
    source: Any,
    columns: Columns | Mapping[str, Any] | None = None,
    task: str | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Dataset:
    """A built-in or D4RL name, minari:ID, a path, a data frame, a dictionary of arrays, or a Dataset.

    `columns` says which column is which, see `Columns`; without it, columns are recognised by their usual names. `task`
    names the simulator of the data. `progress` shows a download. `options` are those of a named dataset, such as size
    and seed of a built-in one.
    """
    named = _find_named(source, progress) if isinstance(source, str) else None
    if named is not None:
        _refuse_columns(source, columns)
        dataset = _with_options(source, named, options)
    elif options:
        raise UserError(f"options {', '.join(options)} apply only to named datasets: {EXAMPLES}.")
    else:
        dataset = _load(source, columns)
    return dataset if task is None else dataclasses.replace(dataset, task=task)


def is_name(source: str) -> bool:
    """Whether this is the name of a dataset, and not a file."""
    return _find_named(source, silent) is not None


def _find_named(source: str, progress: Progress) -> Loader | None:
    loaders = (reader.find(source, progress) for reader in NAMED_READERS)
    return next((loader for loader in loaders if loader is not None), None)


def _load(source: Any, columns: Columns | Mapping[str, Any] | None) -> Dataset:
    if isinstance(source, str | Path):
        return _read_file(Path(source), str(source), columns)
    if isinstance(source, Dataset):
        _refuse_columns(source.name, columns)
        return source
    if is_frame(source):
        return frame_dataset(source, as_columns(columns))
    if isinstance(source, Mapping):
        if columns is None:
            return Dataset.from_arrays(source)
        return dataset_from_named_arrays(source, source.__getitem__, as_columns(columns), "dataset")
    raise UserError(
        f"a dataset cannot be a {type(source).__name__}: give a name, a path, a data frame, a dictionary or a Dataset."
    )


def _refuse_columns(name: str, columns: Any) -> None:
    if columns is not None:
        raise UserError(f"columns cannot be chosen for '{name}', whose parts are known: leave them out.")


def _with_options(name: str, load: Loader, options: dict[str, Any]) -> Dataset:
    known = inspect.signature(load).parameters
    for option in options:
        if option not in known:
            raise unknown_name(f"option of dataset '{name}'", option, known)
    return load(**options)


def _read_file(path: Path, given: str, columns: Columns | Mapping[str, Any] | None) -> Dataset:
    if not path.exists():
        names = [name for reader in NAMED_READERS for name in reader.names]
        near = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"give a file, or a name such as {EXAMPLES}."
        raise UserError(f"no such file, and unknown dataset '{given}': {hint}")
    load = FILE_READERS.get(path.suffix.lower())
    if load is None:
        raise UserError(
            f"'{path}' cannot be read as a dataset: "
            f"give a file ({', '.join(FILE_READERS)}) or a name such as {EXAMPLES}."
        )
    return load(path, None if columns is None else as_columns(columns))
