"""NPZ files: a round trip loses nothing, a bad file is one clear sentence, and a failed save harms nothing."""

from __future__ import annotations

import gzip
import pickle
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from pspo.core.errors import UserError
from pspo.data import Dataset, load, load_dataset, load_npz, save_npz
from tests.data.made_up_data import clean_d4rl, clean_fields, datasets
from tests.refusals import message_of


def refusal(path: Path) -> str:
    return message_of(load_npz, path, naming=path.name)


class BombWhenUnpickled:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('pickled code ran')",)


@given(datasets(gaps=True))
def test_a_round_trip_keeps_everything(dataset: Dataset) -> None:
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_npz(save_npz(dataset, Path(folder) / "data.npz"))
    assert loaded.hash == dataset.hash
    assert (loaded.name, loaded.task) == (dataset.name, dataset.task)
    # Reading may add one note: whole numbers could be labels, which a Dataset in memory is not asked about.
    assert [note for note in loaded.notes if "not as labels" not in note] == list(dataset.notes)


def test_whole_numbers_as_decimals_are_noted_when_they_are_read(tmp_path: Path) -> None:
    fields = clean_fields()
    action = np.arange(len(fields["obs"]), dtype=np.float32)[:, None] % 2
    fields |= {"action": action, "action_low": [0.0], "action_high": [1.0]}
    loaded = load_npz(save_npz(Dataset(**fields), tmp_path / "data.npz"))
    assert ["not as labels" in note for note in loaded.notes] == [True]


def test_a_round_trip_keeps_nan_and_notes(tmp_path: Path) -> None:
    fields = clean_fields()
    fields["obs"][2, 1] = np.nan
    dataset = Dataset(**fields, notes=("rows were dropped.", "bounds were guessed."))
    loaded = load_npz(save_npz(dataset, tmp_path / "data.npz"))
    assert np.isnan(loaded.obs[2, 1])
    assert loaded.hash == dataset.hash
    assert loaded.notes == dataset.notes


def test_a_file_without_a_name_is_called_after_the_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "logs_of_may.npz", **clean_d4rl())
    assert load_npz(tmp_path / "logs_of_may.npz").name == "logs_of_may"


def test_saving_replaces_the_old_file_and_leaves_no_other(tmp_path: Path) -> None:
    old = Dataset(**clean_fields())
    path = save_npz(old, tmp_path / "data.npz")
    save_npz(replace(old, task="liquidation"), path)
    assert load_npz(path).task == "liquidation"
    assert [file.name for file in tmp_path.iterdir()] == ["data.npz"]


def test_a_save_that_fails_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Dataset(**clean_fields())
    path = save_npz(dataset, tmp_path / "data.npz")

    def disk_is_full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", disk_is_full)
    with pytest.raises(UserError, match="No space left"):
        save_npz(replace(dataset, task="other"), path)
    assert load_npz(path).hash == dataset.hash
    assert [file.name for file in tmp_path.iterdir()] == ["data.npz"]


