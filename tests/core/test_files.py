"""Files are written whole or not at all; damaged array files are detected, and a failed write changes nothing."""

from __future__ import annotations

import os
import pickle
import stat
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.core import files
from pspo.core.errors import UserError
from pspo.core.files import (
    Corrupt,
    cache_folder,
    digest,
    locked,
    read_arrays,
    read_json,
    write_arrays,
    write_atomic,
    write_json,
)

ARRAYS = {
    "floats": np.arange(6, dtype=np.float32).reshape(2, 3),
    "flags": np.array([True, False, True]),
    "whole": np.array([-1, 2**31 - 1], dtype=np.int32),
    "empty": np.zeros((0, 4), np.float32),
}
METADATA = {"step": 7, "name": 'a "quoted" näme', "nested": {"curve": [[1, 0.5]]}}


def written(folder: Path) -> bytes:
    write_arrays(folder / "whole", ARRAYS, METADATA)
    return (folder / "whole").read_bytes()


def same(arrays: dict[str, np.ndarray], metadata: dict[str, Any]) -> bool:
    return (
        metadata == METADATA
        and set(arrays) == set(ARRAYS)
        and all(arrays[n].dtype == a.dtype and np.array_equal(arrays[n], a) for n, a in ARRAYS.items())
    )


class BombWhenUnpickled:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('pickled code ran')",)


# Atomic replacement


def test_writing_replaces_the_old_file_and_leaves_no_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("step", ["fsync", "chmod", "replace", "fdopen"])
@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failing_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, step, problem) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")

    def fail(*_: object, **__: object) -> None:
        raise problem

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(problem)):
        write_atomic(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_failing_first_write_leaves_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(5, "I/O error")))
    with pytest.raises(OSError, match="I/O error"):
        write_arrays(tmp_path / "file", ARRAYS, METADATA)
    assert os.listdir(tmp_path) == []


def test_until_the_very_end_a_reader_sees_the_old_file(tmp_path, monkeypatch) -> None:
    path, real, seen = tmp_path / "file", os.replace, []
    write_atomic(path, "old")

    def watched(source: str, target: Path) -> None:
        seen.append((path.read_text(), Path(source).read_text(), Path(source).parent))
        real(source, target)

    monkeypatch.setattr(os, "replace", watched)
    write_atomic(path, "new")
    assert seen == [("old", "new", tmp_path)]  # complete beside the target: a rename within one file system


def test_a_file_has_the_permissions_of_any_new_file(tmp_path) -> None:
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "file", "x")
        assert os.umask(0o027) == 0o027  # asking for the umask did not change it
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


# JSON


def test_json_round_trip_and_refusals(tmp_path) -> None:
    path = tmp_path / "a.json"
    write_json(path, METADATA)
    assert read_json(path) == METADATA
    with pytest.raises(ValueError):
        write_json(path, {"score": float("nan")})
    assert read_json(path) == METADATA
    path.write_text(path.read_text()[:-5])
    with pytest.raises(UserError, match=r"a\.json"):
        read_json(path)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(UserError, match="cannot be read"):
        read_json(path)
    with pytest.raises(UserError, match="does not exist"):
        read_json(tmp_path / "none.json")


# Arrays


def test_arrays_and_metadata_are_read_back_unchanged(tmp_path) -> None:
    written(tmp_path)
    assert same(*read_arrays(tmp_path / "whole"))


def test_strided_arrays_are_stored_by_value(tmp_path) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    arrays = {"turned": base.T, "stepped": base[::2, ::3], "backwards": base[::-1]}
    write_arrays(tmp_path / "file", arrays, {})
    result, _ = read_arrays(tmp_path / "file")
    for name, array in arrays.items():
        np.testing.assert_array_equal(result[name], array)


def test_scalars_keep_their_shape(tmp_path) -> None:
    write_arrays(tmp_path / "file", {"step": np.asarray(np.int32(3))}, {})
    result, _ = read_arrays(tmp_path / "file")
    assert (result["step"].shape, result["step"].dtype) == ((), np.int32)


