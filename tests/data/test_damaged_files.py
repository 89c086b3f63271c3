"""Every reader on files with random damage: one sentence, or data; never anything else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from pspo.core.errors import UserError
from pspo.data import Dataset, load_dataset, save_npz
from pspo.data.readers.hdf5 import save_hdf5
from tests.data.made_up_data import clean_d4rl, clean_fields

TRIES = 250


def table() -> pa.Table:
    a = clean_d4rl(120)
    columns = {f"obs_{d}": a["observations"][:, d] for d in range(3)}
    columns |= {f"action_{d}": a["actions"][:, d] for d in range(2)}
    columns |= {"reward": a["rewards"], "terminal": a["terminals"], "timeout": a["timeouts"]}
    return pa.table(columns | {"episode": [f"e{row // 6}" for row in range(120)]})


def lists() -> pa.Table:
    a = clean_d4rl(120)
    columns = {"obs": list(a["observations"]), "action": list(a["actions"]), "reward": a["rewards"]}
    return pa.table(columns | {"terminal": a["terminals"]})


def old_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for name, array in clean_d4rl(120).items():
            file[name] = array


WRITERS = {
    "log.npz": lambda path: save_npz(Dataset(**clean_fields(120)), path),
    "log.hdf5": lambda path: save_hdf5(Dataset(**clean_fields(120), notes=("a note",)), path),
    "log.parquet": lambda path: pyarrow.parquet.write_table(table(), path, write_page_checksum=True),
    "lists.parquet": lambda path: pyarrow.parquet.write_table(lists(), path),
    "log.csv": lambda path: pyarrow.csv.write_csv(table(), path),
}


def cut(content: bytearray, rng: np.random.Generator) -> bytearray:
    return content[: rng.integers(len(content))]


def flip(content: bytearray, rng: np.random.Generator) -> bytearray:
    for _ in range(rng.integers(1, 4)):
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
    return content


def blank(content: bytearray, rng: np.random.Generator) -> bytearray:
    start = int(rng.integers(len(content)))
    stop = min(len(content), start + int(rng.integers(1, 200)))
    content[start:stop] = bytes(stop - start)
    return content


def overwrite(content: bytearray, rng: np.random.Generator) -> bytearray:
    """Something of another length in between: all that follows is moved."""
    start = int(rng.integers(len(content)))
    content[start : start + int(rng.integers(64))] = rng.bytes(int(rng.integers(1, 64)))
    return content


def spoil_structure(content: bytearray, rng: np.random.Generator) -> bytearray:
    """One wrong byte near either end, where formats keep their metadata."""
    place = int(rng.integers(min(len(content), 1500)))
    content[place if rng.random() < 0.5 else -1 - place] = int(rng.integers(256))
    return content


def outcome(path: Path) -> str:
    try:
        load_dataset(path)
    except UserError as error:
        message = str(error)
    else:
        return "loaded"
    assert "\n" not in message
    assert path.name in message
    return "refused"


@pytest.mark.parametrize("name", WRITERS)
def test_random_damage(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    whole = path.read_bytes()
    assert outcome(path) == "loaded"
    result: Counter[str] = Counter()
    for seed in range(TRIES):
        damage = (cut, flip, blank, overwrite, spoil_structure)[seed % 5]
        path.write_bytes(damage(bytearray(whole), np.random.default_rng(seed)))
        result[outcome(path)] += 1
    assert result["refused"] > TRIES / 5  # at least what was cut


def test_old_hdf5_files_that_are_cut(tmp_path: Path) -> None:
    """Their structure has no checksums, so that the library itself may fall over other damage."""
    path = tmp_path / "log.hdf5"
    old_hdf5(path)
    whole = path.read_bytes()
    for seed in range(60):
        path.write_bytes(cut(bytearray(whole), np.random.default_rng(seed)))
        assert outcome(path) == "refused"


@pytest.mark.parametrize("name", ["log.npz", "log.hdf5", "log.h5", "log.parquet", "log.csv"])
@pytest.mark.parametrize(
    "content", [b"", b"\0" * 1000, b"PK\x03\x04", b"\x89HDF\r\n\x1a\n", b"PAR1PAR1", b"<html>no</html>\n"]
)
def test_something_else_under_a_known_name(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert outcome(tmp_path / name) == "refused"


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_under_another_name(name: str, tmp_path: Path) -> None:
    for other in WRITERS:
        path = tmp_path / f"x{Path(other).suffix}"
        WRITERS[name](tmp_path / name)
        path.write_bytes((tmp_path / name).read_bytes())
        assert outcome(path) == ("loaded" if path.suffix == Path(name).suffix else "refused")
