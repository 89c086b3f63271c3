"""Tables in every format: episodes, terminals and next states are read correctly, and nothing is invented."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.core.errors import UserError
from pspo.data import Dataset, load_dataset
from pspo.data.column_order import in_order_of
from tests.data.made_up_tables import WAYS, CompleteData, complete_data, through_memory
from tests.refusals import message_of

ways = st.sampled_from(sorted(WAYS))


def refusal(source: Any, **options: Any) -> str:
    return message_of(load_dataset, source, **options)


# Properties


@given(complete_data(), ways)
@settings(max_examples=60, deadline=None)
def test_a_complete_table_is_read_unchanged(data: CompleteData, way: str) -> None:
    loaded = WAYS[way](data.table("next_obs", "terminal", "timeout"))
    expected = Dataset(
        data.obs,
        data.action,
        data.reward,
        data.next_obs,
        data.terminal,
        data.timeout,
        np.full(data.action.shape[1], -1),
        np.full(data.action.shape[1], 1),
    )
    assert loaded.hash == expected.hash
    assert (loaded.name, loaded.notes) == ("dataset", ())


@given(complete_data(), ways)
@settings(max_examples=100, deadline=None)
def test_missing_next_states_are_completed_from_the_following_rows(data: CompleteData, way: str) -> None:
    if data.timeout.sum() == data.rows:
        with pytest.raises(UserError, match="next states are missing"):
            WAYS[way](data.table("terminal", "timeout"))
        return
    loaded = WAYS[way](data.table("terminal", "timeout"))
    kept = np.flatnonzero(~data.timeout)  # nothing to bootstrap from after a time-out
    np.testing.assert_array_equal(loaded.obs, data.obs[kept])
    np.testing.assert_array_equal(loaded.action, data.action[kept])
    np.testing.assert_array_equal(loaded.reward, data.reward[kept])
    np.testing.assert_array_equal(loaded.terminal, data.terminal[kept])
    np.testing.assert_array_equal(loaded.next_known, ~data.terminal[kept])
    np.testing.assert_array_equal(loaded.next_obs[loaded.next_known], data.next_obs[kept][loaded.next_known])
    cut = np.append(data.timeout[1:], False)[kept] & (kept + 1 < data.rows) & ~data.terminal[kept]
    np.testing.assert_array_equal(loaded.timeout, cut)


@given(complete_data(), ways)
@settings(max_examples=60, deadline=None)
def test_an_episode_column_can_replace_a_time_out_column(data: CompleteData, way: str) -> None:
    by_flags = WAYS[way](data.table("next_obs", "terminal", "timeout"))
    assert WAYS[way](data.table("next_obs", "terminal", "episode")).hash == by_flags.hash
    alone = WAYS[way](data.table("next_obs", "episode"))
    np.testing.assert_array_equal(alone.timeout, by_flags.episode_end)
    assert not alone.terminal.any()
    assert "their ends are time-outs" in alone.notes[0]


@given(complete_data(), st.randoms(), ways)
@settings(max_examples=40, deadline=None)
def test_columns_keep_the_order_of_the_table_whatever_their_names(data: CompleteData, rng: Any, way: str) -> None:
    columns = data.table("next_obs", "terminal", "timeout")
    renamed = {
        name.replace("next_obs_", "q").replace("obs_", "p").replace("action_", "u"): v for name, v in columns.items()
    }
    shuffled = {name: renamed[name] for name in rng.sample(sorted(renamed), len(renamed))}
    loaded = WAYS[way](shuffled, columns={"obs": "p*", "action": "u*", "next_obs": "q*"})
    assert loaded.obs_names == tuple(name for name in shuffled if name.startswith("p"))
    assert loaded.action_names == tuple(name for name in shuffled if name.startswith("u"))
    for d, name in enumerate(loaded.obs_names):
        np.testing.assert_array_equal(loaded.obs[:, d], renamed[name])
        np.testing.assert_array_equal(loaded.next_obs[:, d], renamed[name.replace("p", "q")])
    expected, numbers = WAYS[way](columns), lambda names: tuple(f"{name[0]}{d}" for d, name in enumerate(names))
    assert in_order_of(loaded, numbers(loaded.obs_names), numbers(loaded.action_names)).hash == expected.hash


# Ends


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_row_that_is_terminal_and_a_time_out_is_terminal(way: str) -> None:
    flags = {"terminal": [0, 1, 0, 0], "timeout": [0, 1, 0, 1]}
    loaded = WAYS[way]({"obs": [1.0, 2.0, 3.0, 4.0], "action": [0.0] * 4, "reward": [1.0] * 4, **flags})
    assert loaded.terminal.tolist() == [False, True, False]
    assert loaded.timeout.tolist() == [False, False, True]


ROW = {"obs": [1.0, 2.0, 3.0, 4.0], "action": [0.1, 0.2, 0.3, 0.4], "reward": [1.0, 2.0, 3.0, 4.0]}


def test_a_column_called_done_counts_as_terminals_with_a_note() -> None:
    done = through_memory({**ROW, "done": [0, 1, 0, 1]})
    assert done.terminal.tolist() == [False, True, False, True]
    assert "'done' is taken for terminals" in done.notes[0]
    both = through_memory({**ROW, "done": [0, 1, 0, 1], "truncated": [0, 1, 0, 0]})
    assert "both mark count as terminals (1 in all)" in both.notes[0]
    apart = through_memory({**ROW, "done": [0, 1, 0, 0], "truncated": [0, 0, 0, 1]})
    assert not any("done" in note for note in apart.notes)


def test_an_episode_in_two_pieces_is_refused() -> None:
    message = refusal(pa.table({**ROW, "episode": ["a", "b", "a", "a"], "done": [1, 1, 0, 1]}))
    assert "row 2 returns to episode a" in message
    assert "is empty at row 1" in refusal(pa.table({**ROW, "episode": ["a", None, "a", "a"]}))
    assert "cannot number episodes" in refusal(pa.table({**ROW, "episode": [[1], [1], [2], [2]]}))


def test_episodes_can_be_categories() -> None:
    category = pd.Categorical(["b", "b", "a", "a"])
    assert load_dataset(pd.DataFrame({**ROW, "episode": category})).obs[:, 0].tolist() == [1, 3]


def test_missing_cells_of_next_states_are_not_numbers() -> None:
    """Empty cells at a terminal are unknown; a NaN is a NaN, which is for `check` to report."""
    columns = {**ROW, "terminal": [0, 1, 0, 1], "next_obs": [2.0, None, 4.0, float("nan")]}
    for way in WAYS.values():
        loaded = way(columns)
        assert loaded.next_known.tolist() == [True, False, True, True]
        assert np.isnan(loaded.next_obs[3, 0])


# Cells


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.int64(), 3)])
def test_a_list_column_is_read_as_several_columns(kind: pa.DataType, tmp_path: Path) -> None:
    obs = np.arange(12).reshape(4, 3)
    columns = {**ROW, "obs": pa.array(obs.tolist(), kind), "terminal": [0, 0, 0, 1]}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "data.parquet")
    for source in (tmp_path / "data.parquet", pa.table(columns)):
        np.testing.assert_array_equal(load_dataset(source).obs, obs)


def test_lists_of_different_lengths_are_refused() -> None:
    columns = {**ROW, "obs": [[1.0, 2.0], [1.0, 2.0], [1.0], [1.0, 2.0]], "terminal": [0, 0, 0, 1]}
    assert "1 numbers at row 2 and 2 in the first row" in refusal(pa.table(columns))
    columns["reward"] = columns["obs"][:2] * 2
    columns["obs"] = ROW["obs"]
    assert "2 rewards per row" in refusal(pa.table(columns))


def test_empty_lists_are_refused() -> None:
    columns = {**ROW, "obs": pa.array([[]] * 4, pa.list_(pa.float64())), "terminal": [0, 0, 0, 1]}
    message_of(load_dataset, pa.table(columns), naming="column 'obs' holds empty lists")


def test_a_missing_list_is_a_missing_next_state() -> None:
    after = [None, [3.0, 4.0], None, [5.0, 6.0]]
    loaded = through_memory({**ROW, "obs": [[1.0, 2.0]] * 4, "next_obs": after, "terminal": [1, 1, 1, 1]})
    assert loaded.next_known.tolist() == [False, True, False, True]
    assert loaded.next_obs.tolist() == [[1, 2], [3, 4], [1, 2], [5, 6]]


def test_all_numeric_types_are_read() -> None:
    column = pa.array([1, 2, 3, 4], pa.int8())
    for kind in (
        pa.int8(),
        pa.uint64(),
        pa.float16(),
        pa.float64(),
        pa.decimal128(10, 2),
        pa.dictionary(pa.int8(), pa.int64()),
    ):
        cast = column.cast(pa.int64()).dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
        loaded = through_memory({**ROW, "obs": cast, "done": [False, False, False, True]})
        assert loaded.obs[:, 0].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"reward": ["a", "b", "c", "d"]}, ["column 'reward'", "string", "'a'"]),
        ({"reward": [datetime.datetime(2026, 1, 1)] * 4}, ["column 'reward'", "timestamp"]),
        ({"reward": [{"a": 1}] * 4}, ["column 'reward'", "struct"]),
        ({"done": [0, 2, 0, 1]}, ["column 'done'", "2.0 at row 1"]),
        ({"done": [0, None, 0, 1]}, ["column 'done'", "nothing at row 1"]),
        ({"next_obs_0": [1.0] * 4, "next_obs_1": [1.0] * 4}, ["the state has 1 numbers", "the next state has 2"]),
        ({}, []),
    ],
)
def test_cells_that_are_not_numbers_are_named(columns: dict[str, Any], words: list[str]) -> None:
    table = {**ROW, "done": [0, 0, 0, 1], **columns}
    if not words:
        assert load_dataset(pa.table(table)).size == 4  # the rest of the table is right
        return
    message = refusal(pa.table(table))
    for word in words:
        assert word in message


def test_unused_columns_are_noted() -> None:
    assert through_memory({**ROW, "terminal": [0, 0, 0, 1], "comment": ["x"] * 4}).notes[0] == (
        "columns that are not used: 'comment'."
    )


def test_a_table_without_rows_is_refused() -> None:
    assert "no rows" in refusal(pa.table({name: pa.array([], pa.float32()) for name in (*ROW, "done")}))


# Frames


class Interchange:
    """Something that only knows the old protocol of data frames."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def __dataframe__(self, **options: Any) -> Any:
        return pa.table(self.frame).__dataframe__(**options)


