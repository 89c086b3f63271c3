"""Write a dataset to a file, atomically; reading it again gives the same hash where the format can."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.core.files import replacing
from pspo.data.columns import Columns, choose
from pspo.data.d4rl_layout import ENCODER, OWN_COLUMNS, PER_ROW, guess_bounds, stored_actions
from pspo.data.dataset import Dataset
from pspo.data.discrete import label_array, one_hot_actions
from pspo.data.readers.hdf5 import save_hdf5
from pspo.data.readers.npz import save_npz
from pspo.data.readers.parquet import METADATA
from pspo.data.readers.tables import NO_COLUMNS, need_pyarrow

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
    suffix, lost = Path(path).suffix.lower(), []
    if suffix == ".csv" and dataset.row_times is not None:
        lost.append("a CSV keeps no times of the transitions: of the new file, only episodes can be held out.")
    if suffix == ".csv" and dataset.last_reward is not None:
        count = int(np.isfinite(dataset.last_reward).sum())
        lost.append(
            f"a CSV keeps no rewards of last rows without a next state ({count} in all), so episodes return less there."
        )
    if suffix == ".csv" and dataset.encoder is not None and not dataset.encoder.only_offsets:
        lost.append("a CSV keeps no encoder, so encoded columns are written as numbers; other formats keep it.")
    if (
        suffix in (".csv", ".parquet")
        and dataset.obs_names
        and _headers(dataset)[0][0] == "obs_0" != dataset.obs_names[0]
    ):
        lost.append("the names of the columns would not be recognised in a table, so they are numbered: obs_0, ...")
    if suffix in (".csv", ".parquet") and dataset.propensity is not None:
        lost.append("a table does not say which column is the propensity: read it with --propensity propensity.")
    if suffix != ".csv":
        return lost
    if dataset.task is not None:
        lost.append(f"a CSV names no task: read it with --task {dataset.task}.")
    if dataset.discrete:
        return [*lost, *_lost_labels(dataset)]
    try:
        low, high, guessed = guess_bounds(dataset.action)
        kept = np.array_equal(low, dataset.action_low) and np.array_equal(high, dataset.action_high)
        become = "the smallest and largest action of each column" if guessed else "-1 and 1"
    except UserError:
        kept, become = False, "unknown, as an action never changes, and it cannot be read"
    if not kept:
        lost.append(f"a CSV keeps no action bounds: when it is read they are {become}; other formats keep them.")
    return lost


def _lost_labels(dataset: Dataset) -> list[str]:
    """What a CSV does not tell about discrete actions."""
    seen = [dataset.action_labels[code] for code in np.unique(dataset.action_codes)]
    coded, _ = one_hot_actions(label_array(dataset.action_labels)[dataset.action_codes])
    lost = [] if coded else ["a CSV does not tell that these numbers are labels: read it with --discrete."]
    if len(seen) < len(dataset.action_labels):
        lost.append(f"a CSV keeps only the {len(seen)} labels that occur, of {len(dataset.action_labels)}.")
    if dataset.action_mask:
        lost.append("a CSV keeps no masks: give them again with --mask.")
    return lost


def save_parquet(dataset: Dataset, path: Path) -> Path:
    """Columns of obs, action, reward, next obs, terminal, timeout; name, task, notes and what is known of the actions
    in the metadata. Discrete actions are one column of labels."""
    pa = need_pyarrow("writing Parquet files")
    from pyarrow import parquet

    labels = {"name": dataset.name, "task": dataset.task, "notes": list(dataset.notes)}
    labels |= {"reward_name": dataset.reward_name} if dataset.reward_name else {}
    labels |= {key: array.tolist() for key, array in stored_actions(dataset).items()}
    labels |= {} if dataset.encoder is None else {ENCODER: dataset.encoder.as_json()}
    per_row = _per_row(dataset)
    labels |= {OWN_COLUMNS: [*per_row]} if per_row else {}
    labels |= {"time_name": dataset.time_name} if dataset.row_times is not None else {}
    more = [(name, pa.array(array[:0]).type) for name, array in per_row.items()]
    schema = pa.schema([*_schema(dataset), *more]).with_metadata({METADATA: json.dumps(labels)})
    with (
        replacing(path) as temporary,
        # A dictionary is useless for noisy floats; checksums let a reader notice a flipped bit.
        parquet.ParquetWriter(temporary, schema, use_dictionary=False, write_page_checksum=True) as file,
    ):
        for batch in _batches(dataset, schema, more=per_row):
            file.write_batch(batch)
    return path


def save_csv(dataset: Dataset, path: Path) -> Path:
    """The same columns as in Parquet; with enough digits to read the same float32 numbers again."""
    need_pyarrow("writing CSV files")
    from pyarrow import csv

    schema = _schema(dataset, _offsets(dataset))
    with replacing(path) as temporary, open(temporary, "xb") as file:
        file.write((",".join(schema.names) + "\n").encode())
        with csv.CSVWriter(file, schema, write_options=csv.WriteOptions(include_header=False)) as writer:
            for batch in _batches(dataset, schema, _offsets(dataset)):
                writer.write_batch(batch)
    return path


def _offsets(dataset: Dataset) -> np.ndarray:
    """What a CSV adds to the observations: it holds raw numbers, so that they are read as they were."""
    return np.zeros(dataset.obs_dim) if dataset.encoder is None else dataset.encoder.offsets


def _schema(dataset: Dataset, offsets: np.ndarray | None = None) -> Any:
    """Float32, or float64 where an offset is added."""
    import pyarrow as pa

    obs, action = _headers(dataset)
    shifts = [0.0] * len(obs) if offsets is None else offsets
    states = [pa.float64() if shift else pa.float32() for shift in shifts]
    actions = [pa.array(label_array(dataset.action_labels)).type] if dataset.discrete else [pa.float32()] * len(action)
    kinds = [*states, *actions, pa.float32(), *states]
    numbers = zip([*obs, *action, "reward", *(f"next_{name}" for name in obs)], kinds, strict=True)
    more = [] if dataset.propensity is None else [("propensity", pa.float32())]
    return pa.schema([*numbers, ("terminal", pa.bool_()), ("timeout", pa.bool_()), *more])


def _headers(dataset: Dataset) -> tuple[list[str], list[str]]:
    """Columns of obs and action: the names of the dataset, else with a prefix, else numbers - whatever is read back."""
    obs, action = dataset.obs_names, dataset.action_names
    actions = ["action"] if dataset.discrete else [f"action_{d}" for d in range(dataset.action_dim)]
    numbered = [f"obs_{d}" for d in range(dataset.obs_dim)], actions
    if any(set(name) & set(',;"\t\r\n') for name in (*obs, *action)):
        return numbered
    as_given = [*(obs or numbered[0])], [*(action or numbered[1])]
    prefixed = [_prefixed("obs", name) for name in as_given[0]], [_prefixed("action", name) for name in as_given[1]]
    return next((headers for headers in (as_given, prefixed) if _are_recognised(*headers)), numbered)


def _prefixed(role: str, name: str) -> str:
    return name if name.startswith(f"{role}_") else f"{role}_{name}"


def _are_recognised(obs: list[str], action: list[str]) -> bool:
    following = [f"next_{name}" for name in obs]
    try:
        chosen = choose([*obs, *action, "reward", *following, "terminal", "timeout"], Columns())
    except UserError:
        return False
    return (chosen["obs"], chosen["action"], chosen.get("next_obs")) == (obs, action, following)


def _per_row(dataset: Dataset) -> dict[str, np.ndarray]:
    """What else is known of the rows, by name."""
    arrays = {name: getattr(dataset, name) for name in PER_ROW}
    return {name: array for name, array in arrays.items() if array is not None}


def _batches(
    dataset: Dataset, schema: Any, offsets: np.ndarray | None = None, more: Mapping[str, np.ndarray] = NO_COLUMNS
) -> Iterator[Any]:
    """Rows in batches; an unknown next state is an empty cell."""
    import pyarrow as pa

    labels = label_array(dataset.action_labels) if dataset.discrete else None
    for start in range(0, dataset.size, ROWS_AT_A_TIME):
        rows = slice(start, start + ROWS_AT_A_TIME)
        unknown = ~dataset.next_known[rows]
        obs, next_obs = (_raw(part[rows], offsets) for part in (dataset.obs, dataset.next_obs))
        columns = [
            *obs,
            *([labels[dataset.action_codes[rows]]] if labels is not None else dataset.action[rows].T),
            dataset.reward[rows],
            *(pa.array(column, mask=unknown) for column in next_obs),
            dataset.terminal[rows],
            dataset.timeout[rows],
            *([] if dataset.propensity is None else [dataset.propensity[rows]]),
            *(array[rows] for array in more.values()),
        ]
        yield pa.record_batch([pa.array(column) for column in columns], schema=schema)


def _raw(part: np.ndarray, offsets: np.ndarray | None) -> list[np.ndarray]:
    shifts = np.zeros(part.shape[1]) if offsets is None else offsets
    return [c.astype(np.float64) + shift if shift else c for c, shift in zip(part.T, shifts, strict=True)]


WRITERS: dict[str, Callable[[Dataset, Path], Path]] = {
    ".npz": save_npz,
    ".hdf5": save_hdf5,
    ".h5": save_hdf5,
    ".parquet": save_parquet,
    ".csv": save_csv,
}
