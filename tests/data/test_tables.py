"""Tables in every format: episodes, ends and next states come out as they were, and nothing is invented."""

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
from tests.data.made_up_logs import WAYS, DeviceDataset, logs, through_memory

ways = st.sampled_from(sorted(WAYS))


def refusal(source: Any, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        load_dataset(source, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Properties


@given(logs(), ways)
@settings(max_examples=60, deadline=None)
def test_a_complete_table_loses_nothing(log: DeviceDataset, way: str) -> None:
    found = WAYS[way](log.table("next_obs", "terminal", "timeout"))
    expected = Dataset(
        log.obs,
        log.action,
        log.reward,
        log.next_obs,
        log.terminal,
        log.timeout,
        np.full(log.action.shape[1], -1),
        np.full(log.action.shape[1], 1),
    )
    assert found.hash == expected.hash
    assert (found.name, found.notes) == ("dataset", ())


@given(logs(), ways)
@settings(max_examples=100, deadline=None)
def test_next_states_that_are_deleted_come_back_wherever_they_can_be_known(log: DeviceDataset, way: str) -> None:
    if log.timeout.sum() == log.transitions:
        with pytest.raises(UserError, match="next states are missing"):
            WAYS[way](log.table("terminal", "timeout"))
        return
    found = WAYS[way](log.table("terminal", "timeout"))
    kept = np.flatnonzero(~log.timeout)  # nothing to bootstrap from after a time-out
    np.testing.assert_array_equal(found.obs, log.obs[kept])
    np.testing.assert_array_equal(found.action, log.action[kept])
    np.testing.assert_array_equal(found.reward, log.reward[kept])
    np.testing.assert_array_equal(found.terminal, log.terminal[kept])
    np.testing.assert_array_equal(found.next_known, ~log.terminal[kept])
    np.testing.assert_array_equal(found.next_obs[found.next_known], log.next_obs[kept][found.next_known])
    cut = np.append(log.timeout[1:], False)[kept] & (kept + 1 < log.transitions) & ~log.terminal[kept]
    np.testing.assert_array_equal(found.timeout, cut)


@given(logs(), ways)
@settings(max_examples=60, deadline=None)
def test_an_episode_column_does_the_work_of_a_time_out_column(log: DeviceDataset, way: str) -> None:
    by_flags = WAYS[way](log.table("next_obs", "terminal", "timeout"))
    assert WAYS[way](log.table("next_obs", "terminal", "episode")).hash == by_flags.hash
    alone = WAYS[way](log.table("next_obs", "episode"))
    np.testing.assert_array_equal(alone.timeout, by_flags.episode_end)
    assert not alone.terminal.any()
    assert "their ends are time-outs" in alone.notes[0]


@given(logs(), st.randoms(), ways)
@settings(max_examples=40, deadline=None)
def test_the_order_and_the_names_of_columns_do_not_matter(log: DeviceDataset, rng: Any, way: str) -> None:
    columns = log.table("next_obs", "terminal", "timeout")
    renamed = {
        name.replace("next_obs_", "q").replace("obs_", "p").replace("action_", "u"): v for name, v in columns.items()
    }
    shuffled = {name: renamed[name] for name in rng.sample(sorted(renamed), len(renamed))}
    found = WAYS[way](shuffled, columns={"obs": "p*", "action": "u*", "next_obs": "q*"})
    assert found.hash == WAYS[way](columns).hash


# Ends


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_row_that_is_terminal_and_a_time_out_is_terminal(way: str) -> None:
    flags = {"terminal": [0, 1, 0, 0], "timeout": [0, 1, 0, 1]}
    found = WAYS[way]({"obs": [1.0, 2.0, 3.0, 4.0], "action": [0.0] * 4, "reward": [1.0] * 4, **flags})
    assert found.terminal.tolist() == [False, True, False]
    assert found.timeout.tolist() == [False, False, True]


ROW = {"obs": [1.0, 2.0, 3.0, 4.0], "action": [0.1, 0.2, 0.3, 0.4], "reward": [1.0, 2.0, 3.0, 4.0]}


def test_a_column_called_done_is_taken_for_terminals_and_that_is_said() -> None:
    done = through_memory({**ROW, "done": [0, 1, 0, 1]})
    assert done.terminal.tolist() == [False, True, False, True]
    assert "'done' is taken for terminals" in done.notes[0]
    both = through_memory({**ROW, "done": [0, 1, 0, 1], "truncated": [0, 1, 0, 0]})
    assert "both mark count as terminals (1 in all)" in both.notes[0]
    apart = through_memory({**ROW, "done": [0, 1, 0, 0], "truncated": [0, 0, 0, 1]})
    assert not any("done" in note for note in apart.notes)


def test_an_episode_that_comes_back_is_refused() -> None:
    message = refusal(pa.table({**ROW, "episode": ["a", "b", "a", "a"], "done": [1, 1, 0, 1]}))
    assert "row 2 comes back to episode a" in message
    assert "nothing at row 1" in refusal(pa.table({**ROW, "episode": ["a", None, "a", "a"]}))
    assert "cannot number episodes" in refusal(pa.table({**ROW, "episode": [[1], [1], [2], [2]]}))


def test_categories_number_episodes_too() -> None:
    category = pd.Categorical(["b", "b", "a", "a"])
    assert load_dataset(pd.DataFrame({**ROW, "episode": category})).obs[:, 0].tolist() == [1, 3]


def test_gaps_in_next_states_are_gaps_and_not_numbers() -> None:
    """Empty cells at a terminal are unknown; a NaN is a NaN, which is for `check` to report."""
    columns = {**ROW, "terminal": [0, 1, 0, 1], "next_obs": [2.0, None, 4.0, float("nan")]}
    for way in WAYS.values():
        found = way(columns)
        assert found.next_known.tolist() == [True, False, True, True]
        assert np.isnan(found.next_obs[3, 0])


# Cells


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.int64(), 3)])
def test_lists_are_columns_side_by_side(kind: pa.DataType, tmp_path: Path) -> None:
    obs = np.arange(12).reshape(4, 3)
    columns = {**ROW, "obs": pa.array(obs.tolist(), kind), "terminal": [0, 0, 0, 1]}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    for source in (tmp_path / "log.parquet", pa.table(columns)):
        np.testing.assert_array_equal(load_dataset(source).obs, obs)


