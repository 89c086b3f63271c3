"""Tables (CSV, Parquet, data frames) as datasets: Arrow batches are copied straight into the final arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pspo.core.errors import UserError
from pspo.data.columns import Columns, choose, listed
from pspo.data.d4rl_layout import fields_from_d4rl
from pspo.data.dataset import Dataset
from pspo.data.episode_ends import mark_ends

D4RL_NAMES = {"obs": "observations", "action": "actions", "reward": "rewards", "next_obs": "next_observations"}


def need_pyarrow(what: str) -> Any:
    """The module pyarrow, or an error that says how to install it."""
    try:
        import pyarrow
    except ImportError:
        raise UserError(f"{what} needs pyarrow, which is not installed: pip install 'pspo[tables]'.") from None
    return pyarrow


@dataclass(frozen=True)
class Table:
    """A table whose columns are not yet read."""

    names: list[str]
    rows: int  # exact; or, if only reading tells, an upper bound
    batches: Callable[[list[str]], Iterator[Any]]  # Arrow record batches of these columns, in order
    width: Callable[[str], int] = lambda _: 1  # numbers in a cell of this column
    exact: bool = True
    by_column: bool = False  # stored column by column: reading one after the other takes the least memory


def table_dataset(table: Table, columns: Columns, labels: dict[str, Any]) -> Dataset:
    """`labels` is what is known besides the rows: name, task, notes, action bounds."""
    chosen = choose(table.names, columns)
    contents = _read_table(table, chosen)
    rows = len(contents.has_next_state)
    if not rows:
        raise UserError("there are no rows: give at least one.")
    terminal, timeout, notes = mark_ends(rows, chosen, contents.flags, contents.episode(chosen.get("episode", [""])[0]))
    used = {name for members in chosen.values() for name in members}
    if unused := [name for name in table.names if name not in used]:
        notes.append(f"columns that are not used: {listed(unused)}.")
    arrays: dict[str, Any] = {D4RL_NAMES[role]: contents.numbers.pop(role) for role in list(contents.numbers)}
    if "next_obs" in chosen:
        arrays["next_known"] = contents.has_next_state
    arrays |= {"terminals": terminal, "timeouts": timeout}
    arrays |= {**labels, "notes": [*labels.get("notes", ()), *notes]}
    names: dict[str, Any] = {f"{role}_names": single_columns(chosen[role], table.width) for role in ("obs", "action")}
    return Dataset(**fields_from_d4rl(arrays), **names)  # frees arrays as soon as their rows are filtered


def single_columns(members: list[str], width: Callable[[str], int]) -> tuple[str, ...]:
    """The names of the columns, or none if a column holds several numbers."""
    return tuple(members) if all(width(name) == 1 for name in members) else ()


@dataclass
class _Contents:
    has_next_state: np.ndarray
    numbers: dict[str, np.ndarray] = field(default_factory=dict)
    flags: dict[str, np.ndarray] = field(default_factory=dict)
    episodes: list[Any] = field(default_factory=list)

    def first(self, rows: int) -> _Contents:
        for array in self.numbers.values():
            array.setflags(write=False)  # no other references: the dataset need not copy them
        numbers = {role: array[:rows] for role, array in self.numbers.items()}
        flags = {role: array[:rows] for role, array in self.flags.items()}
        return _Contents(self.has_next_state[:rows], numbers, flags, self.episodes)

    def episode(self, column: str) -> tuple[np.ndarray, Any] | None:
        """The episode number of each row, and the label of each number."""
        if not self.episodes:
            return None
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            names = pa.chunked_array(self.episodes).combine_chunks()
            if pa.types.is_string(names.type):
                names = pc.call_function("utf8_trim_whitespace", [names])
            coded = names.dictionary_encode()
        except pa.ArrowException:
            raise UserError(f"column '{column}' cannot number episodes: give numbers or texts.") from None
        if coded.null_count:
            row = int(coded.is_null().to_numpy(zero_copy_only=False).argmax())
            raise UserError(f"column '{column}' holds nothing at row {row}: give every row its episode.")
        return coded.indices.to_numpy(), coded.dictionary


def _read_table(table: Table, chosen: dict[str, list[str]]) -> _Contents:
    names = list(dict.fromkeys(name for members in chosen.values() for name in members))
    widths = {name: table.width(name) for role in D4RL_NAMES for name in chosen.get(role, ())}
    contents = _Contents(np.zeros(table.rows, bool), _allocate(table.rows, chosen, widths))
    contents.flags = {role: np.empty(table.rows, bool) for role in ("terminal", "timeout") if role in chosen}
    counts = set()
    for group in [[name] for name in names] if table.by_column else [names]:
        filled = 0
        for batch in table.batches(group):
            rows = slice(filled, filled + batch.num_rows)
            if rows.stop <= table.rows:
                _copy_batch(batch, chosen, widths, rows, contents)
            filled = rows.stop
        counts.add(filled)
    if len(counts) > 1 or max(counts) > table.rows or (table.exact and counts != {table.rows}):
        raise UserError(f"there are {max(counts)} rows where the file declares {table.rows}: copy or write it again.")
    need_pyarrow("reading tables").default_memory_pool().release_unused()  # Arrow keeps freed memory
    return contents.first(counts.pop())


def _allocate(rows: int, chosen: dict[str, list[str]], widths: dict[str, int]) -> dict[str, np.ndarray]:
    total = {role: sum(widths[name] for name in chosen[role]) for role in D4RL_NAMES if role in chosen}
    if total["reward"] != 1:
        raise UserError(f"the column '{chosen['reward'][0]}' holds {total['reward']} rewards per row: give one.")
    if total.get("next_obs", total["obs"]) != total["obs"]:
        raise UserError(
            f"the state has {total['obs']} numbers ({listed(chosen['obs'])}) and the next state has "
            f"{total['next_obs']} ({listed(chosen['next_obs'])}): give as many of both."
        )
    return {role: np.empty(rows if role == "reward" else (rows, total[role]), np.float32) for role in total}


def _copy_batch(batch: Any, chosen: dict[str, list[str]], widths: dict[str, int], rows: slice, to: _Contents) -> None:
    """Copy the chosen columns that this batch has."""
    import pyarrow as pa

    available = set(batch.schema.names)
    for role, array in to.numbers.items():
        into, start = array.reshape(len(array), -1), 0
        for name in chosen[role]:
            part = slice(start, start + widths[name])
            start = part.stop
            if name in available:
                cells = _numbers(name, batch.column(name), widths[name], rows.start)
                into[rows, part] = cells.values
                if role == "next_obs":
                    to.has_next_state[rows] |= ~cells.empty
    for role, array in to.flags.items():
        if chosen[role][0] in available:
            array[rows] = _flags(chosen[role][0], batch.column(chosen[role][0]), rows.start)
    if "episode" in chosen and chosen["episode"][0] in available:
        column = batch.column(chosen["episode"][0])
        to.episodes.append(column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column)


# One Arrow column as numbers: plain or list-valued, of any numeric type, with missing cells marked.


class _Numbers(NamedTuple):
    values: np.ndarray  # (n, width) float32, NaN where missing
    empty: np.ndarray  # (n,) bool: the whole cell is missing, which is not the same as a NaN


def width_of(kind: Any, some_cells: Callable[[], Any]) -> int:
    """Numbers per cell of a column of this type: 1, or the length of the first list among some cells."""
    import pyarrow as pa

    if pa.types.is_fixed_size_list(kind):
        return kind.list_size
    return next((len(cell) for cell in some_cells() if cell.is_valid), 1) if _is_list(kind) else 1


def _numbers(name: str, column: Any, width: int, first_row: int) -> _Numbers:
    """The numbers of a column; `first_row` is its first row in the whole table, for messages."""
    import pyarrow.compute as pc

    empty = column.is_null().to_numpy(zero_copy_only=False)
    if not _is_list(column.type):
        return _Numbers(_floats(name, column, first_row)[:, None], empty)
    lengths = pc.call_function("list_value_length", [column]).fill_null(width).to_numpy(zero_copy_only=False)
    if (lengths != width).any():
        row = int((lengths != width).argmax())
        raise UserError(
            f"column '{name}' has {lengths[row]} numbers at row {first_row + row} and {width} in the first row: "
            "give lists of one length."
        )
    flat = _floats(name, column.flatten(), first_row).reshape(-1, width)
    if not empty.any():
        return _Numbers(flat, empty)
    values = np.full((len(column), width), np.nan, np.float32)
    values[~empty] = flat
    return _Numbers(values, empty)


def _flags(name: str, column: Any, first_row: int) -> np.ndarray:
    values = _numbers(name, column, 1, first_row).values[:, 0]
    bad = (values != 0) & (values != 1)
    if bad.any():
        row = int(bad.argmax())
        value = "nothing" if np.isnan(values[row]) else f"{values[row]!s}"
        raise UserError(f"column '{name}' holds {value} at row {first_row + row}: give only 0 and 1, or booleans.")
    return values == 1


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _floats(name: str, column: Any, first_row: int) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_boolean(kind):
        column = pc.cast(column, pa.uint8())
    elif pa.types.is_decimal(kind):
        column = pc.cast(column, pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
        shown = column.drop_null()[:1].to_pylist() if not _is_list(kind) else []
        example = f", such as {str(shown[0])[:40]!r} at row {first_row}" if shown else ""
        raise UserError(f"column '{name}' holds values of type {kind}{example}: give real numbers.")
    # Too large for float32 becomes infinite, which `check` reports as an error.
    return pc.cast(column, pa.float32(), safe=False).to_numpy(zero_copy_only=False)