class ToArrow:
    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def to_arrow(self) -> pa.Table:
        return pa.table(self.frame)


@pytest.mark.parametrize("wrap", [lambda frame: frame, Interchange, ToArrow, pa.table])
def test_data_frames_of_all_libraries_are_read(wrap: Any) -> None:
    frame = pd.DataFrame({**ROW, "terminal": [False, True, False, True]}, index=[4, 5, 6, 7])
    loaded = load_dataset(wrap(frame), task="liquidation")
    assert loaded.obs[:, 0].tolist() == ROW["obs"]
    assert loaded.task == "liquidation"


def test_a_frame_of_mixed_objects_is_refused() -> None:
    assert "cannot be read as a table" in refusal(pd.DataFrame({**ROW, "obs": [1, "x", [2], 3], "done": [0, 0, 0, 1]}))
    assert "cannot be" in refusal(pd.Series([1.0, 2.0]))


# CSV


def csv(tmp_path: Path, text: str) -> Path:
    (tmp_path / "data.csv").write_text(text)
    return tmp_path / "data.csv"


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("line", ["\n", "\r\n"])
def test_csv_files_of_all_dialects_are_read(tmp_path: Path, delimiter: str, line: str) -> None:
    rows = ["obs,action,reward,id,done", "1,0.5,3, a,False", "2, 0.25 ,4,a,True", '"3",-1,5,b,TRUE']
    loaded = load_dataset(csv(tmp_path, "\ufeff" + line.join(rows).replace(",", delimiter)), columns={"episode": "id"})
    assert loaded.obs[:, 0].tolist() == [1, 2, 3]
    assert loaded.action[:, 0].tolist() == [0.5, 0.25, -1]
    assert loaded.terminal.tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["Empty"]),
        ("obs,action,reward,done\n", ["no rows"]),
        ("obs,action,reward,done\n1,2,3\n", ["Expected 4 columns, got 3"]),
        ("obs,action,reward,done\n1,2,3,0\n1,two,3,1\n", ["'action' holds 'two' at row 1", "not a number"]),
        ("obs,action,reward,done\n1,2,3,True\n1,2,3,maybe\n", ["'done' holds 'maybe' at row 1", "true or false"]),
        ("obs,action,reward,done\n1,2,3,1\n1,2,3,7\n", ["'done' holds 7.0 at row 1"]),
        ("obs,obs,action,reward,done\n1,2,3,4,1\n", ["'obs' occurs more than once"]),
        ("1,2,3\n4,5,6\n", ["the obs among '1', '2', '3'"]),
    ],
)
def test_errors_in_csv_files_name_the_place(tmp_path: Path, text: str, words: list[str]) -> None:
    message = refusal(csv(tmp_path, text))
    for word in ("data.csv", *words):
        assert word in message


