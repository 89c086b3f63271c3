"""Folders, patterns, lists, Hive partitions and Arrow datasets give the same dataset as one table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest

from pspo.core.errors import UserError
from pspo.data import check_source, load_dataset
from pspo.data.load import describe_source
from tests.data.test_time_order import COLUMNS, log, taken

WRITERS: dict[str, Callable[[pa.Table, str], Any]] = {
    "csv": pyarrow.csv.write_csv,
    "parquet": pyarrow.parquet.write_table,
    "feather": pyarrow.feather.write_feather,
}


def folder(tmp_path: Path, kind: str = "parquet", parts: int = 12, partitioned: bool = False) -> Path:
    """The rows of a clean log in several files; part-10 comes after part-2."""
    for number, rows in enumerate(np.array_split(np.arange(48), parts)):
        place = tmp_path / "logs" / (f"unit={'ab'[number % 2]}/month={number}" if partitioned else "")
        place.mkdir(parents=True, exist_ok=True)
        WRITERS[kind](pa.table(taken(log(), rows)), str(place / f"part-{number}.{kind}"))
    (tmp_path / "logs" / "_SUCCESS").touch()
    return tmp_path / "logs"


def expected() -> str:
    return load_dataset(pa.table(log()), columns=COLUMNS).hash


@pytest.mark.parametrize("kind", WRITERS)
def test_folders_patterns_and_lists(tmp_path: Path, kind: str) -> None:
    path = folder(tmp_path, kind)
    files = [path / f"part-{number}.{kind}" for number in range(12)]
    without_time = {role: name for role, name in COLUMNS.items() if role != "time"}  # the order of files must be right
    for source in (path, str(path / f"*.{kind}"), files, ",".join(map(str, files))):
        assert load_dataset(source, columns=without_time).hash == expected()
    assert load_dataset(path, columns=COLUMNS).name == load_dataset(f"{path}/*", columns=COLUMNS).name == "logs"


def test_data_frames_in_a_list_and_arrow_datasets(tmp_path: Path) -> None:
    frames = [pa.table(taken(log(), rows)) for rows in np.array_split(np.arange(48), 3)]
    assert load_dataset(frames, columns=COLUMNS).hash == expected()
    scanned = pyarrow.dataset.dataset(folder(tmp_path, partitioned=True), partitioning="hive")
    assert load_dataset(scanned, columns=COLUMNS).hash == expected()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_partitions_are_columns(tmp_path: Path, kind: str) -> None:
    path = folder(tmp_path, kind, partitioned=True)
    dataset = load_dataset(path, columns=COLUMNS | {"obs": "x,month"})
    assert dataset.obs_names == ("x", "month")
    assert (dataset.obs[:, 1] == dataset.obs[:, 0] // 4).all()
    by_part = load_dataset(path, columns=COLUMNS | {"episode": "unit,month"})
    assert len(by_part.episode_starts) == 12


def test_a_row_is_named_by_its_file(tmp_path: Path) -> None:
    path = folder(tmp_path, "csv", parts=3)
    (path / "part-1.csv").write_text((path / "part-1.csv").read_text().replace("2024-01-20", "2024-01-02", 1))
    dataset, findings = check_source(path, columns=COLUMNS | {"obs": "x"})
    assert dataset is not None
    assert any("of 'part-1.csv'" in finding.message for finding in findings)
    assert dataset.row_name(dataset.index_of_row(17)) == "row 1 of 'part-1.csv'"
    last = path / "part-2.csv"
    last.write_text(last.read_text().replace("47,", "forty,", 1).replace("47", "x", 1))
    with pytest.raises(UserError, match=r"in 'part-2.csv', column '.' holds"):
        load_dataset(path, columns=COLUMNS)


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    path = folder(tmp_path, parts=2)
    odd = {name: column for name, column in log().items() if name != "u"} | {"extra": np.zeros(48)}
    pyarrow.parquet.write_table(pa.table(odd), path / "part-2.parquet")
    with pytest.raises(UserError, match=r"'part-2.parquet' lacks 'u', which 'part-0.parquet' has"):
        load_dataset(path, columns=COLUMNS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="is a folder, and no table is in it"):
        load_dataset(tmp_path / "empty")
    with pytest.raises(UserError, match="no file fits"):
        load_dataset(str(tmp_path / "*.parquet"))
    with pytest.raises(UserError, match="there is no file"):
        load_dataset([path / "part-0.parquet", path / "nothing.parquet"], columns=COLUMNS)
    with pytest.raises(UserError, match="cannot be one of several files"):
        load_dataset([path / "part-0.parquet", path / "x.npz"], columns=COLUMNS)


def test_types_may_differ_between_files(tmp_path: Path) -> None:
    path = folder(tmp_path, parts=1)
    table = log() | {"id": log()["id"].astype(np.int32), "t": log()["t"].astype("datetime64[ms]")}
    pyarrow.parquet.write_table(pa.table(taken(log(), slice(0, 24))), path / "part-0.parquet")
    pyarrow.parquet.write_table(pa.table(taken(table, slice(24, 48))), path / "part-1.parquet")
    assert load_dataset(path, columns=COLUMNS).hash == expected()


def test_a_column_that_only_later_files_have_is_named(tmp_path: Path) -> None:
    path = folder(tmp_path, parts=3)
    for number in (1, 2):
        table = pyarrow.parquet.read_table(path / f"part-{number}.parquet")
        more = table.append_column("weather", pa.array(np.zeros(16))).append_column("comment", pa.array(["-"] * 16))
        pyarrow.parquet.write_table(more, path / f"part-{number}.parquet")
    dataset = load_dataset(path, columns=COLUMNS)
    assert dataset.hash == expected()
    note = (
        "columns that 'part-0.parquet' does not have are not used: 'weather', 'comment' ('weather' is in 'part-1.parqu"
    )
    assert any(note in text for text in dataset.notes)
    for obs in ("x,weather", "*"):
        with pytest.raises(UserError, match=r"'part-0.parquet' lacks 'weather'.*, which 'part-1.parquet' has"):
            load_dataset(path, columns=COLUMNS | {"obs": obs})
    frames = [pa.table(taken(log(), slice(0, 24))).drop_columns(["r"]), pa.table(taken(log(), slice(24, 48)))]
    with pytest.raises(UserError, match="'frame 0' lacks 'r', which 'frame 1' has"):
        load_dataset(frames, columns=COLUMNS)


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_folders_above_the_given_one_are_no_partitions(tmp_path: Path, kind: str) -> None:
    path = folder(tmp_path / "exp=3", kind, partitioned=True)
    sources = (path, f"{path}/*/*/*.{kind}", sorted(path.rglob(f"*.{kind}")), [path / "unit=a", path / "unit=b"])
    for source in sources:
        with pytest.raises(UserError, match="no column fits 'exp'"):
            load_dataset(source, columns=COLUMNS | {"obs": "x,exp"})
        assert load_dataset(source, columns=COLUMNS | {"obs": "x,month"}).obs_names == ("x", "month")
    assert "exp" not in describe_source(path)
    assert "unit" in describe_source(path)
    (single,) = (path / "unit=a" / "month=0").iterdir()
    assert load_dataset([single], columns=COLUMNS).size == 3


@pytest.mark.parametrize("text", ["{0},", ",{0}", "{0},,{0}", "{0}, "])
def test_an_empty_name_in_a_list_is_not_the_current_folder(text: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("obs,action,reward,done\n1,2,3,0\n2,3,4,1\n")
    (tmp_path / "b.csv").write_text("obs,action,reward,done\n5,2,3,0\n7,3,4,1\n")
    with pytest.raises(UserError, match="a name is empty in the list"):
        load_dataset(text.format("a.csv"))
