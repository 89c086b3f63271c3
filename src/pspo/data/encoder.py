"""The encoder: raw columns (large numbers, texts, times, gaps) as the float32 columns of an observation.

It is fitted once to a dataset and saved with everything that is trained on it, so that a policy takes raw values:

    number    x minus an offset, subtracted in float64; a missing one becomes `fill`, and a second column says so
    category  one column of 0 and 1 for each category; all are 0 for every other value, seen or unseen
    time      seconds minus an offset, or the sine and cosine of each cycle that was asked for

Data without any of these have no encoder, and their numbers are stored as they are. NumPy only: policies are served
with this file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from pspo.core.column_names import SHOWN

KINDS = ("number", "category", "time")
MISSING = ""  # the category of what is missing; in ONNX too, which has no other word for it
DAY = 86400.0
# Seconds of a cycle, and a time at which one begins: 5 January 1970 was a Monday. A year has 365.2425 days.
CYCLES: dict[str, tuple[float, float]] = {
    "minute_of_hour": (3600.0, 0.0),
    "hour_of_day": (DAY, 0.0),
    "day_of_week": (7 * DAY, 4 * DAY),
    "day_of_year": (365.2425 * DAY, 0.0),
}
LONGEST = 1000  # columns that one column may become: files are not trusted


@dataclass(frozen=True)
class EncodedColumn:
    """What one raw column becomes."""

    name: str = ""  # empty where the dataset has no names
    kind: str = "number"
    offset: float = 0.0  # of a number or time, subtracted in float64
    fill: float | None = None  # a missing number or time counts as this; None: none was missing
    categories: tuple[str, ...] = ()
    cyclic: tuple[str, ...] = ()  # of a time: names in CYCLES
    zone: bool = False  # of a time: whether the data name time zones; the clock is UTC then, else the data's own
    other: int = 0  # rows of the dataset with a value that is not among the categories

    def __post_init__(self) -> None:
        """Raises ValueError, as a file may hold anything."""
        numbers = (self.offset, 0.0 if self.fill is None else self.fill)
        if not isinstance(self.name, str) or self.kind not in KINDS or not isinstance(self.zone, bool):
            raise ValueError(f"a column is {self.name!r} of kind {self.kind!r}")
        if not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers) or type(self.other) is not int:
            raise ValueError(f"a number of column '{self.name}' is not finite")
        if not all(isinstance(text, str) for text in (*self.categories, *self.cyclic)):
            raise ValueError(f"the categories or cycles of column '{self.name}' are not texts")
        if len(set(self.categories)) < len(self.categories) or not set(self.cyclic) <= set(CYCLES):
            raise ValueError(f"the categories or cycles of column '{self.name}' cannot be used")
        if (self.kind == "category") != bool(self.categories) or (self.cyclic and self.kind != "time"):
            raise ValueError(f"column '{self.name}' has categories or cycles that its kind does not have")
        if self.width > LONGEST:
            raise ValueError(f"column '{self.name}' would become {self.width} columns")

    @property
    def width(self) -> int:
        """How many columns of the observation it becomes."""
        return len(self.categories) or max(1, 2 * len(self.cyclic)) + (self.fill is not None)

    @property
    def is_plain(self) -> bool:
        """A number that stays as it is."""
        return self.kind == "number" and not self.offset and self.fill is None

    @property
    def names(self) -> list[str]:
        """Names of the columns it becomes."""
        if self.categories:
            return [f"{self.name}={text}" if text != MISSING else f"{self.name} is missing" for text in self.categories]
        values = [f"{self.name} {cycle} {part}" for cycle in self.cyclic for part in ("sin", "cos")] or [self.name]
        return [*values, f"{self.name} is missing"] if self.fill is not None else values

    def encode(self, values: np.ndarray) -> list[np.ndarray]:
        """Float32 arrays of the shape of `values`: float64 numbers (NaN: missing), or texts of categories."""
        if self.categories:
            return [(values == text).astype(np.float32) for text in self.categories]
        missing = np.isnan(values)
        if self.fill is not None:
            values = np.where(missing, self.fill, values)
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which `check` reports as an error
            parts = self._cycles(values) or [(values - self.offset).astype(np.float32)]
        return [*parts, missing.astype(np.float32)] if self.fill is not None else parts

    def _cycles(self, seconds: np.ndarray) -> list[np.ndarray]:
        parts = []
        for period, start in (CYCLES[name] for name in self.cyclic):
            turns = (seconds - start) / period
            angle = (2.0 * np.pi * (turns - np.floor(turns))).astype(np.float32)
            parts += [np.sin(angle), np.cos(angle)]
        return parts

    def describe(self) -> str:
        """What became of the column, for people."""
        filled = "" if self.fill is None else f"; a missing one counts as {self.fill:.6g}, and a column says so"
        minus = f" minus {self.offset!r}, subtracted before float32 rounds it" if self.offset else ""
        if self.kind == "category":
            known = ", ".join("missing" if text == MISSING else text for text in self.categories[:SHOWN])
            more = f", ... ({len(self.categories)} in all)" if len(self.categories) > SHOWN else ""
            rest = f"all 0 for other values ({self.other} rows)" if self.other else "all 0 for values not in the data"
            return f"category, a column of 0 and 1 for each of {known}{more}; {rest}"
        if self.cyclic:
            clock = " in UTC" if self.zone else ""
            return f"time{clock}, the sine and cosine of {', '.join(self.cyclic)}{filled}"
        if self.kind == "time":
            return f"time in seconds since 1970{minus}{filled}"
        return f"number{minus}{filled}"


@dataclass(frozen=True)
class Encoder:
    """Raw columns, in the order of the dataset, and what each becomes."""

    columns: tuple[EncodedColumn, ...]

    @cached_property
    def raw_names(self) -> tuple[str, ...]:
        """Names of the raw columns; none where the dataset has none."""
        names = tuple(column.name for column in self.columns)
        return names if all(names) else ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of the observation; none where the dataset has none."""
        return tuple(name for column in self.columns for name in column.names) if self.raw_names else ()

    @cached_property
    def width(self) -> int:
        """How many columns the observation has."""
        return sum(column.width for column in self.columns)

    @property
    def only_offsets(self) -> bool:
        """Whether every column stays one number."""
        return all(column.kind == "number" and column.fill is None for column in self.columns)

    @property
    def takes_texts(self) -> bool:
        """Whether there are categories; everything else is a number."""
        return any(column.categories for column in self.columns)

    @cached_property
    def offsets(self) -> np.ndarray:
        """(width,) float64: what was subtracted from each column of the observation; for display in raw units."""
        shifts = [[0.0 if c.cyclic else c.offset, *[0.0] * (c.width - 1)] for c in self.columns]
        return np.array([shift for column in shifts for shift in column])

    @cached_property
    def flags(self) -> np.ndarray:
        """(width,) bool: columns that are 0 or 1 by their making."""
        made = [
            [bool(c.categories)] * c.width if c.fill is None else [False] * (c.width - 1) + [True] for c in self.columns
        ]
        return np.array([flag for column in made for flag in column], bool)

    @cached_property
    def one_hot(self) -> np.ndarray | None:
        """(categories, 3) int: first column, last + 1, whether the dataset has rows in which all are 0."""
        ends = np.cumsum([column.width for column in self.columns])
        groups = [
            (end - c.width, end, c.other > 0)
            for c, end in zip(self.columns, ends.tolist(), strict=True)
            if c.categories
        ]
        return np.array(groups, np.int32) if groups else None

    @cached_property
    def columns_without_grid(self) -> frozenset[int]:
        """Columns of categories, and of cycles: a sine has nearly equal values, which rounding may exchange."""
        kept = [[bool(column.categories or column.cyclic)] * column.width for column in self.columns]
        return frozenset(np.flatnonzero([flag for column in kept for flag in column]).tolist())

    def encode(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """(..., width) float32 from one array for each raw column: float64 numbers, or texts of categories."""
        parts = [part for column, raw in zip(self.columns, values, strict=True) for part in column.encode(raw)]
        return np.stack(np.broadcast_arrays(*parts), axis=-1)

    def as_json(self) -> list[dict[str, Any]]:
        """Every column with what differs from the defaults."""
        default = EncodedColumn()
        return [
            {"kind": column.kind} | {k: v for k, v in asdict(column).items() if v != getattr(default, k)}
            for column in self.columns
        ]

    def describe(self) -> list[str]:
        """One line for each column that does not stay as it is."""
        return [
            f"obs column {number if not column.name else repr(column.name)} is a {column.describe()}"
            for number, column in enumerate(self.columns)
            if not column.is_plain
        ]


def encoder_from_json(stored: Any) -> Encoder:
    """What `as_json` made; raises ValueError for anything else."""
    known = {field.name for field in fields(EncodedColumn)}
    if not isinstance(stored, list) or not stored:
        raise ValueError("the encoder is not a list of columns")
    columns = []
    for entry in stored:
        if not isinstance(entry, Mapping) or not set(entry) <= known:
            raise ValueError(f"the encoder has a column {str(entry)[:60]}")
        lists = {key: tuple(entry[key]) for key in ("categories", "cyclic") if isinstance(entry.get(key), list)}
        columns.append(EncodedColumn(**{**entry, **lists}))
    return Encoder(tuple(columns))


def offset_encoder(offset: np.ndarray, names: Sequence[str] = ()) -> Encoder:
    """Numbers of which some have an offset."""
    named = names or [""] * len(offset)
    return Encoder(tuple(EncodedColumn(n, offset=float(o)) for n, o in zip(named, offset, strict=True)))
