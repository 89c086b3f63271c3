"""Tables (CSV, Parquet, data frames) as datasets: Arrow batches are copied straight into the final arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from pspo.core.column_names import listed, positions
from pspo.core.errors import UserError
from pspo.data.action_mask import with_mask
from pspo.data.column_order import short_names
from pspo.data.columns import Columns, choose, fitting, without_ignored
from pspo.data.d4rl_layout import ENCODER, OWN_COLUMNS, PER_ROW, fields_from_d4rl
from pspo.data.dataset import Dataset
from pspo.data.discrete import Coded, one_hot_actions
from pspo.data.encode_arrays import FIT, Encoding, require_same, stored_encoder
from pspo.data.encoder import Encoder
from pspo.data.episode_ends import mark_ends
from pspo.data.readers.file_checks import require_memory
from pspo.data.readers.identifiers import episodes_from_arrow, times_from_arrow
from pspo.data.readers.label_columns import is_label_type, label_column
from pspo.data.readers.number_columns import flags_of, numbers_of
from pspo.data.readers.state_columns import STATES, StateColumns, encode_states, fit_states, state_kinds
from pspo.data.readers.unused_times import time_hint
from pspo.data.readers.wide_columns import rounded_others, subtract_offsets
from pspo.data.row_keys import row_keys
from pspo.data.row_names import row_name
from pspo.data.time_order import order_in_time

D4RL_NAMES = {"obs": "observations", "action": "actions", "reward": "rewards", "next_obs": "next_observations"}
D4RL_NAMES |= {"propensity": "propensity"}
ONE_NUMBER = {"reward": "rewards", "propensity": "propensities"}  # roles whose arrays have one axis
IDENTIFIERS = ("episode", "time")
NO_COLUMNS: Mapping[str, Any] = MappingProxyType({})

MOST_GROUPS = 256  # in which the columns of a table are read


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
    kind: Callable[[str], Any] = lambda _: None  # the Arrow type of this column, where it is known
    # After reading: the name and first row of each file, if there are several.
    files: Callable[[], tuple[tuple[str, int], ...]] = tuple
    labels: dict[str, Any] = field(default_factory=dict)  # what the file says besides its rows
    wide_batches: Callable[[list[str]], Iterator[Any]] | None = None  # in float64, where `batches` are in float32

    def groups(self, names: list[str]) -> list[list[str]]:
        """The columns that are read together. Each group has its own cost, so that thousands are read in some."""
        size = -(-len(names) // MOST_GROUPS) if self.by_column else len(names)
        return [names[start : start + size] for start in range(0, len(names), size)]


def table_dataset(table: Table, columns: Columns, labels: dict[str, Any], encoding: Encoding = FIT) -> Dataset:
    """`labels` is what is known besides the rows: name, task, notes, action bounds or labels, encoder; the table's come
    first."""
    labels = labels | table.labels
    stored = labels.pop(ENCODER, None)
    own_columns = [str(name) for name in labels.pop(OWN_COLUMNS, ())]
    per_row = [name for name in PER_ROW if name in own_columns and name in table.names]
    table = replace(table, names=[name for name in table.names if name not in per_row])
    own = require_same(stored_encoder(stored), encoding, labels["name"]) if stored is not None else None
    chosen = _in_order_of(encoding, choose(table.names, columns))
    as_labels = _may_be_labels(table, chosen, columns)
    contents = _read_table(table, chosen, columns, None if own else encoding, as_labels)
    if not contents.rows:
        raise UserError("there are no rows: give at least one.")
    action_labels, notes = _decide_actions(contents, table, chosen, columns, labels)
    discrete = False if notes else columns.is_discrete  # with a note on it, this is decided
    episode, cut, known = contents.episode(chosen), None, {}
    if "time" in chosen:
        times = times_from_arrow(chosen["time"][0], contents.identifiers[chosen["time"][0]], contents.where)
        order = order_in_time(times, episode and episode[0], contents.keys(), contents.where)
        contents, notes, cut = contents.take(order.rows), [*notes, *order.notes], order.cut
        episode = episode and (episode[0][order.rows], episode[1])
        known = {"row_times": times.array[order.rows], "time_name": times.column}
    terminal, timeout, more = mark_ends(contents.rows, chosen, contents.flags, episode, cut, contents.where)
    notes += [*more, *_unused(table, chosen, columns, contents, episode and episode[0])]
    arrays: dict[str, Any] = {D4RL_NAMES[role]: contents.numbers.pop(role) for role in list(contents.numbers)}
    if action_labels:
        arrays |= {"actions": Coded(arrays["actions"][:, 0].astype(np.int64), action_labels)}
        labels = {**labels, "action_labels": action_labels}
    if "next_obs" in chosen:
        arrays["next_known"] = contents.has_next_state
    if "time" not in chosen:  # else rows may be others now
        arrays |= {name: _numbers(table, name) for name in per_row}
    arrays |= {"terminals": terminal, "timeouts": timeout, "source_rows": contents.source_rows, "files": contents.files}
    arrays |= {"reward_name": chosen["reward"][0], **labels, **columns.bounds(), **known}
    arrays["notes"] = [*labels.get("notes", ()), *notes, *contents.encoding_notes]
    names: dict[str, Any] = {f"{role}_names": single_columns(chosen[role], table.width) for role in ("obs", "action")}
    names["encoder"] = own or contents.encoder
    fields = fields_from_d4rl(arrays, discrete=discrete)  # frees arrays as soon as their rows are filtered
    return with_mask(Dataset(**fields, **names), columns.mask)


def _numbers(table: Table, name: str) -> np.ndarray:
    """A column of numbers or times, as it is stored."""
    return np.concatenate([batch.column(name).to_numpy(zero_copy_only=False) for batch in table.batches([name])])


def _may_be_labels(table: Table, chosen: dict[str, list[str]], columns: Columns) -> bool:
    """Whether the actions are read as they are, because they are labels or could be."""
    if len(chosen["action"]) > 1 and columns.is_discrete:
        raise UserError(f"discrete actions have one column, and {listed(chosen['action'])} are several: join them.")
    if len(chosen["action"]) > 1 or columns.is_discrete is False:
        return False
    return bool(columns.is_discrete) or is_label_type(table.kind(chosen["action"][0]))


def _decide_actions(
    contents: _Contents, table: Table, chosen: dict[str, list[str]], columns: Columns, known: dict[str, Any]
) -> tuple[tuple[Any, ...], list[str]]:
    """The labels of discrete actions, and a note; the actions become numbers: quantities, or codes of the labels."""
    if "action" in contents.numbers:
        return (), []
    name = chosen["action"][0]
    values = label_column(name, contents.identifiers[name], table.kind(name), columns.is_discrete, contents.where)
    coded, notes = one_hot_actions(values, columns.is_discrete, known.get("action_labels", ()))
    numbers = np.asarray(coded.codes if coded else values, np.float32).reshape(-1, 1)
    contents.numbers["action"] = numbers
    return coded.labels if coded else (), notes


def _unused(
    table: Table,
    chosen: dict[str, list[str]],
    columns: Columns,
    contents: _Contents,
    episode: np.ndarray | None,
) -> list[str]:
    used = {name for members in chosen.values() for name in members}
    unused = [name for name in without_ignored(table.names, columns) if name not in used]
    if not unused:
        return []

    def read(name: str) -> list[Any]:
        return [batch.column(name) for batch in table.batches([name]) if name in batch.schema.names]

    hint = time_hint(unused, table.kind, read, episode, contents.keys, contents.where) if "time" not in chosen else ""
    return [f"columns that are not used: {listed(unused)}{hint}."]


def _in_order_of(encoding: Encoding, chosen: dict[str, list[str]]) -> dict[str, list[str]]:
    """The columns of the state in the order of an encoder, by name, where both have names."""
    names = [*encoding.raw_names] if isinstance(encoding, Encoder) else []
    if not names or names == chosen["obs"] or any(name.endswith("]") for name in names):
        return chosen  # in brackets are parts of a column of lists
    order = positions(short_names("obs", chosen["obs"], names), names, "the state")
    states = [role for role in ("obs", "next_obs") if role in chosen]
    return chosen | {role: [chosen[role][index] for index in order] for role in states}


def single_columns(members: list[str], width: Callable[[str], int]) -> tuple[str, ...]:
    """The names of the columns, or none if a column holds several numbers."""
    return tuple(members) if all(width(name) == 1 for name in members) else ()


@dataclass
class _Contents:
    has_next_state: np.ndarray
    numbers: dict[str, np.ndarray] = field(default_factory=dict)
    flags: dict[str, np.ndarray] = field(default_factory=dict)
    identifiers: dict[str, list[Any]] = field(default_factory=dict)  # chunks of the columns of episode and time
    files: tuple[tuple[str, int], ...] = ()
    source_rows: np.ndarray | None = None
    encoder: Encoder | None = None
    encoding_notes: list[str] = field(default_factory=list)  # on digits lost and texts unseen
    states: StateColumns = field(default_factory=lambda: StateColumns({}))

    @property
    def rows(self) -> int:
        return len(self.has_next_state)

    def where(self, row: int) -> str:
        return row_name(row if self.source_rows is None else int(self.source_rows[row]), self.files)

    def take(self, rows: slice | np.ndarray) -> _Contents:
        """These rows; identifiers have been used by then, if rows are moved."""
        numbers = {}
        for role in list(self.numbers):
            numbers[role] = self.numbers.pop(role)[rows]
            if numbers[role].base is not None:
                numbers[role].base.setflags(write=False)
            numbers[role].setflags(write=False)  # no other references: the dataset need not copy them
        flags = {role: array[rows] for role, array in self.flags.items()}
        moved = None if isinstance(rows, slice) else rows
        return replace(self, has_next_state=self.has_next_state[rows], numbers=numbers, flags=flags, source_rows=moved)

    def keys(self) -> np.ndarray:
        """A hash per row."""
        return row_keys([*self.numbers.values(), *self.flags.values()])

    def episode(self, chosen: dict[str, list[str]]) -> tuple[np.ndarray, Any] | None:
        """The episode number of each row, and the label of each number."""
        if "episode" not in chosen:
            return None
        return episodes_from_arrow({name: self.identifiers[name] for name in chosen["episode"]}, self.where)


def _read_table(
    table: Table, chosen: dict[str, list[str]], columns: Columns, encoding: Encoding, action_as_labels: bool
) -> _Contents:
    names = list(dict.fromkeys(name for members in chosen.values() for name in members))
    wanted = fitting(columns.categorical, chosen["obs"], "categorical")
    states = StateColumns(state_kinds(chosen, table.kind, columns, encoding, table.width), wanted)
    numeric = {
        role: [n for n in chosen.get(role, ()) if role not in STATES or n not in states.kinds] for role in chosen
    }
    if action_as_labels:
        del numeric["action"]
    widths = {name: table.width(name) for role in D4RL_NAMES for name in numeric.get(role, ())}
    contents = _Contents(np.zeros(table.rows, bool), _allocate(table.rows, numeric, widths))
    contents.states = states
    contents.flags = {role: np.empty(table.rows, bool) for role in ("terminal", "timeout") if role in chosen}
    counts = set()
    for group in table.groups(names):
        filled = 0
        for batch in table.batches(group):
            rows = slice(filled, filled + batch.num_rows)
            if rows.stop <= table.rows:
                _copy_batch(batch, chosen, widths, rows, contents)
            filled = rows.stop
        counts.add(filled)
    if len(counts) > 1 or max(counts) > table.rows or (table.exact and counts != {table.rows}):
        raise UserError(f"there are {max(counts)} rows where the file declares {table.rows}: copy or write it again.")
    rows = counts.pop()
    if rows:
        _encode(table, chosen, widths, rows, contents, encoding if encoding != FIT else columns.cyclic)
    need_pyarrow("reading tables").default_memory_pool().release_unused()  # Arrow keeps freed memory
    contents.files = table.files()
    return contents.take(slice(rows))


def _encode(
    table: Table,
    chosen: dict[str, list[str]],
    widths: dict[str, int],
    rows: int,
    to: _Contents,
    encoding: Encoder | Sequence[str] | None,
) -> None:
    """Encode the state in place: by an encoder, or by a new one with these cycles of times."""
    numbers = {role: array[:rows] for role, array in to.numbers.items()}
    cells = {role: [(name, i) for name in chosen[role] for i in range(widths.get(name, 0))] for role in numbers}

    def read(names: list[str]) -> dict[str, np.ndarray]:
        return _read_wide(table, names, widths, rows)

    to.encoding_notes = rounded_others(numbers, cells, read)
    if encoding is None:
        to.encoding_notes += subtract_offsets(numbers, cells, read, np.zeros(numbers["obs"].shape[1]))[1]
        return
    if isinstance(encoding, Encoder):
        raw = [name for name in chosen["obs"] for _ in range(widths.get(name, 1))]
        if len(encoding.columns) != len(raw):
            raise UserError(
                f"the state has {len(raw)} values ({listed(chosen['obs'])}) and that of the run has "
                f"{len(encoding.columns)}: give data with the same columns."
            )
        plain = [c.offset for c, name in zip(encoding.columns, raw, strict=True) if name in widths]
        to.encoding_notes += subtract_offsets(numbers, cells, read, np.array(plain))[1]
        to.encoder = encoding
        to.states.require_zones(chosen["obs"], encoding)
        to.encoding_notes += to.states.unseen(chosen["obs"], encoding, widths)
    else:
        (offset, notes), known = subtract_offsets(numbers, cells, read), to.has_next_state[:rows]
        to.encoding_notes += notes
        to.encoder = fit_states(
            chosen, widths, numbers=numbers["obs"], states=to.states, offset=offset, known=known, cyclic=encoding
        )
    if to.encoder is not None and not to.encoder.only_offsets:
        to.encoding_notes += to.states.rounded(chosen["obs"], to.encoder, widths)
        for role in STATES:
            if role in numbers:
                to.numbers[role] = encode_states(chosen[role], widths, numbers[role], to.states, to.encoder)


def _read_wide(table: Table, names: list[str], widths: dict[str, int], rows: int) -> dict[str, np.ndarray]:
    """Columns in float64; the table has been read before, so that nothing can be wrong with them."""
    columns = {name: np.empty((rows, widths[name])) for name in names}
    for group in table.groups(names):
        filled = 0
        for batch in (table.wide_batches or table.batches)(group):
            for name in group:
                values = numbers_of(name, batch.column(name), widths[name], filled, np.float64).values
                columns[name][filled : filled + batch.num_rows] = values
            filled += batch.num_rows
    return columns


def _allocate(rows: int, chosen: dict[str, list[str]], widths: dict[str, int]) -> dict[str, np.ndarray]:
    total = {role: sum(widths[name] for name in chosen[role]) for role in D4RL_NAMES if role in chosen}
    for role, several in ONE_NUMBER.items():
        if total.get(role, 1) != 1:
            raise UserError(f"the column '{chosen[role][0]}' holds {total[role]} {several} per row: give one.")
    if total.get("next_obs", total["obs"]) != total["obs"]:
        raise UserError(
            f"the state has {total['obs']} numbers ({listed(chosen['obs'])}) and the next state has "
            f"{total['next_obs']} ({listed(chosen['next_obs'])}): give as many of both."
        )
    next_states = 0 if "next_obs" in total else total["obs"]
    require_memory(4 * rows * (sum(total.values()) + next_states))
    return {role: np.empty(rows if role in ONE_NUMBER else (rows, total[role]), np.float32) for role in total}


def _copy_batch(batch: Any, chosen: dict[str, list[str]], widths: dict[str, int], rows: slice, to: _Contents) -> None:
    """Copy the chosen columns that this batch has."""
    import pyarrow as pa

    available = set(batch.schema.names)
    for role, array in to.numbers.items():
        into, start = array.reshape(len(array), -1), 0
        for name in chosen[role]:
            if role in STATES and name in to.states.kinds:
                empty = to.states.add(name, batch.column(name)) if name in available else None
            else:
                part = slice(start, start + widths[name])
                start, empty = part.stop, None
                if name in available:
                    into[rows, part], empty = numbers_of(name, batch.column(name), widths[name], rows.start)
                    if role in STATES:
                        to.states.add_gaps(name, rows.start, empty)
            if role == "next_obs" and empty is not None:
                to.has_next_state[rows] |= ~empty
    for role, array in to.flags.items():
        if chosen[role][0] in available:
            array[rows] = flags_of(chosen[role][0], batch.column(chosen[role][0]), rows.start)
    as_they_are = IDENTIFIERS if "action" in to.numbers else (*IDENTIFIERS, "action")
    for name in dict.fromkeys(name for role in as_they_are for name in chosen.get(role, ()) if name in available):
        column = batch.column(name)
        decoded = column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
        to.identifiers.setdefault(name, []).append(decoded)