def test_lists_of_different_lengths_are_refused() -> None:
    columns = {**ROW, "obs": [[1.0, 2.0], [1.0, 2.0], [1.0], [1.0, 2.0]], "terminal": [0, 0, 0, 1]}
    assert "1 numbers at row 2 and 2 in the first row" in refusal(pa.table(columns))
    columns["reward"] = columns["obs"][:2] * 2
    columns["obs"] = ROW["obs"]
    assert "2 rewards per row" in refusal(pa.table(columns))


def test_a_missing_list_is_a_missing_next_state() -> None:
    after = [None, [3.0, 4.0], None, [5.0, 6.0]]
    found = through_memory({**ROW, "obs": [[1.0, 2.0]] * 4, "next_obs": after, "terminal": [1, 1, 1, 1]})
    assert found.next_known.tolist() == [False, True, False, True]
    assert found.next_obs.tolist() == [[1, 2], [3, 4], [1, 2], [5, 6]]


def test_any_kind_of_number_will_do() -> None:
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
        found = through_memory({**ROW, "obs": cast, "done": [False, False, False, True]})
        assert found.obs[:, 0].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"obs": ["a", "b", "c", "d"]}, ["column 'obs'", "string", "'a'"]),
        ({"obs": [datetime.datetime(2026, 1, 1)] * 4}, ["column 'obs'", "timestamp"]),
        ({"reward": [{"a": 1}] * 4}, ["column 'reward'", "struct"]),
        ({"done": [0, 2, 0, 1]}, ["column 'done'", "2.0 at row 1"]),
        ({"done": [0, None, 0, 1]}, ["column 'done'", "nothing at row 1"]),
        ({"next_obs_0": [1.0] * 4, "next_obs_1": [1.0] * 4}, ["the state has 1 numbers", "the next state has 2"]),
        ({}, []),
    ],
)
def test_cells_that_are_no_numbers_are_named(columns: dict[str, Any], words: list[str]) -> None:
    table = {**ROW, "done": [0, 0, 0, 1], **columns}
    if not words:
        assert load_dataset(pa.table(table)).size == 4  # the rest of the table is right
        return
    message = refusal(pa.table(table))
    for word in words:
        assert word in message


def test_columns_without_a_use_are_said() -> None:
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
def test_data_frames_of_any_make(wrap: Any) -> None:
    frame = pd.DataFrame({**ROW, "terminal": [False, True, False, True]}, index=[4, 5, 6, 7])
    found = load_dataset(wrap(frame), task="liquidation")
    assert found.obs[:, 0].tolist() == ROW["obs"]
    assert found.task == "liquidation"


def test_a_frame_of_mixed_objects_is_refused() -> None:
    assert "cannot be read as a table" in refusal(pd.DataFrame({**ROW, "obs": [1, "x", [2], 3], "done": [0, 0, 0, 1]}))
    assert "cannot be" in refusal(pd.Series([1.0, 2.0]))


# CSV


