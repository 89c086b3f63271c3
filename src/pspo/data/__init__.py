"""Logged data: one immutable dataset, where it comes from, and what may be wrong with it."""

from pspo.data.check import Finding, check, check_source, require_trainable
from pspo.data.columns import Columns
from pspo.data.dataset import Dataset
from pspo.data.load import BUILT_IN, load_dataset
from pspo.data.readers.npz import load_npz, save_npz
from pspo.data.save import lost_in, save_dataset

__all__ = [
    "BUILT_IN",
    "Columns",
    "Dataset",
    "Finding",
    "check",
    "check_source",
    "load_dataset",
    "load_npz",
    "lost_in",
    "require_trainable",
    "save_dataset",
    "save_npz",
]
