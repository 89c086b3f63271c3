"""Load a dataset from whatever the user gives: a name, a file, a data frame, or arrays in memory.

Three tables list the readers: NAMED_READERS for sources with a name, and by their suffix FILE_READERS for files and
TABLE_READERS (in `readers/several.py`) for files that may also be one of several.
"""

from __future__ import annotations

import dataclasses
import difflib
import glob
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pspo.core.errors import UserError, unknown_name
from pspo.core.masked_arrays import without_mask
from pspo.core.progress import Progress, silent
from pspo.data.action_mask import with_mask
from pspo.data.column_map import with_map
from pspo.data.columns import BOUNDS, Columns, as_columns, natural_key
from pspo.data.copied_files import where_to_read
from pspo.data.d4rl_layout import BOUNDS_NOTE
from pspo.data.dataset import Dataset
from pspo.data.describe import describe, first_rows
from pspo.data.discrete_dataset import with_kind
from pspo.data.encode_arrays import FIT, Encoding, require_same
from pspo.data.readers import d4rl, minari
from pspo.data.readers.arrow_files import arrow_dataset_of
from pspo.data.readers.csv import load_csv
from pspo.data.readers.frames import as_arrow, frame_dataset, frame_table, is_frame
from pspo.data.readers.hdf5 import load_hdf5
from pspo.data.readers.ipc import arrow_dataset_table, is_arrow_dataset
from pspo.data.readers.named_arrays import dataset_from_named_arrays
from pspo.data.readers.npz import load_npz
from pspo.data.readers.parquet import load_parquet
from pspo.data.readers.several import TABLE_READERS, files_in, joined, table_of_files
from pspo.data.readers.sql import sql_table
from pspo.data.readers.tables import table_dataset
from pspo.data.readers.text_arrays import dataset_from_text_arrays, state_has_texts

Loader = Callable[..., Dataset]
OF_ACTIONS = (*BOUNDS, "discrete", "mask")  # what can be chosen for data whose parts are known


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
    return None if identifier == source else lambda encoding=FIT: minari.load_minari(identifier, encoding)


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
EXAMPLES = ", ".join(reader.example for reader in NAMED_READERS)


def readable_suffixes() -> list[str]:
    """The ends of the names of all files that can be read."""
    return [*dict.fromkeys((*FILE_READERS, *TABLE_READERS))]


def load_dataset(
    source: Any,
    columns: Columns | Mapping[str, Any] | None = None,
    task: str | None = None,
    progress: Progress = silent,
    encoder: Encoding = FIT,
    use_map: bool = True,
    **options: Any,
) -> Dataset:
    """A built-in or D4RL name, minari:ID, a path, a data frame, a dictionary of arrays, or a Dataset.

    A path may also be a folder or a pattern such as logs/*.parquet, and `source` a list of paths or of data frames, or
    a pyarrow.dataset.Dataset: rows of several tables follow each other.

    `columns` says which column is which, see `Columns`; without it, columns are recognised by their usual names. Where
    a column map is beside the data (`log.toml`), it fills what `columns` leaves open, unless `use_map` is false. `task`
    names the simulator of the data. `progress` shows a download. `encoder` is that of a run whose policy is to see the
    data; by default one is fitted, if the data need one (`Dataset.encoder`). `options` are those of a named dataset,
    such as size and seed of a built-in one.
    """
    if task is not None and not task.strip():  # an unset variable of a shell: it would count as not given
        raise UserError("the name of the task is empty: give one, or leave it out.")
    named = _find_named(source, progress) if isinstance(source, str) else None
    notes = []
    if use_map and named is None:
        columns, notes = columns_with_map(source, columns)
    arrays_have_roles = columns is not None  # else the arrays of a file have D4RL's names
    columns = as_columns(columns)
    arrays_have_roles &= columns.choose_columns() or not columns.bounds()
    if named is not None:
        refuse_columns(source, columns)  # before a download
        dataset = _with_known_columns(_with_options(source, named, options, encoder), source, columns)
    elif options:
        raise UserError(f"options {', '.join(options)} apply only to named datasets: {EXAMPLES}.")
    else:
        dataset = _load(source, columns, arrays_have_roles, encoder)
    dataset = _with_bounds(dataset, columns)
    if notes:
        dataset = dataclasses.replace(dataset, notes=(*notes, *dataset.notes))
    return dataset if task is None else dataclasses.replace(dataset, task=task)


def columns_with_map(source: Any, columns: Columns | Mapping[str, Any] | None) -> tuple[Columns | None, list[str]]:
    """The columns as given and as the column map beside the source says; with a note if there is one."""
    given = None if columns is None else as_columns(columns)
    text = source_text(source)
    return (given, []) if text is None or is_name(text) else with_map(text, given)


