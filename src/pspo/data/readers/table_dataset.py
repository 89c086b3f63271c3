"""Tables - CSV, Parquet, data frames - as datasets: Arrow batches are poured straight into the final arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.data.columns import Columns, choose, listed
from pspo.data.d4rl_layout import fields_from_d4rl
from pspo.data.dataset import Dataset
from pspo.data.episode_ends import mark_ends
from pspo.data.readers.arrow_columns import flags, numbers

D4RL_NAMES = {"obs": "observations", "action": "actions", "reward": "rewards", "next_obs": "next_observations"}


def need_pyarrow(what: str) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise UserError(f"{what} needs pyarrow, which is not installed: pip install 'pspo[tables]'.") from None
    return pyarrow


@dataclass(frozen=True)
class Table:
    """A table whose columns are not yet read."""

    names: list[str]
    rows: int  # exactly; or, where only reading tells, at most
    batches: Callable[[list[str]], Iterator[Any]]  # Arrow record batches of these columns, in order
    width: Callable[[str], int] = lambda _: 1  # numbers in a cell of this column
    exact: bool = True
    by_column: bool = False  # columns lie one after the other: reading them so takes the least memory


def table_dataset(table: Table, columns: Columns, labels: dict[str, Any]) -> Dataset:
    """`labels` are what is known beside the rows: name, task, notes, bounds of the actions."""
    chosen = choose(table.names, columns)
    poured = _pour(table, chosen)
    rows = len(poured.has_next_state)
    if not rows:
        raise UserError("there are no rows: give at least one.")
    terminal, timeout, notes = mark_ends(rows, chosen, poured.flags, poured.episode(chosen.get("episode", [""])[0]))
    used = {name for members in chosen.values() for name in members}
    if unused := [name for name in table.names if name not in used]:
        notes.append(f"columns that are not used: {listed(unused)}.")
    arrays: dict[str, Any] = {D4RL_NAMES[role]: poured.numbers.pop(role) for role in list(poured.numbers)}
    if "next_obs" in chosen:
        arrays["next_known"] = poured.has_next_state
    arrays |= {"terminals": terminal, "timeouts": timeout}
    arrays |= {**labels, "notes": [*labels.get("notes", ()), *notes]}
    names: dict[str, Any] = {f"{role}_names": single_columns(chosen[role], table.width) for role in ("obs", "action")}
    return Dataset(**fields_from_d4rl(arrays), **names)  # which lets go of rows as soon as it has those that stay


def single_columns(members: list[str], width: Callable[[str], int]) -> tuple[str, ...]:
    """Their names, unless some hold several numbers, which have none."""
    return tuple(members) if all(width(name) == 1 for name in members) else ()


@dataclass
class _Poured:
    has_next_state: np.ndarray
    numbers: dict[str, np.ndarray] = field(default_factory=dict)
    flags: dict[str, np.ndarray] = field(default_factory=dict)
    episodes: list[Any] = field(default_factory=list)

    def first(self, rows: int) -> _Poured:
        for array in self.numbers.values():
            array.setflags(write=False)  # nobody else has them: the dataset need not copy them
        numbers = {role: array[:rows] for role, array in self.numbers.items()}
        flags = {role: array[:rows] for role, array in self.flags.items()}
        return _Poured(self.has_next_state[:rows], numbers, flags, self.episodes)

    def episode(self, column: str) -> tuple[np.ndarray, Any] | None:
        """A number per row, and what each number stands for."""
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


def _pour(table: Table, chosen: dict[str, list[str]]) -> _Poured:
    names = list(dict.fromkeys(name for members in chosen.values() for name in members))
    widths = {name: table.width(name) for role in D4RL_NAMES for name in chosen.get(role, ())}
    poured = _Poured(np.zeros(table.rows, bool), _allocate(table.rows, chosen, widths))
    poured.flags = {role: np.empty(table.rows, bool) for role in ("terminal", "timeout") if role in chosen}
    found = set()
    for group in [[name] for name in names] if table.by_column else [names]:
        filled = 0
        for batch in table.batches(group):
            rows = slice(filled, filled + batch.num_rows)
            if rows.stop <= table.rows:
                _pour_batch(batch, chosen, widths, rows, poured)
            filled = rows.stop
        found.add(filled)
    if len(found) > 1 or max(found) > table.rows or (table.exact and found != {table.rows}):
        raise UserError(f"there are {max(found)} rows where {table.rows} are promised: copy or write it again.")
    need_pyarrow("reading tables").default_memory_pool().release_unused()  # Arrow keeps what it once had
    return poured.first(found.pop())


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


def _pour_batch(batch: Any, chosen: dict[str, list[str]], widths: dict[str, int], rows: slice, to: _Poured) -> None:
    """Whatever of the chosen columns this batch has, into its place."""
    import pyarrow as pa

    there = set(batch.schema.names)
    for role, array in to.numbers.items():
        into, start = array.reshape(len(array), -1), 0
        for name in chosen[role]:
            place = slice(start, start + widths[name])
            start = place.stop
            if name in there:
                found = numbers(name, batch.column(name), widths[name], rows.start)
                into[rows, place] = found.values
                if role == "next_obs":
                    to.has_next_state[rows] |= ~found.empty
    for role, array in to.flags.items():
        if chosen[role][0] in there:
            array[rows] = flags(chosen[role][0], batch.column(chosen[role][0]), rows.start)
    if "episode" in chosen and chosen["episode"][0] in there:
        found = batch.column(chosen["episode"][0])
        to.episodes.append(found.dictionary_decode() if isinstance(found, pa.DictionaryArray) else found)
