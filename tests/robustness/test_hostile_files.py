"""Malicious files: they run no code, open no other file, fill no memory, and are refused in one sentence."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from pspo.cli.main import main
from pspo.collecting.behaviour import load_behaviour
from pspo.core import cache
from pspo.core.memory import peak_memory
from pspo.data import Dataset, load_dataset, save_dataset
from pspo.data.readers import file_checks as limits
from pspo.policies.onnx.runtime import OnnxPolicy
from pspo.policies.policy import load_policy
from pspo.runs.directory import Run, create, free_path
from tests.data.made_up_data import clean_d4rl, clean_fields
from tests.refusals import message_of

CLEAR = Path("/proc/self/clear_refs")
DAMAGED_STATISTICS = Path(__file__).parents[1] / "fixtures" / "damaged-statistics.parquet"


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


# Pickles


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz", "hdf5", "h5"])
def test_a_pickle_named_like_a_dataset_is_not_run(ending: str, tmp_path: Path) -> None:
    mark, path = tmp_path / "mark", tmp_path / f"log.{ending}"
    path.write_bytes(pickle.dumps(Payload(mark)))
    message_of(lambda: load_dataset(path))
    assert not mark.exists()
    pickle.loads(path.read_bytes())
    assert mark.exists(), "the payload would have worked"


def test_a_pickle_named_like_any_other_file_is_not_run(tmp_path: Path) -> None:
    mark, content = tmp_path / "mark", pickle.dumps(Payload(tmp_path / "mark"))
    for name in ("policy.safetensors", "policy.npz", "policy.onnx", "policy.json", "config.json", "metrics.jsonl"):
        (tmp_path / name).write_bytes(content)
    message_of(lambda: load_policy(tmp_path))
    message_of(lambda: load_behaviour(tmp_path / "policy.npz", 3, 2))
    message_of(lambda: OnnxPolicy.load(tmp_path / "policy.onnx"))
    message_of(lambda: Run(tmp_path).read("config"))
    message_of(Run(tmp_path).metrics)
    assert not mark.exists()


@pytest.mark.parametrize("member", ["observations", "name", "w0"])
def test_pickled_objects_in_an_npz_are_not_loaded(member: str, tmp_path: Path) -> None:
    mark, path = tmp_path / "mark", tmp_path / "log.npz"
    np.savez(path, **clean_d4rl() | {member: np.array([Payload(mark)], dtype=object)}, allow_pickle=True)
    if member != "w0":  # which no dataset asks for
        assert "never loaded" in message_of(lambda: load_dataset(path))
    assert "never loaded" in message_of(lambda: load_behaviour(path, 3, 2))
    assert not mark.exists()


# Bombs


def npy_header(shape: str, kind: str = "<f4") -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def zeros_npz(path: Path, shape: str, size: int, method: int = zipfile.ZIP_DEFLATED) -> Path:
    """`observations` of that shape by its header, followed by so many zeros."""
    with zipfile.ZipFile(path, "w", method) as archive, archive.open("observations.npy", "w", force_zip64=True) as out:
        out.write(npy_header(shape))
        for _ in range(size >> 20):
            out.write(bytes(1 << 20))
    return path


def grown(read) -> int:
    """Bytes by which reading raised the memory of this process at its peak."""
    if CLEAR.exists():
        CLEAR.write_text("5")  # forget the peak of earlier tests, below which nothing would count
    before = peak_memory()
    read()
    return peak_memory() - before


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_zip_bomb_is_refused_before_it_is_unpacked(method: int, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(limits, "ALWAYS_FITS", 1 << 20)
    path = zeros_npz(tmp_path / "log.npz", "(16777216, 1)", 64 << 20, method)
    assert path.stat().st_size < 100_000
    for read in (lambda: load_dataset(path), lambda: load_behaviour(path, 3, 2)):
        assert grown(lambda read=read: message_of(read)) < 30 << 20
    assert "200 times its size" in message_of(lambda: load_dataset(path))


def test_a_header_that_declares_more_than_its_archive_holds_is_refused(tmp_path: Path) -> None:
    """NumPy would allocate what the header says: 4 GB of text, 4 PB of numbers."""
    for shape, kind in (("(1000000000000000, 1)", "<f4"), ("(100000000, 10)", "<f4"), ("()", "<U1000000000")):
        with zipfile.ZipFile(tmp_path / "log.npz", "w") as archive:
            archive.writestr("observations.npy", npy_header(shape, kind) + bytes(400))
        assert "declares" in message_of(lambda: load_dataset(tmp_path / "log.npz"))


@pytest.mark.parametrize("shape", ["(-1, -4)", "(2, -2)", "(True, 4)", "(1.5,)", "[4]", "'x'", "(4", "open('x')"])
def test_a_malformed_shape_is_refused(shape: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "log.npz", "w") as archive:
        archive.writestr("observations.npy", npy_header(shape) + bytes(16))
    message_of(lambda: load_dataset(tmp_path / "log.npz"))


def test_more_than_the_memory_of_this_machine_is_refused(tmp_path: Path, monkeypatch) -> None:
    np.savez(tmp_path / "log.npz", **clean_d4rl())
    assert load_dataset(tmp_path / "log.npz").size == 60
    monkeypatch.setattr(limits, "memory_limit", lambda: 5000)
    assert "this process may use" in message_of(lambda: load_dataset(tmp_path / "log.npz"))


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])  # .hdf5 is then mapped (tests/data/test_mapped.py)
def test_the_memory_of_working_copies_and_next_states_counts(suffix: str, tmp_path: Path, monkeypatch) -> None:
    """60 rows of 3 + 3 states, 2 actions and a reward: 2,160 bytes, and five times that at the peak."""
    path = save_dataset(Dataset(**clean_fields()), tmp_path / f"log{suffix}")
    monkeypatch.setattr(limits, "memory_limit", lambda: 2 * 2160 * limits.PEAK)
    assert load_dataset(path).size == 60
    monkeypatch.setattr(limits, "memory_limit", lambda: 2160 * limits.PEAK - 1)
    assert "this process may use" in message_of(lambda: load_dataset(path))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".npz", ".hdf5", ".csv", ".parquet"])
def test_reading_and_checking_stays_below_the_peak_that_is_assumed(suffix: str, tmp_path: Path) -> None:
    rows = 1_500_000  # so many that buffers of a fixed size hardly count
    path = save_dataset(Dataset(**clean_fields(rows)), tmp_path / f"log{suffix}")
    code = (
        "import sys, pspo, h5py, pyarrow.csv, pyarrow.parquet, scipy.spatial\n"
        "from pspo.core.memory import peak_memory\n"
        "from pspo.data.check import check\n"
        "pspo.load_dataset(sys.argv[2]); before = peak_memory()\n"
        "data = pspo.load_dataset(sys.argv[1]); check(data)\n"
        "arrays = data.obs.nbytes + data.next_obs.nbytes + data.action.nbytes + data.reward.nbytes\n"
        "print((peak_memory() - before) / arrays)"
    )
    small = save_dataset(Dataset(**clean_fields()), tmp_path / f"small{suffix}")
    words = [sys.executable, "-c", code, str(path), str(small)]
    peak = float(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert 1.0 < peak <= limits.PEAK


@pytest.mark.parametrize("where", ["array", "attribute"])
def test_many_texts_that_are_one_long_text_are_refused(where: str, tmp_path: Path) -> None:
    """2 MB in the file; read at once, they would take 2 GB."""
    text, path = "x" * 2_000_000, tmp_path / "log.hdf5"
    with h5py.File(path, "w") as file:
        for name, array in clean_d4rl().items():
            file[name] = array
        kind = h5py.string_dtype()
        if where == "array":
            file.create_dataset("notes", (1000,), kind)[0] = text
            _repeat_first(file, path)
        else:
            file.attrs.create("notes", [text[:400]] * 101, dtype=kind)
    assert "have more than 1,000,000 characters" in message_of(lambda: load_dataset(path))


def test_very_many_texts_are_refused_before_they_are_read(tmp_path: Path) -> None:
    """Each takes some bytes in the file, and its own read."""
    path = tmp_path / "log.hdf5"
    with h5py.File(path, "w") as file:
        for name, array in clean_d4rl().items():
            file[name] = array
        file.create_dataset("notes", (1001,), h5py.string_dtype())
    assert "'notes' holds 1001 texts, and at most 1000 are read" in message_of(lambda: load_dataset(path))


def _repeat_first(file: Any, path: Path) -> None:
    """Let all texts of an array refer to the first one: each is a length, an address and an index in the file."""
    place = file["notes"].id.get_offset()
    file.close()
    content = bytearray(path.read_bytes())
    content[place : place + 16 * 1000] = content[place : place + 16] * 1000
    path.write_bytes(content)


def test_damaged_statistics_of_a_parquet_column_do_not_end_the_process() -> None:
    """Of bytes that a fuzz test had changed: asked for the sizes of single columns, pyarrow 26 aborts on them."""
    words = [sys.executable, "-m", "pspo", "check", str(DAMAGED_STATISTICS)]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (2, "")
    assert "damaged-statistics.parquet', the table is truncated or damaged" in result.stdout


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_endless_notes_are_refused(suffix: str, tmp_path: Path) -> None:
    with_notes = Dataset(**clean_fields(), notes=("x" * 1_000_001,))
    path = save_dataset(with_notes, tmp_path / f"log{suffix}")
    assert "have more than 1,000,000 characters" in message_of(lambda: load_dataset(path))


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".hdf5", ".parquet"])
def test_pipes_and_devices_are_refused_at_once(suffix: str, tmp_path: Path) -> None:
    """Opening a pipe would wait for a writer."""
    os.mkfifo(tmp_path / f"pipe{suffix}")
    (tmp_path / f"device{suffix}").symlink_to("/dev/zero")
    for name in ("pipe", "device"):
        assert "is a pipe or a device" in message_of(lambda name=name: load_dataset(tmp_path / f"{name}{suffix}"))


def test_pipes_in_a_run_directory_are_refused_at_once(tmp_path: Path) -> None:
    for name in ("config.json", "policy.safetensors"):
        os.mkfifo(tmp_path / name)
    assert "pipe" in message_of(lambda: Run(tmp_path).read("config"))
    assert "pipe" in message_of(lambda: load_policy(tmp_path))


def test_small_files_of_zeros_are_no_bombs(tmp_path: Path) -> None:
    """Flags and rewards of nothing but zeros shrink a thousandfold, as they may."""
    arrays = clean_d4rl(60) | {"timeouts": np.zeros(60, bool)}
    many = {key: np.repeat(value, 5000, axis=0) if len(value) == 60 else value for key, value in arrays.items()}
    many["observations"][:] = 0
    np.savez_compressed(tmp_path / "log.npz", **many)
    assert load_dataset(tmp_path / "log.npz").size == 300_000


def test_a_parquet_file_of_one_long_run_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(limits, "ALWAYS_FITS", 1 << 20)
    names = ("obs_0", "action_0", "reward", "terminal")
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2_000_000, np.int8)), pa.array([0.0], pa.float32()))
    pa.parquet.write_table(pa.table(dict.fromkeys(names, column)), tmp_path / "log.parquet", compression="zstd")
    assert (tmp_path / "log.parquet").stat().st_size < 40_000
    assert "200 times its size" in message_of(lambda: load_dataset(tmp_path / "log.parquet"))


def test_hdf5_arrays_that_are_hardly_there_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        for name, shape in (("observations", (10**9, 3)), ("actions", (10**9, 1)), ("rewards", (10**9,))):
            file.create_dataset(name, shape, "f4", chunks=True)  # chunks that were never written
    assert "200 times its size" in message_of(lambda: load_dataset(tmp_path / "log.hdf5"))


def test_texts_without_end_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        for name, array in clean_d4rl().items():
            file[name] = array
        file.create_dataset("notes", data=["x"] * 5000)
    assert "5000 texts" in message_of(lambda: load_dataset(tmp_path / "log.hdf5"))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"name": ' + "9" * 5000 + "}"])
def test_json_bombs(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "manifest.json").write_text(text)
    for command in ("resume", "report"):
        assert main([command, str(tmp_path)]) == 2
    (tmp_path / "policy.onnx").write_bytes(b"x")
    (tmp_path / "policy.json").write_text(text)
    message_of(lambda: OnnxPolicy.load(tmp_path / "policy.onnx"))
    with h5py.File(tmp_path / "log.hdf5", "w", libver=("v110", "v110")) as file:
        for name, array in clean_d4rl().items():
            file[name] = array
        file.create_dataset("x", data=0)
        file.attrs["pspo"] = np.bytes_(text[:60_000])
    message_of(lambda: load_dataset(tmp_path / "log.hdf5"))
    table = pa.table({"obs_0": [0.0], "action_0": [0.0], "reward": [0.0], "terminal": [True]})
    pa.parquet.write_table(table.replace_schema_metadata({"pspo": text}), tmp_path / "log.parquet")
    message_of(lambda: load_dataset(tmp_path / "log.parquet"))


# Ways out


def test_names_in_an_archive_lead_nowhere(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    np.savez(tmp_path / "log.npz", **clean_d4rl())
    with zipfile.ZipFile(tmp_path / "log.npz", "a") as archive:
        for name in ("../../escaped.npy", "/tmp/escaped.npy", "..\\escaped.npy"):
            archive.writestr(name, buffer.getvalue())
    found = load_dataset(tmp_path / "log.npz")
    assert any("not used" in note for note in found.notes)
    assert [path.name for path in tmp_path.iterdir()] == ["log.npz"]
    assert not Path("/tmp/escaped.npy").exists()


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/escaped", "..", "a/b", "x\0y", ".hidden", "-rf", "n" * 5000])
def test_a_run_is_created_under_runs_whatever_the_dataset_is_called(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = free_path(f"{name}-bc-smoke-seed0")
    assert path.parent == Path("runs")
    create(path, {"config": {}})
    assert path.resolve().parent == tmp_path / "runs"
    assert not path.name.startswith((".", "-"))


@pytest.mark.parametrize("identifier", ["../..", "../../etc/passwd", "/etc/passwd", "a/../../b-v0", ""])
def test_minari_names_lead_nowhere(identifier: str, tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    message_of(lambda: load_dataset(f"minari:{identifier}"))


@pytest.mark.parametrize("name", ["../hopper-medium-v2", "hopper-medium-v2/../x", "hopper-../../x-v2"])
def test_d4rl_names_are_those_of_a_list(name: str) -> None:
    assert "unknown dataset" in message_of(lambda: load_dataset(name))


def test_a_hostile_link_gets_nothing_written_outside(whole: Path, tmp_path: Path, capsys) -> None:
    """Files of a run that are links are replaced, not followed; a folder that is a link is refused."""
    run, outside = tmp_path / "run", tmp_path / "outside"
    shutil.copytree(whole, run)
    outside.mkdir()
    for name in ("metrics.jsonl", "metrics.csv", "policy.safetensors", "report.html", "manifest.json", "models.json"):
        (run / name).rename(outside / name)
        (run / name).symlink_to(outside / name)
    (run / "result.json").unlink()
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    assert main(["resume", str(run), "--quiet"]) == 0
    assert before == {path.name: path.read_bytes() for path in outside.iterdir()}
    (run / "result.json").unlink()
    (run / "checkpoints").rename(outside / "checkpoints")
    (run / "checkpoints").symlink_to(outside / "checkpoints")
    capsys.readouterr()
    assert main(["resume", str(run), "--quiet"]) == 2
    assert "is a link to elsewhere" in capsys.readouterr().err


def test_a_lock_that_is_a_link_empties_nothing(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "pool-x.lock").symlink_to(tmp_path / "mine")
    monkeypatch.setenv("PSPO_CACHE", str(tmp_path))
    cache.remember("pool-x", dict, lambda: ({}, {}))
    assert (tmp_path / "mine").read_text() == "mine"
