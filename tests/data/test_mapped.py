"""Data that do not fit into memory stay in their HDF5 file: what is read of them is the same, and nothing is copied."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from pspo.core.errors import UserError
from pspo.data import Dataset, load_dataset, mapped, save_dataset
from pspo.data.batches import device_dataset
from pspo.data.check import check, require_trainable
from pspo.data.holdout import hold_out
from pspo.data.mapped import MappedFile, mapped_file, read_rows, row_blocks
from pspo.data.normalise import fit_normaliser
from pspo.data.readers import mapped_hdf5
from tests.core.core_cases import small_dataset

ROWS = 1000
LITTLE = "0.0001"  # GiB: less than the arrays take, more than one number per row does


@pytest.fixture
def data() -> Dataset:
    return small_dataset(ROWS)


@pytest.fixture
def path(data: Dataset, tmp_path: Path, monkeypatch) -> Path:
    saved = save_dataset(data, tmp_path / "data.hdf5")
    monkeypatch.setenv("PSPO_MEMORY", LITTLE)
    monkeypatch.setattr(mapped, "BLOCK_ROWS", 64)
    monkeypatch.setattr(mapped, "READ_ROWS", 16)
    return saved


def test_the_tables_stay_in_the_file_and_the_data_are_the_same(data: Dataset, path: Path) -> None:
    loaded = load_dataset(path)
    assert loaded.mapped_file is not None
    assert all(mapped_file(part) is loaded.mapped_file for part in (loaded.obs, loaded.action, loaded.next_obs))
    assert loaded.hash == data.hash
    for mine, whole in zip(fit_normaliser(loaded), fit_normaliser(data), strict=True):
        np.testing.assert_array_equal(mine, whole)
    require_trainable(loaded)


def test_data_that_fit_are_read_into_memory(path: Path, monkeypatch) -> None:
    monkeypatch.delenv("PSPO_MEMORY")
    assert load_dataset(path).mapped_file is None


def rewrite(path: Path, change: Callable[[h5py.File], None]) -> None:
    with h5py.File(path, "a") as file:
        change(file)


def replace(name: str, **options: object) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        values = file[name][()]  # pyright: ignore[reportIndexIssue]
        del file[name]
        file.create_dataset(name, data=values, **options)  # pyright: ignore[reportArgumentType]

    return change


def link(file: h5py.File) -> None:
    file.move("observations", "first")
    file["observations"] = h5py.SoftLink("/first")


CHANGES = {
    "compressed": replace("observations", compression="gzip"),
    "in chunks": replace("observations", chunks=(10, 2)),
    "of another type": replace("actions", dtype="f8"),
    "big-endian": replace("next_observations", dtype=">f4"),
    "a link": link,
    "without next states": lambda file: file.__delitem__("next_observations"),
    "some next states unknown": lambda file: file.__setitem__("next_known", np.arange(ROWS) > 0),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_cannot_be_mapped_is_refused(path: Path, monkeypatch, change: Callable[[h5py.File], None]) -> None:
    monkeypatch.setattr(mapped_hdf5, "_agree", lambda *_: True)
    rewrite(path, change)
    with pytest.raises(UserError, match=r"use 0\.0 GiB of memory: split the data, allow it more, or keep them in an"):
        load_dataset(path)


def test_a_wrong_place_in_the_file_is_noticed(path: Path, monkeypatch) -> None:
    array = MappedFile.array
    monkeypatch.setattr(MappedFile, "array", lambda file, shape, kind, offset: array(file, shape, kind, offset - 4))
    with pytest.raises(UserError, match="of memory: split the data"):
        load_dataset(path)


def test_one_number_per_row_must_still_fit(path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PSPO_MEMORY", "0.00001")
    with pytest.raises(UserError, match="of memory: split the data"):
        load_dataset(path)


def test_named_columns_are_not_mapped(path: Path) -> None:
    with pytest.raises(UserError, match="of memory: split the data"):
        load_dataset(path, columns={"obs": "observations", "action": "actions", "reward": "rewards"})


def test_wrong_values_are_found_in_every_block(data: Dataset, path: Path) -> None:
    bad = np.array(data.obs)
    bad[700, 1], bad[701] = np.nan, np.inf
    rewrite(path, lambda file: file["observations"].write_direct(bad))  # pyright: ignore
    action = np.array(data.action)
    action[650, 1] = 99.0
    rewrite(path, lambda file: file["actions"].write_direct(action))  # pyright: ignore
    messages = [finding.message for finding in check(load_dataset(path))]
    assert messages[0].startswith("obs is nan at row 700, column 1")
    assert "(values affected: 3 in columns 0, 1)" in messages[0]
    assert messages[1].startswith("action is 99.0 at row 650, column 1")
    assert "only what forbids training was checked" in messages[-1]


def test_rows_are_read_in_any_number(data: Dataset, path: Path) -> None:
    loaded = load_dataset(path)
    rows = np.sort(np.random.default_rng(0).integers(0, ROWS, 333))
    np.testing.assert_array_equal(read_rows(loaded.obs, rows), data.obs[rows])
    assert [block.stop - block.start for block in row_blocks(loaded.obs)] == [64] * 15 + [40]


def test_memory_is_given_back_after_each_block(path: Path, monkeypatch) -> None:
    given_back = []
    monkeypatch.setattr(MappedFile, "give_back", lambda file: given_back.append(file.path))
    loaded = load_dataset(path)
    list(row_blocks(loaded.obs[10:90]))  # a view of the file, too
    assert given_back == [path] * 2
    list(row_blocks(loaded.reward))
    read_rows(loaded.action, np.arange(17))
    assert given_back == [path] * 4


def mapped_memory() -> int:
    """Bytes of files that count as memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(("RssFile:", "RssShmem:")))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is counted through /proc")
def test_what_was_given_back_no_longer_counts(tmp_path: Path) -> None:
    size = 1 << 26
    (tmp_path / "file").write_bytes(bytes(size))
    array = MappedFile.of(tmp_path / "file").array((size,), np.dtype(np.uint8), 0)
    before = mapped_memory()
    assert not array.any()
    assert mapped_memory() - before > size // 2
    mapped.give_back(array)
    assert mapped_memory() - before < size // 4
    assert not array.any()


def test_a_file_that_changes_is_noticed(path: Path) -> None:
    file = load_dataset(path).mapped_file
    assert file is not None
    file.require_unchanged()
    os.utime(path, ns=(0, 0))
    with pytest.raises(UserError, match="has changed while its rows were in use"):
        file.require_unchanged()
    path.unlink()
    with pytest.raises(UserError, match="has changed"):
        file.require_unchanged()


def test_the_last_rows_can_be_held_out_and_stay_in_the_file(data: Dataset, path: Path) -> None:
    loaded = load_dataset(path)
    parts = zip(hold_out(loaded, 0.2, "time")[:2], hold_out(data, 0.2, "time")[:2], strict=True)
    for mine, whole in parts:
        assert mine is not None
        assert mine.mapped_file is loaded.mapped_file
        assert mine.hash == whole.hash  # pyright: ignore[reportOptionalMemberAccess]
    with pytest.raises(UserError, match="only its last rows can be held out: give --holdout-by time"):
        hold_out(loaded, 0.2, "episode")


def test_they_never_go_to_the_device_as_a_whole(path: Path) -> None:
    loaded = load_dataset(path)
    with pytest.raises(UserError, match="do not fit into memory and stay in their file"):
        device_dataset(loaded, fit_normaliser(loaded), 0.9)
