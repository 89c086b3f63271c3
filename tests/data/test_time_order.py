"""`--time`: rows are sorted within episodes; copies, gaps and overlaps are found and named by row and column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.cli.main import main
from pspo.core.errors import UserError
from pspo.data import Dataset, load_dataset

COLUMNS = {"obs": "x", "action": "u", "reward": "r", "episode": "id", "time": "t"}


def log(episodes: int = 4, steps: int = 12) -> dict[str, np.ndarray]:
    """A clean log, one episode after the other."""
    rows = episodes * steps
    number = np.repeat(np.arange(episodes), steps)
    random = np.random.default_rng(0)
    days = np.datetime64("2024-01-01") + np.arange(rows)
    return {
        "id": number,
        "t": days.astype("datetime64[D]"),
        "x": np.arange(rows, dtype=float),
        "u": random.uniform(-1, 1, rows),
        "r": random.normal(size=rows),
    }


def load(table: dict[str, np.ndarray], **columns: Any) -> Dataset:
    return load_dataset(pa.table(table), columns=COLUMNS | columns)


def taken(table: dict[str, np.ndarray], rows: Any) -> dict[str, np.ndarray]:
    return {name: column[rows] for name, column in table.items()}


def notes(dataset: Dataset, words: str) -> list[str]:
    return [note for note in dataset.notes if words in note]


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(48)))
def test_any_order_of_the_rows_gives_the_same_dataset(order: list[int]) -> None:
    assert load(taken(log(), order)).hash == load(log()).hash


def test_rows_in_order_are_not_mentioned_and_others_are() -> None:
    assert not notes(load(log()), "sorted")
    order = np.arange(48)
    order[[20, 21]] = order[[21, 20]]
    assert notes(load(taken(log(), order)), "sorted by 't' within episodes: they were not in that order, as at row 20")


def test_episodes_in_another_order_are_not_mentioned() -> None:
    """Of several stores, say, each in the order of time: nothing was wrong with them."""
    later = np.roll(np.arange(48), 24)
    assert not notes(load(taken(log(), later)), "sorted")
    mixed = np.arange(48).reshape(4, 12).T.ravel()
    assert load(taken(log(), mixed)).hash == load(log()).hash
    assert not notes(load(taken(log(), mixed)), "sorted")


@pytest.mark.parametrize(
    "times",
    [
        np.arange(48) * 3600.0,
        np.arange(48, dtype=np.int64) + 1_700_000_000_000_000_000,  # nanoseconds, more digits than a float has
        (np.datetime64("2024-01-01T00:00:00") + np.arange(48) * np.timedelta64(15, "m")).astype("datetime64[ms]"),
        np.array([f"2024-01-01 {hour // 2:02}:{30 * (hour % 2):02}:00" for hour in range(48)]),
        np.arange(48) % 12,  # starts again in each episode
    ],
    ids=["numbers", "nanoseconds", "timestamps", "texts", "steps"],
)
@pytest.mark.parametrize("source", ["memory", "csv", "parquet", "arrays"])
def test_every_kind_of_time_in_every_source(tmp_path: Path, times: np.ndarray, source: str) -> None:
    table = log() | {"t": times}
    expected = load(log()).hash
    mixed = taken(table, np.random.default_rng(1).permutation(48))
    if source == "arrays":
        found = load_dataset({**mixed, "x": mixed["x"][:, None]}, columns=COLUMNS)
    elif source == "memory":
        found = load(mixed)
    else:
        path = tmp_path / f"log.{source}"
        write = pyarrow.csv.write_csv if source == "csv" else pyarrow.parquet.write_table
        write(pa.table(mixed), str(path))
        found = load_dataset(path, columns=COLUMNS)
    if times[12] == times[0]:  # steps: the order of episodes is that of the table
        assert sorted(found.obs[:, 0]) == sorted(load(log()).obs[:, 0])
        assert (found.next_obs[:, 0] == found.obs[:, 0] + 1).all()
    else:
        assert found.hash == expected


def test_a_time_may_also_be_part_of_the_state() -> None:
    table = {name: column for name, column in log().items() if name != "t"} | {"t": np.arange(48.0)}
    assert load(table, obs="x,t").obs_names == ("x", "t")
    assert load(table, obs="*", action="u", reward="r").obs_names == ("x",)
    renamed = {"obs_t": table["t"], "obs_x": table["x"], "action": table["u"], "reward": table["r"], "id": table["id"]}
    assert load_dataset(pa.table(renamed), columns={"time": "obs_t", "episode": "id"}).obs_names == ("obs_t", "obs_x")


def test_a_missing_day_cuts_the_episode_and_is_named() -> None:
    kept = np.delete(np.arange(48), 17)
    dataset = load(taken(log(), kept))
    (note,) = notes(dataset, "rows are missing")
    assert "'t' goes from 2024-01-17 (row 16) to 2024-01-19 (row 17), where a step is 1 day (gaps in all: 1)" in note
    assert (dataset.next_obs[:, 0] == dataset.obs[:, 0] + 1).all()  # no transition over the gap
    assert 16.0 not in dataset.obs[:, 0]


def test_irregular_times_have_no_gaps() -> None:
    times = np.cumsum(np.random.default_rng(0).exponential(size=48))
    assert not notes(load(log() | {"t": times}), "rows are missing")


def test_a_file_written_twice_is_read_once_and_named() -> None:
    twice = taken(log(), np.tile(np.arange(48), 2))
    dataset = load(twice)
    assert dataset.hash == load(log()).hash
    (note,) = notes(dataset, "written twice")
    assert note.startswith("the data seem to be written twice: row 48 repeats row 0, with the same episode, 't' (2024-")
    assert "copies in all: 48" in note


def test_other_rows_of_the_same_time_are_refused_or_named() -> None:
    mixed = log() | {"id": np.zeros(48, int), "t": np.arange(48) // 2}
    with pytest.raises(
        UserError, match=r"row 0 and row 1 have the same 't' \(0\) in one episode and differ .*--episode"
    ):
        load(mixed)
    table = log(20, 30)
    table["t"] = table["t"].copy()
    table["t"][101] = table["t"][100]
    (note,) = notes(load(table), "have the same 't'")
    assert "row 100 and row 101" in note


def test_an_episode_that_begins_before_another_ends() -> None:
    table = log(30, 10)
    table["t"] = np.arange(300.0)
    table["t"][200:210] -= 5
    (note,) = notes(load(table), "episodes overlap")
    assert "'t' 195 (row 200)" in note
    parallel = log(30, 10) | {"t": np.tile(np.arange(10.0), 30)}
    assert not notes(load(parallel), "overlap")


def test_without_episodes_the_rows_are_one_sequence_cut_at_gaps() -> None:
    table = taken(log(), np.delete(np.arange(48), 30))
    columns = {role: name for role, name in COLUMNS.items() if role != "episode"}
    dataset = load_dataset(pa.table(table), columns=columns)
    assert len(dataset.episode_starts) == 2
    assert notes(dataset, "no column marks episodes")


def test_several_columns_identify_an_episode() -> None:
    table = log() | {"unit": np.repeat(["a", "b", "a", "b"], 12), "week": np.repeat([1, 1, 2, 2], 12)}
    order = np.random.default_rng(2).permutation(48)
    dataset = load(taken(table, order), episode="unit,week")
    assert dataset.hash == load(log()).hash
    with pytest.raises(UserError, match=r"returns to episode [ab], [12] of column 'unit, week'"):
        load_dataset(pa.table(taken(table, order)), columns={**COLUMNS, "episode": "unit,week", "time": None})


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([None, *range(47)], "'t' is empty at row 0"),
        ([*range(47), np.nan], "'t' is nan at row 47"),
        (["soon"] * 48, "'t' holds no time, such as 'soon' at row 0"),
        ([True] * 48, "'t' holds no time but values of type bool"),
    ],
)
def test_what_is_no_time_is_refused(times: list[Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        load({**log(), "t": pa.array(times, from_pandas=False)})
    assert words in str(caught.value)


def test_messages_name_the_row_of_the_file() -> None:
    table = log()
    table["u"][30] = np.nan
    order = np.random.default_rng(3).permutation(48)
    dataset = load(taken(table, order))
    bad = int(np.isnan(dataset.action[:, 0]).argmax())
    assert dataset.row_name(bad) == f"row {int(np.flatnonzero(order == 30)[0])}"
    assert dataset.index_of_row(int(np.flatnonzero(order == 30)[0])) == bad


def test_check_and_info_take_the_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.csv"
    pyarrow.csv.write_csv(pa.table(taken(log(), np.delete(np.arange(48), 17))), path)
    words = ["--obs", "x", "--action", "u", "--reward", "r", "--episode", "id"]
    assert main(["check", str(path), *words]) == 0
    assert "if 't' is the time of a row, rows are missing, as after row 16" in capsys.readouterr().out
    assert main(["check", str(path), *words, "--time", "t"]) == 0
    assert "warning: rows are missing: 't' goes from 2024-01-17" in capsys.readouterr().out
    assert main(["check", str(path), *words, "--time", "tt"]) == 2
    assert "no column fits 'tt' (time)" in capsys.readouterr().out