def test_a_text_far_down_a_csv_is_found(tmp_path: Path) -> None:
    rows = [f"{n}.5,0,{n},0" for n in range(100_000)]
    rows[77_777] = "7x,0,0,0"
    path = csv(tmp_path, "\n".join(["obs,action,reward,done", *rows]))
    assert "'obs' holds '7x' at row 77777 (line 77779)" in refusal(path)


def test_missing_rewards_become_nan_which_check_reports(tmp_path: Path) -> None:
    loaded = load_dataset(csv(tmp_path, "obs,action,reward,done\n1,0,1,0\n,0,NA,0\n3,0,1,1\n"))
    assert loaded.obs[1].tolist() == [1.0, 1.0]  # the lower median, and that it is missing
    assert np.isnan(loaded.reward[1])


# The built-in dataset as a table


@pytest.mark.parametrize("way", ["csv", "parquet"])
def test_the_liquidation_dataset_survives_a_round_trip_as_a_table(way: str) -> None:
    data = load_dataset("liquidation", size=3000)
    columns: dict[str, Any] = {f"x{d}": data.obs[:, d] for d in range(3)}
    columns |= {"u": data.action[:, 0], "r": data.reward, "id": np.cumsum(np.append(0, data.episode_end[:-1]))}
    columns["over"] = data.terminal
    roles = {"obs": "x*", "action": "u", "reward": "r", "episode": "id", "terminal": "over"}
    loaded = WAYS[way](columns, columns=roles, task="liquidation")
    assert not data.terminal[-1]
    rows = slice(0, 2999)  # the last one was cut: its next state is unknown
    for field in ("obs", "action", "reward", "terminal", "action_low", "action_high"):
        expected = getattr(data, field)
        np.testing.assert_array_equal(
            getattr(loaded, field), expected if field.startswith("action_") else expected[rows]
        )
    known = loaded.next_known
    np.testing.assert_array_equal(known, ~data.terminal[rows])
    np.testing.assert_array_equal(loaded.next_obs[known], data.next_obs[rows][known])
    assert loaded.terminal.sum() == data.terminal.sum() > 100
    assert loaded.task == "liquidation"