def csv(tmp_path: Path, text: str) -> Path:
    (tmp_path / "log.csv").write_text(text)
    return tmp_path / "log.csv"


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("line", ["\n", "\r\n"])
def test_csv_of_any_dialect(tmp_path: Path, delimiter: str, line: str) -> None:
    rows = ["obs,action,reward,id,done", "1,0.5,3, a,False", "2, 0.25 ,4,a,True", '"3",-1,5,b,TRUE']
    found = load_dataset(csv(tmp_path, "\ufeff" + line.join(rows).replace(",", delimiter)), columns={"episode": "id"})
    assert found.obs[:, 0].tolist() == [1, 2, 3]
    assert found.action[:, 0].tolist() == [0.5, 0.25, -1]
    assert found.terminal.tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["Empty"]),
        ("obs,action,reward,done\n", ["no rows"]),
        ("obs,action,reward,done\n1,2,3\n", ["Expected 4 columns, got 3"]),
        ("obs,action,reward,done\n1,2,3,0\n1,two,3,1\n", ["'action' holds 'two' at row 1 (line 3)", "not a number"]),
        ("obs,action,reward,done\n1,2,3,True\n1,2,3,maybe\n", ["'done' holds 'maybe' at row 1", "true or false"]),
        ("obs,action,reward,done\n1,2,3,1\n1,2,3,7\n", ["'done' holds 7.0 at row 1"]),
        ("obs,obs,action,reward,done\n1,2,3,4,1\n", ["'obs' occurs more than once"]),
        ("1,2,3\n4,5,6\n", ["the obs among '1', '2', '3'"]),
    ],
)
def test_csv_that_cannot_be_read_says_where(tmp_path: Path, text: str, words: list[str]) -> None:
    message = refusal(csv(tmp_path, text))
    for word in ("log.csv", *words):
        assert word in message


def test_a_text_far_down_a_csv_is_found(tmp_path: Path) -> None:
    rows = [f"{n}.5,0,{n},0" for n in range(100_000)]
    rows[77_777] = "7x,0,0,0"
    path = csv(tmp_path, "\n".join(["obs,action,reward,done", *rows]))
    assert "'obs' holds '7x' at row 77777 (line 77779)" in refusal(path)


def test_missing_cells_are_nan_for_check_to_report(tmp_path: Path) -> None:
    found = load_dataset(csv(tmp_path, "obs,action,reward,done\n1,0,1,0\n,0,NA,0\n3,0,1,1\n"))
    assert np.isnan(found.obs[1, 0])
    assert np.isnan(found.reward[1])


# The built-in log as a table


@pytest.mark.parametrize("way", ["csv", "parquet"])
def test_the_liquidation_log_as_a_table_has_the_rows_of_the_built_in_one(way: str) -> None:
    log = load_dataset("liquidation", size=3000)
    columns: dict[str, Any] = {f"x{d}": log.obs[:, d] for d in range(3)}
    columns |= {"u": log.action[:, 0], "r": log.reward, "id": np.cumsum(np.append(0, log.episode_end[:-1]))}
    columns["over"] = log.terminal
    roles = {"obs": "x*", "action": "u", "reward": "r", "episode": "id", "terminal": "over"}
    found = WAYS[way](columns, columns=roles, task="liquidation")
    assert not log.terminal[-1]
    rows = slice(0, 2999)  # the last was cut, and nobody knows what came after it
    for field in ("obs", "action", "reward", "terminal", "action_low", "action_high"):
        expected = getattr(log, field)
        np.testing.assert_array_equal(
            getattr(found, field), expected if field.startswith("action_") else expected[rows]
        )
    known = found.next_known
    np.testing.assert_array_equal(known, ~log.terminal[rows])
    np.testing.assert_array_equal(found.next_obs[known], log.next_obs[rows][known])
    assert found.terminal.sum() == log.terminal.sum() > 100
    assert found.task == "liquidation"


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
    found = WAYS[way](table | {"terminal": rows % 10 == 9})
    assert (found.obs_names, found.action_names) == (("obs_flow", "obs_level"), ("action_valve",))


def test_parts_of_a_list_have_no_names() -> None:
    rows = np.arange(200.0)
    pairs = np.column_stack([rows, rows + 1])
    arrays = {"s": pairs, "u": np.sin(rows), "gain": rows, "over": rows % 10 == 9}
    columns = {"obs": "s", "action": "u", "reward": "gain", "terminal": "over"}
    in_memory = load_dataset(arrays, columns=columns)
    as_table = load_dataset(pd.DataFrame(arrays | {"s": [*pairs.tolist()]}), columns=columns)
    for found in (in_memory, as_table):
        assert (found.obs_dim, found.obs_names, found.action_names) == (2, (), ("u",))
    with pytest.raises(UserError, match="'obs_names' are 1 where there are 2 columns"):
        dataclasses.replace(in_memory, obs_names=("s",))
