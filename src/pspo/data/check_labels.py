"""Problems of discrete actions: labels that hardly occur, actions that their own mask forbids."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pspo.data.action_mask import available
from pspo.data.dataset import Dataset
from pspo.data.discrete import shown

RARE = 1e-3  # of all rows


def broken_masks(dataset: Dataset) -> Iterator[tuple[str, str, int]]:
    """Code, message and row of what forbids training."""
    if not dataset.action_mask:
        return
    allowed = available(dataset.action_mask, dataset.obs, len(dataset.action_labels))
    forbidden = ~allowed[np.arange(dataset.size), dataset.action_codes]
    if forbidden.any():
        row = int(forbidden.argmax())
        label = dataset.action_labels[dataset.action_codes[row]]
        yield (
            "masked-action",
            f"the mask forbids the action '{label}' at {dataset.row_name(row)} (rows affected: {forbidden.sum()}): "
            "correct the mask or the rows.",
            row,
        )
    after = ~available(dataset.action_mask, dataset.next_obs, len(dataset.action_labels)).any(axis=1)
    after &= dataset.next_known & ~dataset.terminal
    if after.any():
        row = int(after.argmax())
        yield (
            "all-masked",
            f"the mask leaves no action available after {dataset.row_name(row)} (rows affected: {after.sum()}): "
            "correct the mask.",
            row,
        )


def rare_labels(dataset: Dataset) -> Iterator[tuple[str, str]]:
    """Code and message: labels about which little can be learned."""
    counts = np.bincount(dataset.action_codes, minlength=len(dataset.action_labels))
    rare = np.flatnonzero(counts < max(1, RARE * dataset.size))
    if rare.size:
        names = shown([dataset.action_labels[i] for i in rare])
        yield (
            "rare-labels",
            f"the rarest {len(rare)} of {len(counts)} actions ({names}) are taken in {counts[rare].sum()} of "
            f"{dataset.size} rows: little can be learned about them, so collect more, or mask them.",
        )