def test_a_flipped_bit_in_any_byte_is_found(tmp_path) -> None:
    data, path = written(tmp_path), tmp_path / "flipped"
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(Corrupt):
            read_arrays(path)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_changed_byte_is_never_read_as_other_data(tmp_path_factory, data) -> None:
    """Any other byte anywhere: refused, unless it is JSON white space that means the same."""
    folder = tmp_path_factory.getbasetemp()
    whole = written(folder)
    position = data.draw(st.integers(0, len(whole) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda v: v != whole[position]))
    (folder / "changed").write_bytes(whole[:position] + bytes([value]) + whole[position + 1 :])
    try:
        result = read_arrays(folder / "changed")
    except Corrupt:
        return
    assert chr(whole[position]).isspace()
    assert chr(value).isspace()
    assert same(*result)


def test_truncation_at_any_length_and_any_extra_byte_are_found(tmp_path) -> None:
    data, path = written(tmp_path), tmp_path / "cut"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(Corrupt):
            read_arrays(path)
    for extra in (b"\0", b" ", data):
        path.write_bytes(data + extra)
        with pytest.raises(Corrupt):
            read_arrays(path)


def test_a_file_without_a_checksum_is_refused(tmp_path) -> None:
    from safetensors.numpy import save_file

    save_file(dict(ARRAYS), tmp_path / "plain")
    with pytest.raises(Corrupt, match="no checksum"):
        read_arrays(tmp_path / "plain")


def test_no_pickle_is_written_or_read(tmp_path) -> None:
    with pytest.raises(Exception):  # noqa: B017 (any error of safetensors)
        write_arrays(tmp_path / "objects", {"a": np.array([BombWhenUnpickled()], dtype=object)}, {})
    assert not (tmp_path / "objects").exists()
    with open(tmp_path / "bomb", "wb") as file:
        pickle.dump(BombWhenUnpickled(), file)
    with pytest.raises(Corrupt):
        read_arrays(tmp_path / "bomb")
    np.save(tmp_path / "bomb.npy", np.array([BombWhenUnpickled()], dtype=object), allow_pickle=True)
    with pytest.raises(Corrupt):
        read_arrays(tmp_path / "bomb.npy")


def test_an_absent_file_is_not_a_damaged_one(tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        read_arrays(tmp_path / "none")
    with pytest.raises(Corrupt):
        read_arrays(tmp_path)  # a folder


def test_a_digest_sees_names_types_shapes_bytes_and_facts_but_not_the_order() -> None:
    zero = np.zeros(4, np.float32)
    digests = [
        digest({"a": zero}),
        digest({"b": zero}),
        digest({"a": zero.astype(np.int32)}),
        digest({"a": zero.reshape(2, 2)}),
        digest({"a": zero + 1}),
        digest({"a": zero}, "facts"),
        digest({"a": zero, "b": zero}),
    ]
    assert len(set(digests)) == len(digests)
    assert digest({"b": zero + 1, "a": zero}) == digest({"a": zero, "b": zero + 1})


# Cache folder and lock


def test_the_cache_folder_follows_the_environment(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("PSPO_CACHE", raising=False)
    assert cache_folder() == tmp_path / "xdg" / "pspo"
    monkeypatch.setenv("PSPO_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"


def test_a_lock_is_held_by_one_at_a_time(tmp_path) -> None:
    inside, entered = threading.Event(), threading.Event()

    def second() -> None:
        inside.wait()
        with locked(tmp_path / "lock"):
            entered.set()

    thread = threading.Thread(target=second)
    thread.start()
    with locked(tmp_path / "lock"):
        inside.set()
        assert not entered.wait(0.2)
    assert entered.wait(5.0)
    thread.join()


def test_without_a_home_the_cache_is_a_folder_of_this_user_alone(tmp_path, monkeypatch) -> None:
    for name in ("PSPO_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(files.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = files.cache_folder()
    assert folder == files.cache_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="belongs to somebody else: set PSPO_CACHE"):
        files.cache_folder()
