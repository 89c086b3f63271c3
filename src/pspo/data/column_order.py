"""A dataset in the order that a run was trained in: columns by name, and actions with the same labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from pspo.core.column_names import positions
from pspo.core.errors import UserError
from pspo.data.dataset import Dataset
from pspo.data.discrete import Coded, Label, with_labels
from pspo.data.discrete_dataset import as_quantity


def in_order_of(
    dataset: Dataset, obs_names: Sequence[str], action_names: Sequence[str], action_labels: Sequence[Label] = ()
) -> Dataset:
    """The dataset with its columns in the order of these names, which must be its own, and actions of these labels.

    Where either side has no names, such as arrays without any, the order of the dataset counts.
    """
    dataset = _with_labels(dataset, action_labels)
    if dataset.encoder is not None:
        obs_names = ()  # in the order of the encoder
    changed: dict[str, Any] = {}
    for role, wanted, arrays in (
        ("obs", obs_names, ("obs", "next_obs")),
        ("action", action_names, ("action", "action_low", "action_high")),
    ):
        given = getattr(dataset, f"{role}_names")
        if not given or not wanted or given == tuple(wanted) or (role == "action" and dataset.discrete):
            continue
        order = positions(short_names(role, given, wanted), [*wanted], f"the {role} of '{dataset.name}'")
        changed |= {name: _reordered(getattr(dataset, name), order) for name in arrays}
        changed[f"{role}_names"] = tuple(wanted)
        if role == "obs":
            changed["action_mask"] = [rule._replace(column=order.index(rule.column)) for rule in dataset.action_mask]
    return dataclasses.replace(dataset, **changed) if changed else dataset


def _with_labels(dataset: Dataset, labels: Sequence[Label]) -> Dataset:
    """With the labels of a run, or as a quantity where it has none: part of a file may seem to be of another kind."""
    if tuple(labels) == dataset.action_labels:
        return dataset
    if not labels:
        return as_quantity(dataset, "give data of the same kind as the run's, which are quantities")
    values = Coded(dataset.action_codes, dataset.action_labels) if dataset.discrete else dataset.action
    if dataset.action_mask:
        raise UserError(f"'{dataset.name}' has masks for other labels than the run: give data with the same labels.")
    coded = with_labels(values, labels)
    names = dataset.action_names[:1]
    return dataclasses.replace(dataset, action=coded.one_hot(), action_labels=coded.labels, action_names=names)


def short_names(role: str, given: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """A table written by `save_dataset` says obs_price where the dataset said price."""
    short = {name: name.removeprefix(f"{role}_") for name in given}
    return [short[name] if name not in wanted and short[name] in wanted else name for name in given]


def _reordered(array: np.ndarray, order: list[int]) -> np.ndarray:
    moved = np.ascontiguousarray(array[..., order])
    moved.setflags(write=False)  # no other references: the dataset need not copy it
    return moved