def describe_source(source: Any, columns: Columns | Mapping[str, Any] | None = None) -> str:
    """A first column map for the tables of a path, a pattern or a list, as TOML."""
    text = source_text(source)
    if text is None or is_name(text) or (Path(text).is_file() and Path(text).suffix.lower() not in TABLE_READERS):
        raise UserError(
            f"'{text or type(source).__name__}' has no columns to name: give a table or a folder of tables."
        )
    tables, columns = _find_tables(Path(text), text), as_columns(columns)
    data = arrow_dataset_of(tables.files, tables.root)
    rows = first_rows(data if columns.query is None else sql_table(columns.query, data))
    return describe(rows, tables.name, len(tables.files), columns)


def refuse_to_replace(source: Any, target: str | Path) -> None:
    """Data that were read are rounded to float32: written again, they must not replace the files they come from."""
    text = source_text(source)
    if text is None or is_name(text) or not Path(target).is_file():
        return
    files = [Path(text)] if Path(text).is_file() else _find_tables(Path(text), text).files
    if any(file.exists() and file.samefile(target) for file in files):
        raise UserError(f"'{target}' is what is to be converted, and would be lost: choose another name.")


def is_name(source: str) -> bool:
    """Whether this is the name of a dataset, and not a file."""
    return _find_named(source, silent) is not None


def _find_named(source: str, progress: Progress) -> Loader | None:
    loaders = (reader.find(source, progress) for reader in NAMED_READERS)
    return next((loader for loader in loaders if loader is not None), None)


def _load(source: Any, columns: Columns, arrays_have_roles: bool, encoder: Encoding) -> Dataset:
    if (text := source_text(source)) is not None:
        text = where_to_read(text)
        return _read_path(Path(text), text, columns, arrays_have_roles, encoder)
    if isinstance(source, Dataset):
        require_same(source.encoder, encoder, source.name)
        return _with_known_columns(source, source.name, columns)
    if columns.query is not None:
        if not (is_arrow_dataset(source) or is_frame(source)):
            raise UserError(f"a {type(source).__name__} cannot be queried with sql: give a table or the path of one.")
        data = source if is_arrow_dataset(source) else as_arrow(source)
        return table_dataset(sql_table(columns.query, data), columns, {"name": "dataset"}, encoder)
    if is_arrow_dataset(source):
        return table_dataset(arrow_dataset_table(source), columns, {"name": "dataset"}, encoder)
    if is_frame(source):
        return frame_dataset(source, columns, encoder)
    if isinstance(source, list | tuple) and source and all(map(is_frame, source)):
        labels = [f"frame {number}" for number in range(len(source))]
        table = joined([frame_table(frame) for frame in source], labels, columns)
        return table_dataset(table, columns, {"name": "dataset"}, encoder)
    if isinstance(source, Mapping):
        source = {name: without_mask(array) for name, array in source.items()}
        arrays_have_roles |= "observations" not in source  # columns by name, as a data frame has them
        if state_has_texts(source, columns if arrays_have_roles else None):
            return dataset_from_text_arrays(source, columns, encoder)
        if not arrays_have_roles:
            return Dataset.from_arrays({**source, **columns.bounds()}, encoder=encoder)
        return dataset_from_named_arrays(source, source.__getitem__, columns, "dataset", encoding=encoder)
    raise UserError(
        f"a dataset cannot be a {type(source).__name__}: give a name, a path, a data frame, a list of paths or frames, "
        "a dictionary or a Dataset."
    )


def refuse_columns(name: str, columns: Columns) -> None:
    """Of data whose parts are known, only what their actions are can be chosen."""
    if chosen := columns.given().keys() - set(OF_ACTIONS):
        options = ", ".join(option for option in columns.given() if option in chosen)
        raise UserError(f"'{name}' has known columns, so {options} cannot be chosen: leave them out.")


def _with_known_columns(dataset: Dataset, name: str, columns: Columns) -> Dataset:
    refuse_columns(name, columns)
    return with_mask(with_kind(dataset, columns.is_discrete), columns.mask)


def _with_bounds(dataset: Dataset, columns: Columns) -> Dataset:
    """Bounds that the user gives replace those of the source; readers of tables have used them already."""
    bounds = columns.bounds()
    for name, bound in bounds.items():
        if np.size(bound) not in (1, dataset.action_dim):
            raise UserError(
                f"{name} has {np.size(bound)} numbers where the action has {dataset.action_dim} columns: "
                "give one per column."
            )
        bounds[name] = np.broadcast_to(np.float32(bound), dataset.action_dim)
    if all(np.array_equal(getattr(dataset, name), bound) for name, bound in bounds.items()):
        return dataset
    notes = [note for note in dataset.notes if not note.startswith(BOUNDS_NOTE)]
    return dataclasses.replace(dataset, notes=notes, **bounds)


