"""Write a dataset to a file, atomically; reading it again gives the same hash where the format can."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.core.files import replacing
from pspo.data.d4rl_layout import guess_bounds
from pspo.data.dataset import Dataset
from pspo.data.readers.hdf5 import save_hdf5
from pspo.data.readers.npz import save_npz
from pspo.data.readers.parquet import METADATA
from pspo.data.readers.tables import need_pyarrow

ROWS_AT_A_TIME = 1 << 16


def save_dataset(dataset: Dataset, path: str | Path) -> Path:
    """Write a dataset atomically; the suffix decides the format: .npz, .hdf5, .parquet or .csv.

    `pspo.data.lost_in` lists what a format cannot store.
    """
    return require_writer(path)(dataset, Path(path))


def require_writer(path: str | Path) -> Callable[[Dataset, Path], Path]:
    """The writer for that suffix; called before the data are read, which may take long."""
    writer = WRITERS.get(Path(path).suffix.lower())
    if writer is None:
        raise UserError(f"cannot save a dataset as '{path}': give a path that ends in {', '.join(WRITERS)}.")
    return writer


def lost_in(dataset: Dataset, path: str | Path) -> list[str]:
    """What the file cannot store, one sentence each."""
    if Path(path).suffix.lower() != ".csv":
        return []
    lost = []
    if dataset.task is not None:
        lost.append(f"a CSV names no task: read it with --task {dataset.task}.")
    try:
        low, high, guessed = guess_bounds(dataset.action)
        kept = np.array_equal(low, dataset.action_low) and np.array_equal(high, dataset.action_high)
        become = "the smallest and largest action of each column" if guessed else "-1 and 1"
    except UserError:
        kept, become = False, "unknown, as an action never changes, and it cannot be read"
    if not kept:
        lost.append(f"a CSV keeps no action bounds: when it is read they are {become}; other formats keep them.")
    return lost


def save_parquet(dataset: Dataset, path: Path) -> Path:
    """Columns obs_*, action_*, reward, next_obs_*, terminal, timeout; name, task, notes and bounds in the metadata."""
    need_pyarrow("writing Parquet files")
    from pyarrow import parquet

    labels = {"name": dataset.name, "task": dataset.task, "notes": list(dataset.notes)}
    labels |= {"action_low": dataset.action_low.tolist(), "action_high": dataset.action_high.tolist()}
    schema = _schema(dataset).with_metadata({METADATA: json.dumps(labels)})
    with (
        replacing(path) as temporary,
        # A dictionary is useless for noisy floats; checksums let a reader notice a flipped bit.
        parquet.ParquetWriter(temporary, schema, use_dictionary=False, write_page_checksum=True) as file,
    ):
        for batch in _batches(dataset, schema):
            file.write_batch(batch)
    return path


def save_csv(dataset: Dataset, path: Path) -> Path:
    """The same columns as in Parquet; with enough digits to read the same float32 numbers again."""
    need_pyarrow("writing CSV files")
    from pyarrow import csv

    schema = _schema(dataset)
    with replacing(path) as temporary, open(temporary, "xb") as file:
        file.write((",".join(schema.names) + "\n").encode())
        with csv.CSVWriter(file, schema, write_options=csv.WriteOptions(include_header=False)) as writer:
            for batch in _batches(dataset, schema):
                writer.write_batch(batch)
    return path


def _schema(dataset: Dataset) -> Any:
    import pyarrow as pa

    obs, action = range(dataset.obs_dim), range(dataset.action_dim)
    numbers = [*(f"obs_{d}" for d in obs), *(f"action_{d}" for d in action), "reward", *(f"next_obs_{d}" for d in obs)]
    return pa.schema([*((name, pa.float32()) for name in numbers), ("terminal", pa.bool_()), ("timeout", pa.bool_())])


def _batches(dataset: Dataset, schema: Any) -> Iterator[Any]:
    """Rows in batches; an unknown next state is an empty cell."""
    import pyarrow as pa

    for start in range(0, dataset.size, ROWS_AT_A_TIME):
        rows = slice(start, start + ROWS_AT_A_TIME)
        unknown = ~dataset.next_known[rows]
        columns = [
            *dataset.obs[rows].T,
            *dataset.action[rows].T,
            dataset.reward[rows],
            *(pa.array(column, mask=unknown) for column in dataset.next_obs[rows].T),
            dataset.terminal[rows],
            dataset.timeout[rows],
        ]
        yield pa.record_batch([pa.array(column) for column in columns], schema=schema)


WRITERS: dict[str, Callable[[Dataset, Path], Path]] = {
    ".npz": save_npz,
    ".hdf5": save_hdf5,
    ".h5": save_hdf5,
    ".parquet": save_parquet,
    ".csv": save_csv,
}
