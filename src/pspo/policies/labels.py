"""Discrete actions of a served policy: from logits to a label, refusing states that have no answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.data.discrete import Label, label_array, require_labels
from pspo.nets.bounds import MASKED


def require_defined(logits: np.ndarray) -> np.ndarray:
    """Refuse states without an answer: an integer cannot be NaN, and some label would come out."""
    undefined = np.isnan(logits).any(-1)
    if undefined.any():
        raise UserError(f"{_which(undefined)} has a value that is not a number: give finite numbers.")
    closed = (logits <= MASKED).all(-1)
    if closed.any():
        raise UserError(f"the mask leaves no action available in {_which(closed)}: correct the state or the mask.")
    return logits


def _which(bad: np.ndarray | np.bool) -> str:
    return "the observation" if bad.ndim == 0 else f"observation {int(np.argmax(bad.reshape(-1)))}"


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax over labels."""
    p = np.exp(logits - logits.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def choose_label(logits: np.ndarray, labels: Sequence[Label], rng: np.random.Generator | None) -> Any:
    """The most probable label, or with a generator a random one: one label, or an array of them."""
    drawn = logits if rng is None else logits + rng.gumbel(size=logits.shape)
    return label_array(labels)[np.argmax(drawn, axis=-1)]


def require_categorical(
    kind: str, labels: Sequence[Any], arrays: Mapping[str, np.ndarray], count: int, features: int
) -> None:
    """Labels and masks of a policy file fit its network; raises ValueError, as a file may hold anything."""
    if kind != "categorical" or len(labels) != count:
        raise ValueError(f"it is {kind} and has {len(labels)} labels for {count} actions")
    try:
        require_labels(labels)
    except UserError as problem:
        raise ValueError(str(problem)) from None
    mask = arrays["mask"]
    if mask.ndim != 2 or mask.shape[1] != 4:
        raise ValueError(f"its mask has shape {mask.shape}")
    for column, most in ((0, count), (1, features)):
        if not ((mask[:, column] >= 0) & (mask[:, column] < most) & (mask[:, column] % 1 == 0)).all():
            raise ValueError("its mask names a label or a feature that it does not have")
