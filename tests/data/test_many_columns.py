"""Work that grows with the number of columns, not with its square: counted, as clocks depend on the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from pspo.core.column_names import positions
from pspo.core.errors import UserError
from pspo.data import load_dataset
from pspo.data.readers import tables, wide_columns


class CountedSchema:
    """An Arrow schema that counts how often its lists are made: each time, all columns are walked through."""

    def __init__(self, schema: pa.Schema, counts: list[str]) -> None:
        self.schema, self.counts = schema, counts

    def __getattr__(self, name: str) -> Any:
        self.counts.append(name)
        return getattr(self.schema, name)


class CountedReader:
    def __init__(self, reader: Any, counts: list[str]) -> None:
        self.reader, self.counts = reader, counts

    def __enter__(self) -> CountedReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.close()

    def __iter__(self) -> Any:
        return iter(self.reader)

    @property
    def schema(self) -> CountedSchema:
        return CountedSchema(self.reader.schema, self.counts)


def lists_made(path: Path, columns: int, monkeypatch: pytest.MonkeyPatch) -> int:
    rng = np.random.default_rng(0)
    table = {f"obs_{c}": rng.normal(size=20) for c in range(columns)}
    table |= {"action": rng.normal(size=20), "reward": rng.normal(size=20), "episode": np.repeat([0, 1], 10)}
    pyarrow.csv.write_csv(pa.table(table), path)
    counts: list[str] = []
    opened = pyarrow.csv.open_csv
    with monkeypatch.context() as patch:
        patch.setattr(pyarrow.csv, "open_csv", lambda *a, **options: CountedReader(opened(*a, **options), counts))
        assert load_dataset(path).obs_dim == columns
    return sum(name in ("names", "types") for name in counts)


def test_a_csv_lists_its_columns_as_often_for_many_as_for_few(tmp_path: Path, monkeypatch) -> None:
    few, many = (lists_made(tmp_path / "log.csv", columns, monkeypatch) for columns in (5, 100))
    assert many == few


class CountedName(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)  # pyright: ignore[reportReturnType]


def test_names_are_found_in_linear_time() -> None:
    given, wanted = ([CountedName(f"x{i}") for i in range(400)] for _ in range(2))
    CountedName.compared = 0
    assert positions(given, wanted[::-1], "the table") == [*range(400)][::-1]
    assert CountedName.compared < 5 * 400


def test_names_that_differ_are_found_in_linear_time() -> None:
    given, wanted = [CountedName(f"x{i}") for i in range(400)], [CountedName(f"y{i}") for i in range(400)]
    CountedName.compared = 0
    with pytest.raises(UserError, match="lacks 'y0', 'y1'"):
        positions(given, wanted, "the table")
    assert CountedName.compared < 5 * 400


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("lists", [False, True])
def test_few_columns_are_read_in_float64_at_once(tmp_path: Path, monkeypatch, suffix: str, lists: bool) -> None:
    """All of a wide table would take twice the memory of the dataset itself."""
    if lists and suffix == ".csv":
        pytest.skip("a CSV has no lists")
    clocks = 1.7e9 + 60.0 * np.arange(20)[:, None] + np.arange(9)
    if lists:
        part = pa.array(clocks.tolist(), pa.list_(pa.float64(), 9))
        table: dict[str, Any] = {"obs_a": part, "obs_b": part}
    else:
        table = {f"obs_{c}": clocks[:, c] for c in range(9)}
    table |= {"action": np.sin(clocks[:, 0]), "reward": np.arange(20.0), "episode": np.repeat([0, 1], 10)}
    path = tmp_path / f"log{suffix}"
    (pyarrow.parquet.write_table if suffix == ".parquet" else pyarrow.csv.write_csv)(pa.table(table), path)
    whole = load_dataset(path)
    reads: list[list[str]] = []
    read_wide = tables._read_wide
    monkeypatch.setattr(tables, "_read_wide", lambda t, names, *more: reads.append(names) or read_wide(t, names, *more))
    monkeypatch.setattr(wide_columns, "AT_ONCE", 20 * 8 * 4)
    assert load_dataset(path).hash == whole.hash
    assert reads == (
        [["obs_a"], ["obs_b"]] if lists else [[f"obs_{c}" for c in part] for part in ([*range(4)], [*range(4, 8)], [8])]
    )
