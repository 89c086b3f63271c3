"""Discrete actions: which values are labels and which are quantities, and labels as one-hot vectors.

The rule, where the user does not say (`--discrete`, `--continuous`): texts and booleans are labels; whole numbers are
labels where they follow each other and are at most 20, such as 0 to 4; everything else is a quantity. Between a label
and a quantity the first is the safer guess: labels that are taken for quantities give a policy that means nothing,
quantities that are taken for labels only need more data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pspo.core.errors import UserError

Label = int | float | str

MOST_BY_DEFAULT = 20  # whole numbers that are taken for labels without being asked
MOST_LABELS = 256  # an action is a one-hot vector of this length at most
SHOWN = 8
NOTE = "the actions are "
"""How a note on the kind of the actions begins: training shows these notes too."""


class Coded(NamedTuple):
    """A column of labels: one number per row, and the label of each number."""

    codes: np.ndarray
    labels: tuple[Label, ...]

    def one_hot(self) -> np.ndarray:
        """(rows, labels) float32."""
        rows = np.zeros((len(self.codes), len(self.labels)), np.float32)
        rows[np.arange(len(self.codes)), self.codes] = 1.0
        rows.setflags(write=False)  # no other references: the dataset need not copy it
        return rows


def one_hot_actions(
    values: Any, discrete: bool | None = None, labels: Sequence[Label] = ()
) -> tuple[Coded | None, list[str]]:
    """The labels of an action column, and a note on what was decided; None for quantities.

    `values` is an array of one column, or is coded already. `discrete` is what the user says; `labels` are all labels
    where they are known, and then the values are labels.
    """
    if np.size(np.asarray(labels, object)):
        return with_labels(values, labels), []
    column = values if isinstance(values, Coded) else _column(values)
    if column is None:
        if discrete:
            shape = np.asarray(values).shape
            columns = shape[-1] if len(shape) == 2 else 0
            raise UserError(f"the actions have {columns} columns and are to be discrete: join them into one column.")
        return None, []
    if discrete is False:
        _require_numbers(column)
        return None, []
    if discrete is None and not isinstance(column, Coded) and not _are_labels(column):
        return None, _note_on_quantities(column)
    coded = column if isinstance(column, Coded) else _code(column)
    _require_count(coded.labels)
    return coded, [] if discrete else [_note_on_labels(column, coded.labels)]


def with_labels(values: Any, labels: Sequence[Label]) -> Coded:
    """Values as codes of given labels; whole numbers are codes themselves where the labels are texts."""
    labels = require_labels(labels)
    column = values if isinstance(values, Coded) else _column(values)
    if column is None:
        return _from_one_hot(np.asarray(values), labels)
    coded = column if isinstance(column, Coded) else _code(column)
    code_of: dict[Any, int] = {label: code for code, label in enumerate(labels)}
    if isinstance(labels[0], str) and coded.labels and not isinstance(coded.labels[0], str):
        code_of = dict(enumerate(range(len(labels))))
    unknown = [label for label in coded.labels if label not in code_of]
    if unknown:
        raise UserError(f"the action {unknown[0]!r} is not among the labels {shown(labels)}: correct it, or add it.")
    return Coded(np.array([code_of[label] for label in coded.labels], np.int64)[coded.codes], labels)


def require_labels(labels: Sequence[Any]) -> tuple[Label, ...]:
    """Labels as plain Python values; all texts or all numbers, each once."""
    given = np.asarray(labels, object).reshape(-1).tolist()
    plain = tuple(label.item() if isinstance(label, np.generic) else label for label in given)
    if not all(isinstance(label, str) for label in plain):
        if not all(isinstance(label, int | float) and np.isfinite(label) for label in plain):
            raise UserError(f"the labels of the actions are {shown(plain)}: give texts, or numbers.")
        plain = tuple(_plain_number(float(label)) for label in plain)
    if len(set(plain)) < len(plain):
        raise UserError(f"the labels of the actions are {shown(plain)}, where one occurs twice: give each once.")
    _require_count(plain)
    return plain


def shown(labels: Sequence[Label]) -> str:
    """For people: the first labels, with commas between."""
    more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
    return ", ".join(map(str, labels[:SHOWN])) + more


def label_array(labels: Sequence[Label]) -> np.ndarray:
    """Labels as an array: integers, floats or texts."""
    return np.array([str(label) for label in labels]) if isinstance(labels[0], str) else np.array(labels)


# Values of one column


def _column(values: Any) -> np.ndarray | Coded | None:
    """Numbers with one axis, texts as codes; None where there are several columns."""
    try:
        array = np.asarray(values)
    except ValueError:
        return None
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or not array.size:
        return None
    if array.dtype.kind == "b":
        return Coded(array.astype(np.int64), (0, 1))
    if array.dtype.kind in "iuf":
        return array
    if array.dtype.kind not in "USO":
        raise UserError(f"array 'actions' holds values of type {array.dtype}: give numbers or texts.")
    missing = [row for row, value in enumerate(array.tolist()) if not isinstance(value, str | bytes | int | float)]
    if missing:
        raise UserError(f"the action is missing at row {missing[0]}: give every row its action.")
    names, codes = np.unique(np.array([_text(value) for value in array.tolist()]), return_inverse=True)
    return Coded(codes, tuple(names.tolist()))


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _code(column: np.ndarray) -> Coded:
    bad = ~np.isfinite(column) if column.dtype.kind == "f" else np.zeros(len(column), bool)
    if bad.any():
        raise UserError(f"the action is missing at row {int(bad.argmax())}: give every row its action.")
    values, codes = np.unique(column, return_inverse=True)
    if len(values) > MOST_LABELS:
        _require_count(values)
    # The shortest text of a float32, so that 0.1 is not called 0.10000000149.
    return Coded(codes, tuple(_plain_number(float(str(value))) for value in values))


def _plain_number(value: float) -> int | float:
    return int(value) if value == int(value) else value


def _from_one_hot(array: np.ndarray, labels: tuple[Label, ...]) -> Coded:
    if array.ndim != 2 or array.shape[1] != len(labels) or array.dtype.kind not in "biuf":
        raise UserError(
            f"array 'actions' has shape {array.shape}, and there are {len(labels)} labels: give one column."
        )
    codes = array.argmax(axis=1) if array.size else np.zeros(len(array), np.int64)
    wrong = ((array != 0) & (array != 1)).any(axis=1) | (array.sum(axis=1) != 1)
    if wrong.any():
        raise UserError(f"row {int(wrong.argmax())} of the actions is no one-hot vector: give one column of labels.")
    return Coded(codes, labels)


# The rule


def _are_labels(column: np.ndarray) -> bool:
    if column.dtype.kind not in "iu":
        return False
    values = np.unique(column)
    return 2 <= len(values) <= MOST_BY_DEFAULT and int(values[-1]) - int(values[0]) == len(values) - 1


def _note_on_labels(column: np.ndarray | Coded, labels: Sequence[Label]) -> str:
    taken = f"{NOTE}taken as {len(labels)} discrete labels ({shown(labels)})"
    if isinstance(column, Coded):
        return f"{taken}, as they are {'texts' if isinstance(labels[0], str) else 'booleans'}."
    return f"{taken} and not as a quantity, as they are consecutive whole numbers: give --continuous if they are one."


def _note_on_quantities(column: np.ndarray) -> list[str]:
    """Only where somebody could think otherwise."""
    some = column[:100_000]
    if column.dtype.kind == "f" and not (np.isfinite(some) & (some == np.rint(some))).all():
        return []
    values = np.unique(column)
    if not 2 <= len(values) <= MOST_LABELS or (column.dtype.kind == "f" and (column != np.rint(column)).any()):
        return []
    why = "stored as decimals" if column.dtype.kind == "f" else "not consecutive"
    why = f"more than {MOST_BY_DEFAULT}" if len(values) > MOST_BY_DEFAULT else why
    return [
        f"{NOTE}taken as a quantity from {values[0]:g} to {values[-1]:g} and not as labels, as these whole numbers are "
        f"{why}: give --discrete if they are labels."
    ]


def _require_numbers(column: np.ndarray | Coded) -> None:
    if isinstance(column, Coded) and isinstance(column.labels[0], str):
        raise UserError(f"the actions are texts ({shown(column.labels)}) and no quantity: leave --continuous out.")


def _require_count(labels: Sequence[Any] | np.ndarray) -> None:
    if len(labels) < 2:
        raise UserError(f"the action is always {labels[0] if len(labels) else 'missing'!r}: give at least two labels.")
    if len(labels) > MOST_LABELS:
        raise UserError(
            f"the action takes {len(labels):,} values, and at most {MOST_LABELS} can be labels: join rare ones, or "
            "give --continuous if it is a quantity."
        )