def test_without_pyarrow_one_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = csv(tmp_path, "obs\n1\n")
    frame = pd.DataFrame(ROW)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    for source in (path, frame):
        assert "pip install 'pspo[tables]'" in refusal(source)


# Names


@pytest.mark.parametrize("way", sorted(WAYS))
def test_columns_keep_their_names_unless_one_holds_several_numbers(way: str) -> None:
    rows = np.arange(200.0)
    table = {"obs_level": rows, "obs_flow": rows + 1, "action_valve": np.sin(rows), "reward": rows}
    loaded = WAYS[way](table | {"terminal": rows % 10 == 9})
    assert (loaded.obs_names, loaded.action_names) == (("obs_level", "obs_flow"), ("action_valve",))


def test_parts_of_a_list_have_no_names() -> None:
    rows = np.arange(200.0)
    pairs = np.column_stack([rows, rows + 1])
    arrays = {"s": pairs, "u": np.sin(rows), "gain": rows, "over": rows % 10 == 9}
    columns = {"obs": "s", "action": "u", "reward": "gain", "terminal": "over"}
    in_memory = load_dataset(arrays, columns=columns)
    as_table = load_dataset(pd.DataFrame(arrays | {"s": [*pairs.tolist()]}), columns=columns)
    for loaded in (in_memory, as_table):
        assert (loaded.obs_dim, loaded.obs_names, loaded.action_names) == (2, (), ("u",))
    with pytest.raises(UserError, match="'obs_names' are 1 where there are 2 columns"):
        dataclasses.replace(in_memory, obs_names=("s",))
    with pytest.raises(UserError, match="'obs_names' has two columns of one name"):
        dataclasses.replace(in_memory, obs_names=("s", "s"))
