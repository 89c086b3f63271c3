"""Logged data: the dataset, its readers and writers, checks, normalisers and batches.

All later layers may call it, and users call it through `pspo`. `load` and `save` find the reader or writer of a
source, `check` finds problems, `normalise` and `batches` (which needs JAX) prepare a dataset for training.
"""

from pspo.data.check import Finding, check, check_source, require_trainable
from pspo.data.columns import Columns
from pspo.data.dataset import Dataset
from pspo.data.load import BUILT_IN, load_dataset
from pspo.data.normalise import Normaliser, fit_normaliser, normaliser_in
from pspo.data.readers.npz import load_npz, save_npz
from pspo.data.save import lost_in, save_dataset

__all__ = [
    "BUILT_IN",
    "Columns",
    "Dataset",
    "Finding",
    "Normaliser",
    "check",
    "check_source",
    "fit_normaliser",
    "load_dataset",
    "load_npz",
    "lost_in",
    "normaliser_in",
    "require_trainable",
    "save_dataset",
    "save_npz",
]
