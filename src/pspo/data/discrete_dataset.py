"""The kind of a dataset's actions changed: quantities as labels, or labels as quantities."""

from __future__ import annotations

import dataclasses

import numpy as np

from pspo.core.errors import UserError
from pspo.data.d4rl_layout import guess_bounds
from pspo.data.dataset import Dataset
from pspo.data.discrete import label_array, one_hot_actions, shown


def with_kind(dataset: Dataset, discrete: bool | None) -> Dataset:
    """With actions of the kind that the user gives, if any."""
    if discrete is None or discrete == dataset.discrete:
        return dataset
    if not discrete:
        return as_quantity(dataset, "leave --continuous out")
    coded, _ = one_hot_actions(dataset.action, discrete=True)
    assert coded is not None
    return dataclasses.replace(
        dataset, action=coded.one_hot(), action_labels=coded.labels, action_names=dataset.action_names[:1]
    )


def as_quantity(dataset: Dataset, remedy: str) -> Dataset:
    """Labels that are numbers as a quantity between the smallest and the largest."""
    if isinstance(dataset.action_labels[0], str):
        raise UserError(
            f"the actions of '{dataset.name}' are texts ({shown(dataset.action_labels)}) and no quantity: {remedy}."
        )
    action = label_array(dataset.action_labels)[dataset.action_codes][:, None].astype(np.float32)
    low, high, notes = guess_bounds(action)
    return dataclasses.replace(
        dataset,
        action=action,
        action_low=low,
        action_high=high,
        action_labels=(),
        action_mask=(),
        notes=(*dataset.notes, *notes),
    )
