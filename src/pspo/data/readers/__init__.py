"""Readers of datasets: one module per source, and helpers that several of them share.

Sources: `csv`, `parquet`, `ipc`, `npz`, `hdf5` (files), `mapped_hdf5` (larger than memory), `sql` (queries), `d4rl`,
`minari`, `liquidation` (names), `frames` (data frames in memory), `text_arrays` (arrays of which some are texts).
Helpers: `tables` (rows to a dataset), `named_arrays` (arrays to a dataset), `several` (tables as one), `arrow_files`,
`number_columns`, `state_columns`, `label_columns`, `wide_columns`, `identifiers`, `unused_times`, `file_checks`,
`download`.

Called by pspo.data, above all by its load.py and save.py; everything else calls `pspo.data.load_dataset`, except for
D4RL's names and files. To add a reader, write a module here and add one row to the table in `several` (tables) or in
`pspo.data.load` (all others).
"""

from pspo.data.readers.csv import load_csv
from pspo.data.readers.d4rl import LEVELS, NAMES, TASKS, approximate_size, d4rl_file, d4rl_name, fetch_d4rl, load_d4rl
from pspo.data.readers.frames import frame_dataset, is_frame
from pspo.data.readers.hdf5 import load_hdf5, save_hdf5
from pspo.data.readers.minari import load_minari
from pspo.data.readers.npz import load_npz, save_npz
from pspo.data.readers.parquet import load_parquet

__all__ = [
    "LEVELS",
    "NAMES",
    "TASKS",
    "approximate_size",
    "d4rl_file",
    "d4rl_name",
    "fetch_d4rl",
    "frame_dataset",
    "is_frame",
    "load_csv",
    "load_d4rl",
    "load_hdf5",
    "load_minari",
    "load_npz",
    "load_parquet",
    "save_hdf5",
    "save_npz",
]