def _with_options(name: str, load: Loader, options: dict[str, Any], encoder: Encoding) -> Dataset:
    takes = inspect.signature(load).parameters
    known = [option for option in takes if option != "encoding"]
    for option in options:
        if option not in known:
            raise unknown_name(f"option of dataset '{name}'", option, known)
    if "encoding" in takes:
        return load(**options, encoding=encoder)
    dataset = load(**options)
    require_same(dataset.encoder, encoder, name)
    return dataset


def _read_path(path: Path, given: str, columns: Columns, arrays_have_roles: bool, encoder: Encoding) -> Dataset:
    """One file, or the tables of a folder, a pattern or a list with commas."""
    if columns.query is not None and path.is_file() and path.suffix.lower() not in TABLE_READERS:
        raise UserError(f"'{path}' cannot be queried with --sql: give tables ({', '.join(TABLE_READERS)}).")
    # A pipe or a device too: the reader refuses it in its own words.
    if path.exists() and not path.is_dir() and columns.query is None:
        return _read_file(path, columns, arrays_have_roles, encoder)
    tables = _find_tables(path, given)
    if columns.query is not None:
        table = sql_table(columns.query, arrow_dataset_of(tables.files, tables.root))
    else:
        table = table_of_files(tables.files, columns, tables.root, encoder)
    return table_dataset(table, columns, {"name": tables.name}, encoder)


class _Tables(NamedTuple):
    files: list[Path]
    name: str  # what to call their rows
    root: Path  # folders below it may say more about the rows, as in site=a/month=3


def _find_tables(path: Path, given: str) -> _Tables:
    """The files of a path, a folder, a pattern or a list."""
    if path.is_file():
        return _Tables([path], path.stem, path.parent)
    if path.is_dir():
        return _Tables(files_in(path), path.resolve().name, path)
    if any(letter in given for letter in "*?["):
        files = [Path(file) for file in glob.glob(given, recursive=True)]
        files = sorted((f for f in files if not f.name.startswith(("_", "."))), key=lambda file: natural_key(str(file)))
        if not files:
            raise UserError(f"no file fits '{given}': correct the pattern.")
        return _Tables(_with_folders(files), _plain_part(given).name or "dataset", _plain_part(given))
    if "," in given:
        texts = [part.strip() for part in given.split(",")]
        if not all(texts):  # it would be the current folder, and all tables in it
            raise UserError(f"a name is empty in the list '{given}': leave the comma out, or name a file.")
        first, *others = parts = [Path(text) for text in texts]
        files = _with_folders(parts)
        root = Path(os.path.commonpath([os.path.abspath(file.parent) for file in files]))
        return _Tables(files, f"{first.stem}-and-{len(others)}-more", root)
    names = [name for reader in NAMED_READERS for name in reader.names]
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"give a file, or a name such as {EXAMPLES}."
    raise UserError(f"no such file, and unknown dataset '{given}': {hint}")


def _read_file(path: Path, columns: Columns, arrays_have_roles: bool, encoder: Encoding) -> Dataset:
    suffix = path.suffix.lower()
    if suffix in TABLE_READERS and suffix not in FILE_READERS:
        table = table_of_files([path], columns, path.parent, encoder)
        return table_dataset(table, columns, {"name": path.stem}, encoder)
    load = FILE_READERS.get(suffix)
    if load is None:
        raise UserError(
            f"'{path}' cannot be read as a dataset: "
            f"give a file ({', '.join(readable_suffixes())}) or a name such as {EXAMPLES}."
        )
    columns_or_none = columns if arrays_have_roles or suffix in TABLE_READERS else None
    if len(inspect.signature(load).parameters) > 2:
        return load(path, columns_or_none, encoder)
    dataset = load(path, columns_or_none)  # a reader that knows nothing of encoders
    require_same(dataset.encoder, encoder, dataset.name)
    return dataset


def _with_folders(files: Sequence[Path]) -> list[Path]:
    return [part for file in files for part in (files_in(file) if file.is_dir() else [file])]


def _plain_part(pattern: str) -> Path:
    """The folders of a pattern before the first that has something wild in it."""
    parts = Path(pattern).parent.parts
    wild = [index for index, part in enumerate(parts) if any(letter in part for letter in "*?[")]
    return Path(*parts[: wild[0] if wild else len(parts)])


def source_text(source: Any) -> str | None:
    """How a run names its source: a name, a path, or paths with commas between; None for data in memory."""
    if isinstance(source, str) and not source.strip():  # an unset variable of a shell; as a path, the current folder
        raise UserError(f"the name of the data is empty: give a file, or a name such as {EXAMPLES}.")
    if isinstance(source, str | Path):
        return str(source)
    if isinstance(source, list | tuple) and source and all(isinstance(part, str | Path) for part in source):
        if with_comma := [str(part) for part in source if "," in str(part)]:
            raise UserError(
                f"'{with_comma[0]}' has a comma in its name, and cannot be one of several files: rename it."
            )
        return ",".join(map(str, source))
    return None