def test_saving_to_an_impossible_place_is_refused(tmp_path: Path) -> None:
    dataset = Dataset(**clean_fields())
    with pytest.raises(UserError, match=r"ends in \.npz"):
        save_npz(dataset, tmp_path / "data.h5")
    with pytest.raises(UserError, match="cannot write"):
        save_npz(dataset, tmp_path / "no_such_folder" / "data.npz")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    assert "no file" in refusal(tmp_path / "absent.npz")
    (tmp_path / "folder.npz").mkdir()
    assert "folder" in refusal(tmp_path / "folder.npz")


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", pickle.dumps(BombWhenUnpickled())])
def test_something_else_is_not_an_npz(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "data.npz"
    path.write_bytes(content)
    assert "not an NPZ" in refusal(path)


@pytest.mark.parametrize("kept", [0.02, 0.5, 0.99])
def test_a_truncated_file_is_refused(tmp_path: Path, kept: float) -> None:
    path = save_npz(Dataset(**clean_fields()), tmp_path / "data.npz")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    assert "truncated or damaged" in refusal(path)


def test_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    path = save_npz(Dataset(**clean_fields()), tmp_path / "data.npz")
    content = bytearray(path.read_bytes())
    content[400] ^= 1  # inside the numbers of the first array
    path.write_bytes(content)
    assert "truncated or damaged" in refusal(path)


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    bombs = np.array([BombWhenUnpickled()] * 60, dtype=object)
    np.savez(tmp_path / "data.npz", **{**clean_d4rl(), "rewards": bombs})
    message = refusal(tmp_path / "data.npz")
    assert "pickled" in message
    assert "'rewards'" in message


def test_a_member_that_is_no_array_is_refused(tmp_path: Path) -> None:
    arrays = clean_d4rl()
    del arrays["rewards"]
    np.savez(tmp_path / "data.npz", **arrays)
    with zipfile.ZipFile(tmp_path / "data.npz", "a") as file:
        file.writestr("rewards.npy", b"not an array")
    assert "rewards" in refusal(tmp_path / "data.npz")


def test_a_header_that_python_cannot_parse_is_refused(tmp_path: Path) -> None:
    arrays = clean_d4rl()
    del arrays["rewards"]
    np.savez(tmp_path / "data.npz", **arrays)
    header = b"{'descr': (\0".ljust(118)
    with zipfile.ZipFile(tmp_path / "data.npz", "a") as file:
        file.writestr("rewards.npy", b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header)
    assert "rewards" in refusal(tmp_path / "data.npz")


def test_a_missing_array_suggests_the_nearest_name(tmp_path: Path) -> None:
    arrays = clean_d4rl()
    arrays["observation"] = arrays.pop("observations")
    np.savez(tmp_path / "data.npz", **arrays)
    message = refusal(tmp_path / "data.npz")
    assert "'observations' is missing" in message
    assert "rename 'observation'" in message


def test_wrong_shapes_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", **{**clean_d4rl(), "actions": np.zeros((59, 2))})
    message = refusal(tmp_path / "data.npz")
    assert "(59, 2)" in message
    assert "(60, 3)" in message


def test_any_source_gives_the_same_dataset(tmp_path: Path) -> None:
    dataset = Dataset(**clean_fields())
    path = save_npz(dataset, tmp_path / "data.npz")
    assert load_dataset(dataset) is dataset
    for source in (path, str(path), clean_d4rl()):
        assert load_dataset(source).hash == dataset.hash


def test_errors_for_unknown_sources_say_what_is_possible(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no such file, and unknown dataset 'liqidation': did you mean 'liquidation'"):
        load_dataset("liqidation")
    (tmp_path / "data.xls").write_text("1,2\n")
    with pytest.raises(UserError, match=r"data\.xls.*\.npz.*liquidation"):
        load_dataset(tmp_path / "data.xls")
    with pytest.raises(UserError, match="int"):
        load_dataset(3)  # type: ignore[arg-type]


def test_a_task_can_be_named_for_any_source(tmp_path: Path) -> None:
    path = save_npz(Dataset(**clean_fields()), tmp_path / "data.npz")
    for source in (path, clean_d4rl(), load_dataset(path)):
        assert load_dataset(source, task="liquidation").task == "liquidation"


def test_columns_are_refused_for_named_datasets() -> None:
    for source in ("liquidation", Dataset(**clean_fields())):
        with pytest.raises(UserError, match="leave them out"):
            load_dataset(source, columns={"obs": "x"})


def test_options_are_for_built_in_names_and_are_checked() -> None:
    with pytest.raises(UserError, match="size"):
        load_dataset(clean_d4rl(), size=5)
    with pytest.raises(UserError, match="unknown option of dataset 'liquidation' 'sead': did you mean 'seed'"):
        load_dataset("liquidation", sead=1)


def test_one_row_of_a_table_is_enough_for_a_new_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Dataset(**clean_fields())
    by_name = load.NamedReader("toy:1", lambda source, progress: (lambda: made) if source == "toy:1" else None)
    monkeypatch.setattr(load, "NAMED_READERS", (*load.NAMED_READERS, by_name))
    monkeypatch.setitem(load.FILE_READERS, ".toy", lambda path, columns: made)
    (tmp_path / "a.toy").touch()
    assert load_dataset("toy:1") is load_dataset(tmp_path / "a.toy") is made
    assert load.is_name("toy:1")
    with pytest.raises(UserError, match=r"\.h5, \.toy, \.arrow, \.feather\)"):
        load_dataset(__file__)


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_not_the_current_folder(name: str, tmp_path: Path, monkeypatch) -> None:
    """As of a shell whose variable is not set: `pspo train "$DATA"` must not take the tables that lie around."""
    (tmp_path / "log.csv").write_text("obs,action,reward,terminal\n" + "1,0.5,1,0\n2,0.25,1,1\n" * 20)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^the name of the data is empty: give a file"):
        load_dataset(name)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (gzip.compress(b"obs,action", mtime=0), "compressed: unpack it"),
        ("obs,action".encode("utf-16"), "in UTF-16: save it as UTF-8"),
        (b"PAR1....", "a Parquet file: name it .parquet"),
        (b"PK\x03\x04....", "a zip archive: unpack it"),
    ],
)
def test_a_csv_that_is_another_format_says_which(content: bytes, what: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"log.csv' is no CSV file but {what}"):
        load_dataset(path)
