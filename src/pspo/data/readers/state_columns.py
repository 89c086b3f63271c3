"""Columns of a table's state that are no plain numbers: texts, times and gaps, gathered and then encoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pspo.core.column_names import listed
from pspo.core.errors import UserError
from pspo.data.columns import Columns, fitting
from pspo.data.encode_arrays import Encoding
from pspo.data.encoder import MISSING, EncodedColumn, Encoder
from pspo.data.fit_encoder import fit_category, fit_number, fit_time
from pspo.data.offsets import lost_note

STATES = ("obs", "next_obs")


def state_kinds(
    chosen: Mapping[str, list[str]],
    kind_of: Callable[[str], Any] | None,
    columns: Columns,
    encoding: Encoding,
    width: Callable[[str], int] = lambda name: 1,
) -> dict[str, str]:
    """Which columns are categories or times: by an encoder, else by the wish of the user and by their types."""
    if encoding is None or kind_of is None:
        return {}
    names, wanted = chosen["obs"], fitting(columns.categorical, chosen["obs"], "categorical")
    if isinstance(encoding, Encoder):
        kinds = {name: column.kind for name, column in _columns_of(names, encoding, width) or ()}
    else:
        kinds = {name: "category" if name in wanted else kind_of_type(kind_of(name)) for name in names}
        if columns.cyclic and "time" not in kinds.values():
            raise UserError(
                f"no column of the state holds dates or times among {listed(names)}: leave --cyclic out, or name one "
                "with --obs."
            )
    following = chosen.get("next_obs", [])
    if len(following) == len(names):
        kinds |= {after: kinds[name] for name, after in zip(names, following, strict=True) if name in kinds}
    return {name: kind for name, kind in kinds.items() if kind != "number"}


def _columns_of(
    names: Sequence[str], encoder: Encoder, width: Callable[[str], int]
) -> list[tuple[str, EncodedColumn]] | None:
    """The columns of a table, some of which are several of an encoder's, with the first of these; None if others."""
    positions = np.cumsum([0, *map(width, names)])
    if positions[-1] != len(encoder.columns):
        return None
    return [(name, encoder.columns[at]) for name, at in zip(names, positions.tolist(), strict=False)]


def kind_of_type(kind: Any) -> str:
    """What values of an Arrow type are."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "category"
    return "time" if pa.types.is_temporal(kind) and not pa.types.is_duration(kind) else "number"


@dataclass
class StateColumns:
    """What was read of such columns, by the name of the column in the table."""

    kinds: dict[str, str]
    wanted: Collection[str] = ()  # columns that the user calls categories
    chunks: dict[str, list[Any]] = field(default_factory=dict)
    gaps: dict[str, list[np.ndarray]] = field(default_factory=dict)  # rows at which a column of numbers is empty
    zones: dict[str, bool] = field(default_factory=dict)  # whether a column of times names a time zone

    def add(self, name: str, column: Any) -> np.ndarray:
        """The next cells of a column; returns which are empty."""
        if self.kinds[name] == "category":
            cells = coded_texts(column)
        else:
            cells = seconds(name, column)
            self._note_zone(name, column.type)
        self.chunks.setdefault(name, []).append(cells)
        return column.is_null().to_numpy(zero_copy_only=False)

    def _note_zone(self, name: str, kind: Any) -> None:
        import pyarrow as pa

        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
            zone = pa.types.is_timestamp(kind) and kind.tz is not None
            if self.zones.setdefault(name, zone) != zone:
                raise UserError(f"some files name time zones in column '{name}' and others do not: write all alike.")

    def require_zones(self, names: Sequence[str], encoder: Encoder) -> None:
        """Times of another clock than those of an encoder would be other hours without anybody noticing."""
        for name, column in zip(names, encoder.columns, strict=False):
            if column.kind == "time" and self.zones.get(name, column.zone) != column.zone:
                these, those = ("name no time zone", "do") if column.zone else ("name a time zone", "do not")
                raise UserError(
                    f"the times of column '{name}' {these}, and those of the data of the run {those}: convert them."
                )

    def add_gaps(self, name: str, first_row: int, empty: np.ndarray) -> None:
        """Where a column of numbers is empty."""
        if empty.any():
            self.gaps.setdefault(name, []).append(first_row + np.flatnonzero(empty))

    def texts(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The code of each row, and the text of each code."""
        import pyarrow as pa

        coded = pa.chunked_array(self.chunks[name]).unify_dictionaries().combine_chunks()
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        return coded.indices.to_numpy(), np.array(coded.dictionary.to_pylist(), dtype=object)

    def rounded(self, names: Sequence[str], encoder: Encoder, widths: Mapping[str, int]) -> list[str]:
        """Notes on times that float32 rounds."""
        notes = []
        for name, column in _columns_of(names, encoder, lambda name: widths.get(name, 1)) or ():
            if name in self.chunks and column.kind == "time" and not column.cyclic:
                notes += lost_note(repr(name), column.offset, self.times(name))
        return notes

    def unseen(self, names: Sequence[str], encoder: Encoder, widths: Mapping[str, int]) -> list[str]:
        """Notes on texts that are none of an encoder's categories."""
        notes = []
        for name, column in _columns_of(names, encoder, lambda name: widths.get(name, 1)) or ():
            if not column.categories or name not in self.chunks:
                continue
            codes, texts = self.texts(name)
            new = ~np.isin(texts, column.categories)
            if new[codes].any():
                notes.append(
                    f"column '{name}' has {new[codes].sum()} rows with other texts than the categories of the run, "
                    f"which count as none of them: {listed(sorted(texts[new]))}."
                )
        return notes

    def times(self, name: str) -> np.ndarray:
        return np.concatenate(self.chunks[name])

    def missing(self, name: str) -> np.ndarray:
        return np.concatenate([np.zeros(0, np.intp), *self.gaps.get(name, [])])


