"""A column of times that nobody named with --time: the note on unused columns says if the rows contradict it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from pspo.data import load_dataset
from pspo.data.readers import tables

COLUMNS = {"obs": "x", "action": "u", "reward": "r", "episode": "id"}
EPISODES, STEPS = 6, 12
DAYS = np.datetime64("2024-01-01") + np.arange(EPISODES * STEPS)


def log(**more: Any) -> dict[str, Any]:
    """One episode after the other, in the order of time."""
    random = np.random.default_rng(0)
    rows = EPISODES * STEPS
    return {
        "id": np.repeat(np.arange(EPISODES), STEPS),
        "x": random.normal(size=rows),
        "u": random.uniform(-1, 1, rows),
        "r": random.normal(size=rows),
        **more,
    }


def note(table: dict[str, Any], path: Path | None = None) -> str:
    """On columns that are not used, of a table in memory or of the same as a CSV."""
    arrow = pa.table(table)
    if path is not None:
        pyarrow.csv.write_csv(arrow, path)
    dataset = load_dataset(arrow if path is None else path, columns=COLUMNS)
    return next((note for note in dataset.notes if "columns that are not used" in note), "")


def taken(table: dict[str, Any], rows: np.ndarray) -> dict[str, Any]:
    return {name: column[rows] for name, column in table.items()}


def swapped() -> np.ndarray:
    rows = np.arange(EPISODES * STEPS)
    rows[[20, 21]] = rows[[21, 20]]
    return rows


@pytest.mark.parametrize("source", ["memory", "csv"])
@pytest.mark.parametrize(
    ("name", "times"),
    [("date", DAYS.astype("datetime64[D]")), ("made", DAYS.astype("datetime64[s]")), ("step", np.arange(72) % STEPS)],
)
def test_rows_in_another_order_are_named(name: str, times: np.ndarray, source: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv" if source == "csv" else None
    table = log(**{name: times})
    assert "order of time" not in note(table, path)
    found = note(taken(table, swapped()), path)
    assert f"if '{name}' is the time of a row, rows are not in the order of time, as at row 21: name it" in found


def test_missing_rows_and_copies_are_named() -> None:
    table = log(date=DAYS)
    assert "rows are missing, as after row 29" in note(taken(table, np.delete(np.arange(72), 30)))
    again = np.insert(np.arange(72), 31, 30)
    assert "rows were written twice, such as row 31" in note(taken(table, again))


def test_columns_that_are_no_clock_say_nothing_about_the_order() -> None:
    random = np.random.default_rng(1)
    assert "order" not in note(log(lead_time=random.uniform(1, 9, 72)))  # irregular numbers
    assert "order" not in note(log(day=random.integers(0, 5, 72)))  # many rows at one time
    holes = [None, *DAYS[:-1].tolist()[::-1]]
    assert "order" not in note(log(date=np.array(holes, dtype=object)))
    assert "order" not in note(log(born=np.repeat(DAYS[::-STEPS], STEPS)))


def test_rows_are_hashed_once_for_all_columns(monkeypatch) -> None:
    """Hashing goes through the whole table, and a log may have a hundred columns of dates."""
    hashed: list[int] = []
    row_keys = tables.row_keys
    monkeypatch.setattr(tables, "row_keys", lambda arrays: hashed.append(1) or row_keys(arrays))
    assert "not used" in note(log(**{f"date {i}": DAYS for i in range(9)}))
    assert len(hashed) == 1
    hashed.clear()
    assert "not used" in note(log(comment=["x"] * len(DAYS)))
    assert not hashed


def test_a_named_time_is_the_only_one_that_counts() -> None:
    table = taken(log(date=DAYS, other=DAYS[::-1]), swapped())
    dataset = load_dataset(pa.table(table), columns=COLUMNS | {"time": "date"})
    assert [note for note in dataset.notes if "not used" in note] == ["columns that are not used: 'other'."]
