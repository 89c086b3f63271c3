"""`--sql`: rows of a query over tables, which it calls `data`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pspo.cli.main import main
from pspo.core.errors import UserError
from pspo.data import load_dataset
from pspo.data.load import describe_source
from tests.data.test_several_files import expected, folder
from tests.data.test_time_order import COLUMNS, log

pytest.importorskip("duckdb")

QUERY = "select id, t, x, u, r, month from data where unit = 'a' order by t"


def load(source: object, query: str, **columns: str):
    return load_dataset(source, columns=COLUMNS | columns | {"sql": query})


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_all_rows_are_the_same_as_without_a_query(tmp_path: Path, kind: str) -> None:
    """Also without a time to sort by: rows keep their order, file by file."""
    path = folder(tmp_path, kind)
    without_time = {role: name for role, name in COLUMNS.items() if role != "time"}
    for source in (path, f"{path}/*.{kind}", [path / f"part-{number}.{kind}" for number in range(12)]):
        found = load_dataset(source, columns=without_time | {"sql": "select * from data"})
        assert found.hash == expected()
    assert load(pa.table(log()), "from data").hash == expected()


def test_a_query_chooses_computes_and_joins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path, partitioned=True)
    plain = load_dataset(path, columns=COLUMNS | {"episode": "unit,month"})
    found = load(path, QUERY + ";  -- only one unit", obs="x,month", episode="month")
    units = np.array([int(row) // 4 % 2 for row in plain.obs[:, 0]])
    np.testing.assert_array_equal(found.obs[:, 0], plain.obs[units == 0, 0])
    monkeypatch.chdir(tmp_path)
    prices = pa.table({"id": np.arange(4), "price": [1.0, 2.0, 4.0, 8.0]})
    pyarrow.parquet.write_table(prices, "prices.parquet")  # relative to the current folder
    joined = load("logs", "select data.*, price * 2 as cost from data join 'prices.parquet' using (id)", obs="cost")
    assert sorted(set(joined.obs[:, 0].tolist())) == [2.0, 4.0, 8.0, 16.0]
    assert joined.obs_names == ("cost",)


def test_large_results_come_in_batches_and_in_order() -> None:
    rows = 100_000
    table = pa.table(
        {"x": np.arange(rows, dtype=float), "u": np.arange(rows) % 7 / 7, "over": np.arange(rows) % 10 == 9}
    )
    columns = {"obs": "x", "action": "u", "reward": "gain", "terminal": "over"}
    query = "select *, sum(u) over () as gain from data order by x desc"
    found = load_dataset(table, columns=columns | {"sql": query})
    np.testing.assert_array_equal(found.obs[:, 0], np.arange(rows)[::-1][: found.size])


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("selct 1", "the query cannot be run"),
        ("select nothing from data", 'the query cannot be run .*"nothing" not found'),
        ("copy data to 'stolen.csv'", "has to be one select"),
        ("create table x as select 1; select * from x", "has to be one select"),
        ("select * from 'https://example.com/x.parquet'", "cannot be run .*httpfs"),
        ("select * from 'missing.csv'", "No files found"),
        ("select * from path", "the query cannot be run"),  # a variable of this program
        ("select x from data", "no column fits 'u'"),
        (" ", "give one query"),
    ],
)
def test_a_query_that_cannot_be_used(tmp_path: Path, query: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path, parts=2)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=words) as caught:
        load(path, query)
    assert "\n" not in str(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["logs"]


def test_only_tables_can_be_queried(tmp_path: Path) -> None:
    np.savez(tmp_path / "log.npz", **log())  # pyright: ignore[reportArgumentType]
    for source in ("liquidation", tmp_path / "log.npz", log()):
        with pytest.raises(UserError, match="sql"):
            load(source, "select * from data")


def test_without_duckdb_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(UserError, match=r"pip install 'pspo\[duckdb\]'"):
        load(folder(tmp_path), "select * from data")


def test_on_the_command_line_and_in_a_column_map(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder(tmp_path, partitioned=True)
    roles = ["--obs", "x", "--action", "u", "--reward", "r", "--episode", "month", "--time", "t"]
    assert main(["data", "info", str(path), *roles, "--sql", QUERY]) == 0
    assert "transitions        18" in capsys.readouterr().out
    (tmp_path / "logs.toml").write_text(describe_source(path, COLUMNS | {"sql": QUERY, "episode": "month"}))
    assert load_dataset(path).size == 18


def test_columns_that_files_do_not_share_are_not_dropped(tmp_path: Path) -> None:
    path = folder(tmp_path, parts=2)
    table = pyarrow.parquet.read_table(path / "part-1.parquet")
    pyarrow.parquet.write_table(table.append_column("weather", pa.array(np.zeros(24))), path / "part-1.parquet")
    with pytest.raises(UserError, match=r"part-0.parquet' lacks 'weather', which .*part-1.parquet' has"):
        load(path, "select * from data")