def coded_texts(column: Any) -> Any:
    """Texts of any type as a dictionary array, without spaces around; an empty one where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        whole = pc.cast(column, pa.int64(), safe=False)
        if pc.cast(whole, column.type).equals(column):
            column = whole  # 3.0 is the category 3
    texts = pc.cast(column, pa.string())
    return pc.call_function("utf8_trim_whitespace", [texts]).fill_null(MISSING).dictionary_encode()


def seconds(name: str, column: Any) -> np.ndarray:
    """Seconds since 1970, or of the day, in float64; NaN where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    try:
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            micro = pc.cast(pc.cast(column, pa.timestamp("us", getattr(kind, "tz", None)), safe=False), pa.int64())
        elif pa.types.is_time(kind):
            micro = pc.cast(pc.cast(column, pa.time64("us"), safe=False), pa.int64())
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            micro = pc.cast(pc.cast(column, pa.timestamp("us")), pa.int64())
        else:
            return pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        raise UserError(f"column '{name}' holds values of type {kind}, where the run has times: give times.") from None
    return pc.cast(micro, pa.float64(), safe=False).to_numpy(zero_copy_only=False) / 1e6


def fit_states(
    chosen: Mapping[str, list[str]],
    widths: Mapping[str, int],
    *,
    numbers: np.ndarray,
    states: StateColumns,
    offset: np.ndarray,
    known: np.ndarray,
    cyclic: Sequence[str],
) -> Encoder | None:
    """The encoder of a table, or None if it needs none.

    `widths` and `numbers` are those of plain columns, from which the offset was subtracted; `known` are rows with a
    next state, as others have no gaps there.
    """
    parts = _pairs(chosen)
    plain = not states.kinds and not any(_has_gaps(states, names, known) for names in parts)
    if plain and not offset.any():
        return None
    single = all(widths.get(name, 1) == 1 for name in chosen["obs"])
    columns, start = [], 0
    for names in parts:
        name, has_gaps = names[0], _has_gaps(states, names, known)
        if states.kinds.get(name) == "category":
            counted = Counter[str]()
            for part in names:
                codes, texts = states.texts(part)
                if part != name:
                    codes = codes[known]
                counted.update(dict(zip(texts, np.bincount(codes, minlength=len(texts)).tolist(), strict=True)))
            columns.append(
                fit_category(name, {text: count for text, count in counted.items() if count}, name in states.wanted)
            )
        elif states.kinds.get(name) == "time":
            times = [states.times(names[0]), *(states.times(part)[known] for part in names[1:])]
            has_holes = any(np.isnan(part).any() for part in times)
            columns.append(fit_time(name, times, has_holes, cyclic, states.zones.get(name, False)))
        for i in range(widths.get(name, 0)):
            full = name if widths[name] == 1 else f"{name}[{i}]"
            called = full if single or not plain else ""  # numbers alone are also served without names
            columns.append(fit_number(called, float(offset[start]), numbers[:, start], has_gaps))
            start += 1
    return Encoder(tuple(columns))


def _pairs(chosen: Mapping[str, list[str]]) -> list[tuple[str, ...]]:
    """Each column of the state with that of the next state, if there is one."""
    following = chosen.get("next_obs", [])
    if len(following) != len(chosen["obs"]):
        return [(name,) for name in chosen["obs"]]
    return list(zip(chosen["obs"], following, strict=True))


def _has_gaps(states: StateColumns, names: Sequence[str], known: np.ndarray) -> bool:
    rows, *following = (states.missing(name) for name in names)
    return bool(rows.size) or any(bool(known[part].any()) for part in following)


def encode_states(
    names: Sequence[str], widths: Mapping[str, int], numbers: np.ndarray, states: StateColumns, encoder: Encoder
) -> np.ndarray:
    """The columns of the state (rows, width) float32; `numbers` are those of its plain columns, minus offsets."""
    encoded = np.empty((len(numbers), encoder.width), np.float32)
    columns, at, start = iter(encoder.columns), 0, 0
    for name in names:
        for _ in range(widths.get(name, 1)):
            column = next(columns)
            if name in states.kinds:
                parts = _special(column, states, name, len(numbers))
            else:
                parts = _number(column, numbers[:, start], states.missing(name))
                start += 1
            for part in parts:
                encoded[:, at] = part
                at += 1
    return encoded


def _special(column: EncodedColumn, states: StateColumns, name: str, rows: int) -> Iterator[np.ndarray]:
    if not column.categories:
        yield from column.encode(states.times(name)[:rows])
        return
    codes, texts = states.texts(name)
    for part in column.encode(texts):
        yield part[codes[:rows]]


def _number(column: EncodedColumn, values: np.ndarray, gaps: np.ndarray) -> Iterator[np.ndarray]:
    if column.fill is None:
        yield values
        return
    filled, missing = values.copy(), np.zeros(len(values), np.float32)
    filled[gaps], missing[gaps] = column.fill - column.offset, 1.0
    yield filled
    yield missing
