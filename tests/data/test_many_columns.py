"""Work that grows with the number of columns, not with its square: counted, as clocks depend on the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from pspo.core.column_names import positions
from pspo.core.errors import UserError
from pspo.data import load_dataset


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
